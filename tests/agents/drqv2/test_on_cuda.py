"""One update on CUDA, with networks of real size, held against the plain formula on a CPU number by number."""

import dataclasses

import pytest
import torch
from agents.drqv2.plain import PlainDrQv2, gradients_of

from vcse.agents.drqv2.agent import NOISE_SAMPLES, SHIFT_SAMPLES, DrQv2, DrQv2Spec
from vcse.agents.drqv2.settings import drqv2_settings
from vcse.nets.random_shift import SHIFTS
from vcse.replay.images import ImageBatch

RELEASE = drqv2_settings("none", task="metaworld/door-open")
NONE = dataclasses.replace(RELEASE, batch_size=64)
LEARNERS = {
    "release": RELEASE,
    "rewards as they are": dataclasses.replace(NONE, reward_normalization="none"),
    "n-step mean": dataclasses.replace(NONE, reward_normalization="n_step_mean"),
    "centered and penalty": dataclasses.replace(NONE, reward_normalization="centered", pre_activation_penalty=0.1),
    "centered and normalized actor": dataclasses.replace(
        NONE, reward_normalization="centered", actor_normalization=True
    ),
}
SPEC = DrQv2Spec(9, 4)


def material(size):
    """Return a batch, noise and shifts, on the host."""
    generator = torch.Generator().manual_seed(0)

    def images():
        return torch.randint(256, (size, 9, 84, 84), dtype=torch.uint8, generator=generator)

    batch = ImageBatch(
        observations=images(),
        actions=torch.randn(size, 4, generator=generator).tanh(),
        rewards=3 * torch.rand(size, generator=generator),
        first_rewards=torch.rand(size, generator=generator),
        discounts=0.99**3 * (torch.rand(size, generator=generator) < 0.9).float(),
        next_observations=images(),
    )
    noise = torch.randn(NOISE_SAMPLES, size, 4, generator=generator)
    return batch, noise, torch.randint(SHIFTS, (SHIFT_SAMPLES, size, 2), generator=generator)


def check_one_update(config, device):
    """Hold metrics, and the gradient of every parameter, against the plain formula."""
    plain = PlainDrQv2(DrQv2(SPEC, config, 0), config)
    agent = DrQv2(SPEC, config, 0, device=device)
    batch, noise, shifts = material(config.batch_size)
    expected = plain.update(batch, noise, shifts, 4)
    there = ImageBatch(*(None if each is None else each.to(device) for each in batch))
    metrics = agent.update(there, noise.to(device), shifts.to(device), step=4).metrics
    for name, number in expected.items():
        torch.testing.assert_close(metrics[name].cpu(), number.detach(), rtol=1e-3, atol=1e-5, msg=name)
    for name, gradients in gradients_of(agent).items():
        for place, (mine, theirs) in enumerate(zip(gradients, plain.gradients[name], strict=True)):
            # Units about to switch on or off may do so elsewhere, as sums have another order.
            assert (mine - theirs).norm() < 5e-3 * theirs.norm(), f"{name}, parameter {place}"


@pytest.fixture
def exact_products(monkeypatch):
    """Compute products and convolutions in float32, as on a CPU."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.usefixtures("exact_products")
@pytest.mark.parametrize("name", list(LEARNERS))
def test_one_update_is_that_of_the_plain_formula(name):
    check_one_update(LEARNERS[name], "cuda")


def test_the_comparison_itself_holds_on_a_cpu():
    config = dataclasses.replace(LEARNERS["centered and penalty"], batch_size=8, hidden_units=32)
    check_one_update(config, "cpu")
