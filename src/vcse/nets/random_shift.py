"""Random shifts of pictures, the augmentation of DrQ-v2."""

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from vcse.nets.cuda.device_code import device_code, product_size

PAD = 4  # pixels that a picture may be shifted in each direction
SHIFTS = 2 * PAD + 1  # of them, with the one that leaves it where it is


def shifted(pictures: UInt8[Tensor, "n c h w"], shifts: Int[Tensor, "n 2"]) -> UInt8[Tensor, "n c h w"]:
    """Pad each picture by repeating its border, and cut a window of its size out at its own place.

    The window is moved by whole pixels, so that nothing is interpolated. What is given lies in memory pixel by pixel,
    with all channels of a pixel side by side: convolutions are faster so.

    Args:
        pictures: All channels of a picture move together.
        shifts: Rows and columns, from 0 to 2 x `PAD`; `PAD` leaves a picture where it is.
    """
    if pictures.is_cuda and device_code("pictures") is not None:
        return _shifted_in_one_pass(pictures, shifts)
    count, channels, height, width = pictures.shape
    rows = (torch.arange(height, device=pictures.device) + shifts[:, :1] - PAD).clamp(0, height - 1)
    columns = (torch.arange(width, device=pictures.device) + shifts[:, 1:] - PAD).clamp(0, width - 1)
    picture = torch.arange(count, device=pictures.device)[:, None, None, None]
    channel = torch.arange(channels, device=pictures.device)
    moved = pictures[picture, channel, rows[:, :, None, None], columns[:, None, :, None]]
    return moved.permute(0, 3, 1, 2)


def _shifted_in_one_pass(pictures: UInt8[Tensor, "n c h w"], shifts: Int[Tensor, "n 2"]) -> UInt8[Tensor, "n c h w"]:
    count, channels, height, width = pictures.shape
    moved = pictures.new_empty(count, height, width, product_size(channels))  # as an encoder wants them
    device_code("pictures").shift_kernel[height, count](
        *(pictures.contiguous(), shifts.contiguous(), moved, height, width, PAD),
        CHANNELS=channels,
        PITCH=moved.shape[-1],
        BLOCK=1 << (width * moved.shape[-1] - 1).bit_length(),
    )
    return moved[..., :channels].permute(0, 3, 1, 2)
