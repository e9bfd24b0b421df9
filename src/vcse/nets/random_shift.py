"""Random shifts of images, the augmentation of DrQ-v2."""

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from vcse.nets.cuda.device_code import device_code, product_size

PAD = 4  # pixels that an image may be shifted in each direction
SHIFTS = 2 * PAD + 1  # of them, with the one that leaves it where it is


def shift_images(images: UInt8[Tensor, "n c h w"], shifts: Int[Tensor, "n 2"]) -> UInt8[Tensor, "n c h w"]:
    """Pad each image by repeating its border, and cut a window of its size out at its own place.

    The window is moved by whole pixels, so that nothing is interpolated. The result lies in memory pixel by pixel,
    with all channels of a pixel side by side: convolutions are faster so.

    Args:
        images: All channels of an image move together.
        shifts: Rows and columns, from 0 to 2 x `PAD`; `PAD` leaves an image where it is.
    """
    if images.is_cuda and device_code("images") is not None:
        return _shift_in_one_pass(images, shifts)
    count, channels, height, width = images.shape
    rows = (torch.arange(height, device=images.device) + shifts[:, :1] - PAD).clamp(0, height - 1)
    columns = (torch.arange(width, device=images.device) + shifts[:, 1:] - PAD).clamp(0, width - 1)
    image = torch.arange(count, device=images.device)[:, None, None, None]
    channel = torch.arange(channels, device=images.device)
    moved = images[image, channel, rows[:, :, None, None], columns[:, None, :, None]]
    return moved.permute(0, 3, 1, 2)


def _shift_in_one_pass(images: UInt8[Tensor, "n c h w"], shifts: Int[Tensor, "n 2"]) -> UInt8[Tensor, "n c h w"]:
    count, channels, height, width = images.shape
    moved = images.new_empty(count, height, width, product_size(channels))  # as an encoder expects them
    device_code("images").shift_kernel[height, count](
        *(images.contiguous(), shifts.contiguous(), moved, height, width, PAD),
        CHANNELS=channels,
        PITCH=moved.shape[-1],
        BLOCK=1 << (width * moved.shape[-1] - 1).bit_length(),
    )
    return moved[..., :channels].permute(0, 3, 1, 2)
