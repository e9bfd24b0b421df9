"""On a GPU, networks that look at pictures give what they give on the CPU."""

import pytest
import torch

from vcse.nets.augment import SHIFTS, shifted
from vcse.nets.pixels import FEATURES, PictureEncoder

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def pictures(count, channels=9, height=84, width=84):
    return torch.randint(0, 256, (count, channels, height, width), dtype=torch.uint8, generator=generator())


@pytest.mark.parametrize(("channels", "height", "width"), [(9, 84, 84), (3, 84, 84), (1, 7, 5), (2, 5, 64)])
def test_every_shift_is_that_of_the_cpu(channels, height, width):
    shifts = torch.cartesian_prod(torch.arange(SHIFTS), torch.arange(SHIFTS))
    shown = pictures(len(shifts), channels, height, width)
    moved = shifted(shown.cuda(), shifts.cuda())
    assert moved.dtype == torch.uint8
    assert torch.equal(moved.cpu(), shifted(shown, shifts))
    assert moved.is_contiguous(memory_format=torch.channels_last)


def test_a_part_of_a_batch_is_shifted_where_it_lies():
    shown, shifts = pictures(12).cuda(), torch.randint(SHIFTS, (3, 12, 2), generator=generator()).cuda()
    part = shifted(shown[5:], shifts[1, 5:])
    assert torch.equal(part, shifted(shown, shifts[1])[5:])
    assert torch.equal(shifted(shown[::2], shifts[1, ::2]), shifted(shown, shifts[1])[::2])


@pytest.mark.parametrize(("precision", "near"), [("float32", 0.05), ("bfloat16", 0.15)])
def test_features_and_gradients_of_an_encoder_are_those_of_the_cpu(precision, near):
    shown = shifted(pictures(6), torch.full((6, 2), SHIFTS // 2))
    weights = torch.randn(6, FEATURES, generator=generator(1))
    found = []
    for device, on in (("cpu", "float32"), ("cuda", precision)):
        encoder = PictureEncoder(9, generator(), precision=on).to(device)
        with torch.no_grad():
            for number, layer in enumerate(encoder.layers):
                layer.bias.copy_(0.1 * torch.randn(32, generator=generator(number)))
        features = encoder(shown.to(device))
        gradients = torch.autograd.grad((features * weights.to(device)).sum(), list(encoder.parameters()))
        found.append([features.detach(), *gradients])
    for mine, theirs in zip(found[1], found[0], strict=True):
        assert mine.dtype == torch.float32
        # Units about to switch on or off do so elsewhere, which turns the gradient of so random a loss a little.
        assert (mine.cpu() - theirs).norm() < near * theirs.norm()
