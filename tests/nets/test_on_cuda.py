"""On a GPU, networks that look at images give what they give on the CPU."""

import pytest
import torch

from vcse.agents.drqv2.networks import FEATURES, ImageEncoder
from vcse.nets.cuda.wide_linear import wide_linear
from vcse.nets.random_shift import SHIFTS, shift_images

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def images(count, channels=9, height=84, width=84):
    return torch.randint(0, 256, (count, channels, height, width), dtype=torch.uint8, generator=generator())


@pytest.mark.parametrize(("channels", "height", "width"), [(9, 84, 84), (3, 84, 84), (1, 7, 5), (2, 5, 64)])
def test_every_shift_is_that_of_the_cpu(channels, height, width):
    shifts = torch.cartesian_prod(torch.arange(SHIFTS), torch.arange(SHIFTS))
    shown = images(len(shifts), channels, height, width)
    moved = shift_images(shown.cuda(), shifts.cuda())
    assert moved.dtype == torch.uint8
    assert torch.equal(moved.cpu(), shift_images(shown, shifts))
    assert moved.stride(1) == 1


def test_a_part_of_a_batch_is_shifted_where_it_lies():
    shown, shifts = images(12).cuda(), torch.randint(SHIFTS, (3, 12, 2), generator=generator()).cuda()
    part = shift_images(shown[5:], shifts[1, 5:])
    assert torch.equal(part, shift_images(shown, shifts[1])[5:])
    assert torch.equal(shift_images(shown[::2], shifts[1, ::2]), shift_images(shown, shifts[1])[::2])


@pytest.mark.parametrize(
    ("count", "precision", "arithmetic", "near"),
    # Units about to switch on or off do so elsewhere, which turns the gradient of so random a loss a little, and most
    # that of a single image: with TF32 by 0.052 on an H200.
    [
        *[(count, "float32", "highest", 1e-3) for count in (1, 6, 256)],  # the last as many as a batch
        *[(1, "float32", "high", 0.06), (6, "float32", "high", 0.05)],
        *[(count, "bfloat16", "high", 0.15) for count in (1, 6)],
    ],
)
def test_features_and_gradients_of_an_encoder_are_those_of_the_cpu(count, precision, arithmetic, near):
    before = torch.get_float32_matmul_precision()
    shown = shift_images(images(count), torch.full((count, 2), SHIFTS // 2))
    weights = torch.randn(count, FEATURES, generator=generator(1))
    found = []
    for device, on in (("cpu", "float32"), ("cuda", precision)):
        encoder = ImageEncoder(9, generator(), precision=on).to(device)
        with torch.no_grad():
            for number, layer in enumerate(encoder.layers):
                layer.bias.copy_(0.1 * torch.randn(32, generator=generator(number)))
        torch.set_float32_matmul_precision(arithmetic if device == "cuda" else "highest")
        try:
            features = encoder(shown.to(device))
            gradients = torch.autograd.grad((features * weights.to(device)).sum(), list(encoder.parameters()))
        finally:
            torch.set_float32_matmul_precision(before)
        for gradient, parameter in zip(gradients, encoder.parameters(), strict=True):
            assert gradient.stride() == parameter.stride()  # as Adam in one pass wants them
        found.append([features.detach().float(), *gradients])
    for mine, theirs in zip(found[1], found[0], strict=True):
        assert mine.dtype == torch.float32
        assert (mine.cpu() - theirs).norm() < near * theirs.norm()


def test_a_nan_of_an_encoder_comes_out():
    encoder, shown = ImageEncoder(9, generator()).cuda(), images(2).cuda()
    with torch.no_grad():
        encoder.layers[2].bias[3] = float("nan")
    assert encoder(shown).isnan().any()


@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(256, FEATURES, 50), (1, FEATURES, 50), (70, 131, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_wide_layer_and_its_gradients_are_those_of_the_cpu(rows, inputs, outputs, dtype):
    drawn = [torch.randn(*size, generator=generator(7)) for size in ((rows, inputs), (outputs, inputs), (outputs,))]
    drawn[0] = drawn[0].to(dtype)
    weights, found = torch.randn(rows, outputs, generator=generator(8)), []
    for device in ("cpu", "cuda"):
        parts = [each.to(device).requires_grad_() for each in drawn]
        result = wide_linear(*parts)
        gradients = torch.autograd.grad((result * weights.to(device)).sum(), parts)
        found.append([each.detach().cpu().float() for each in (result, *gradients)])
    for mine, theirs in zip(found[1], found[0], strict=True):
        assert (mine - theirs).norm() < 1e-4 * theirs.norm() + (5e-3 * theirs.norm() if dtype != torch.float32 else 0)
