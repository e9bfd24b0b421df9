"""The device code of `augment`; imported only where Triton is installed, which comes with PyTorch for CUDA."""

from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check  # or the checks of shapes that the tests switch on would wrap what Triton compiles
def shift_kernel(
    picture_ptr,
    shift_ptr,
    out_ptr,
    height,
    width,
    pad,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write one row of one shifted picture, with all channels of a pixel side by side."""
    row, picture = tl.program_id(0), tl.program_id(1).to(tl.int64)
    place = tl.arange(0, BLOCK)
    inside = place < width * CHANNELS
    channel = place % CHANNELS
    from_row = row + tl.load(shift_ptr + 2 * picture) - pad
    from_row = tl.minimum(tl.maximum(from_row, 0), height - 1)
    from_column = place // CHANNELS + tl.load(shift_ptr + 2 * picture + 1) - pad
    from_column = tl.minimum(tl.maximum(from_column, 0), width - 1)
    here = ((picture * CHANNELS + channel) * height + from_row) * width + from_column
    value = tl.load(picture_ptr + here, mask=inside)
    tl.store(out_ptr + (picture * height + row) * width * CHANNELS + place, value, mask=inside)
