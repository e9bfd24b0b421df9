import pytest
import torch
from torch.nn import functional

from vcse.nets.random_shift import PAD, SHIFTS, shift_images


def images(count, channels=9, side=84, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, channels, side, side), dtype=torch.uint8, generator=generator)


def all_shifts():
    return torch.cartesian_prod(torch.arange(SHIFTS), torch.arange(SHIFTS))


def padded_and_cut(shown, shifts):
    """The definition: repeat the border four pixels far, and cut a window out."""
    padded = functional.pad(shown.double(), [4] * 4, mode="replicate").to(torch.uint8)
    height, width = shown.shape[-2:]
    return torch.stack(
        [
            each[:, row : row + height, column : column + width]
            for each, (row, column) in zip(padded, shifts.tolist(), strict=True)
        ]
    )


def sampled_on_a_grid(shown, shifts):
    """DrQ-v2's own: a grid of pixel centres, moved by whole pixels, between which is interpolated."""
    side = shown.shape[-1]
    padded = functional.pad(shown.float(), [PAD] * 4, mode="replicate")
    whole = side + 2 * PAD
    centres = torch.linspace(-1 + 1 / whole, 1 - 1 / whole, whole)[:side]
    columns, rows = centres.expand(side, side), centres[:, None].expand(side, side)
    grid = torch.stack((columns, rows), -1).expand(len(shown), side, side, 2)
    moved = grid + shifts.flip(-1)[:, None, None] * 2 / whole
    return functional.grid_sample(padded, moved, padding_mode="zeros", align_corners=False)


@pytest.mark.parametrize("side", [84, 7])
def test_every_shift_is_a_window_of_the_padded_image(side):
    shown, shifts = images(SHIFTS**2, side=side), all_shifts()
    moved = shift_images(shown, shifts)
    assert moved.dtype == torch.uint8
    assert torch.equal(moved, padded_and_cut(shown, shifts))


def test_images_that_are_no_squares_are_shifted_too():
    shown = images(SHIFTS**2)[:, :, :10, :23]
    assert torch.equal(shift_images(shown, all_shifts()), padded_and_cut(shown, all_shifts()))


def test_the_formula_of_drqv2_gives_the_same_within_rounding():
    shown, shifts = images(SHIFTS**2, channels=3), all_shifts()
    difference = (sampled_on_a_grid(shown, shifts) - shift_images(shown, shifts)).abs()
    assert difference.max() < 0.02  # of 255; centres of pixels are rounded, and their neighbours count a little


def test_the_shift_in_the_middle_leaves_images_alone():
    shown = images(5)
    assert (PAD, SHIFTS) == (4, 9)
    assert torch.equal(shift_images(shown, torch.full((5, 2), PAD)), shown)


def test_rows_come_first_and_the_border_is_repeated():
    shown = torch.zeros(2, 1, 84, 84, dtype=torch.uint8)
    shown[:, 0, 10, 20], shown[:, 0, 0] = 255, 7
    down, right = shift_images(shown, torch.tensor([[1, 4], [4, 1]]))  # windows that begin 3 pixels before the image
    assert down[0, 13, 20] == right[0, 10, 23] == 255
    assert (down[0, :4] == 7).all()
    assert (right[0, 0] == 7).all()
    assert (right[0, 1, :4] == 0).all()


def test_all_channels_of_a_image_move_together_and_each_image_by_itself():
    one = images(1, channels=1)
    shown, shifts = one.expand(4, 9, 84, 84), torch.tensor([[0, 0], [8, 3], [4, 4], [8, 3]])
    moved = shift_images(shown, shifts)
    assert (moved == moved[:, :1]).all()
    assert torch.equal(moved[1], moved[3])
    assert not torch.equal(moved[0], moved[1])
    assert torch.equal(shift_images(shown[1:2], shifts[1:2])[0], moved[1])
