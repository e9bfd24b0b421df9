import copy
import dataclasses

import pytest
import torch

from vcse.agents.a2c.agent import A2C, A2CSpec
from vcse.agents.a2c.settings import A2CSettings
from vcse.agents.drqv2.agent import NOISE_SAMPLES, SHIFT_SAMPLES, DrQv2, DrQv2Spec
from vcse.agents.drqv2.settings import drqv2_settings
from vcse.agents.sac.agent import ACTION_SAMPLES, SAC, SACSpec
from vcse.agents.sac.settings import SACSettings
from vcse.agents.value_permutation import ValuePermutation
from vcse.bonuses.registry import BonusChoice
from vcse.nets.mlp import StackedMLP
from vcse.nets.random_shift import SHIFTS
from vcse.replay.images import ImageBatch
from vcse.replay.rollouts import Rollout
from vcse.replay.transitions import Batch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

SPEC = A2CSpec((7, 7, 3), 7)
NONE = A2CSettings(BonusChoice("none", "release-a2c", 3))
VCSE = A2CSettings(BonusChoice("vcse", "release-a2c", 3))
CLEAN = A2CSettings(BonusChoice("vcse", "clean", 5), injection="reward", time_limit="bootstraps")
COHORTS = {
    "one bonus": [VCSE, VCSE],
    "with and without": [NONE, VCSE, dataclasses.replace(VCSE, injection="reward")],
    "bonuses that learn or count": [
        dataclasses.replace(VCSE, bonus=BonusChoice(bonus, "clean", 1)) for bonus in ("rnd", "icm", "counts")
    ],
    "controls": [
        dataclasses.replace(NONE, step_cost=0.02, injection="reward"),
        dataclasses.replace(VCSE, values="permuted"),
        dataclasses.replace(VCSE, values="frozen", step_cost=0.02),
        VCSE,
    ],
    "time limits bootstrap": [dataclasses.replace(NONE, time_limit="bootstraps"), VCSE, CLEAN],
}
UPDATES = 8
EAGER_UPDATES = 3


def make_rollout(seed, learners, *, next_observations):
    generator = torch.Generator().manual_seed(seed)
    shape = (learners, 16, 8)
    seen = torch.randint(0, 11, (20, 7, 7, 3), dtype=torch.uint8, generator=generator)
    ended = torch.rand(shape, generator=generator) < 0.2
    terminated = ended & (torch.rand(shape, generator=generator) < 0.5)
    rollout = Rollout(
        observations=seen[torch.randint(0, 20, (learners, 16, 9), generator=generator)],
        actions=torch.randint(0, 7, shape, generator=generator),
        rewards=torch.rand(shape, generator=generator) * terminated,
        terminated=terminated,
        truncated=ended & ~terminated,
        positions=torch.randint(1, 6, (*shape, 2), generator=generator).float(),
        next_observations=seen[torch.randint(0, 20, shape, generator=generator)] if next_observations else None,
    )
    return Rollout(*(None if each is None else each.cuda() for each in rollout))


@pytest.mark.parametrize("name", list(COHORTS))
def test_captured_updates_and_actions_are_those_of_an_eager_agent(name):
    configs = COHORTS[name]
    learners = len(configs)
    eager, captured = (A2C(SPEC, configs, range(learners), device="cuda") for _ in range(2))
    memory = make_rollout(0, learners, next_observations=eager.needs_next_observations)
    orders = ValuePermutation([config.values for config in configs], range(learners), 16 * 8, torch.device("cuda"))
    for seed in range(UPDATES):
        order = orders.of_update(seed)
        fresh = make_rollout(seed, learners, next_observations=eager.needs_next_observations)
        for mine, theirs in zip(memory, fresh, strict=True):
            if mine is not None:
                mine.copy_(theirs)
        if seed == EAGER_UPDATES:
            captured.capture(memory, order)
        metrics = captured.update(memory, value_permutation=order).metrics
        expected = eager.update(fresh, value_permutation=order).metrics
        for key in expected:
            torch.testing.assert_close(metrics[key], expected[key], rtol=1e-4, atol=1e-5, msg=f"{key}, update {seed}")
        uniforms = torch.rand(learners, 16, generator=torch.Generator().manual_seed(seed)).cuda()
        actions = captured.act(memory.observations[:, :, 0], uniforms)
        torch.testing.assert_close(actions, eager.act(fresh.observations[:, :, 0], uniforms))
    torch.testing.assert_close(captured.parameters, eager.parameters, rtol=1e-4, atol=1e-5)


SAC_SPEC = SACSpec(15, 4)
SAC_NONE = SACSettings(BonusChoice("none", "release-sac", 12), hidden_units=64, batch_size=128)
SAC_VCSE = SACSettings(BonusChoice("vcse", "release-sac", 12), temperature=0.001, hidden_units=64, batch_size=128)
SAC_COHORTS = {
    "one bonus": [SAC_VCSE, SAC_VCSE],
    "bonuses that learn": [
        dataclasses.replace(SAC_VCSE, bonus=BonusChoice(bonus, "clean", 1)) for bonus in ("rnd", "icm")
    ],
    "with and without": [
        SAC_NONE,
        SAC_VCSE,
        dataclasses.replace(SAC_VCSE, bonus=BonusChoice("se", "release-sac", 12)),
        dataclasses.replace(SAC_VCSE, value_critic="online", extrinsic_entropy=True),
    ],
    "controls": [
        dataclasses.replace(SAC_NONE, step_cost=0.02),
        dataclasses.replace(SAC_VCSE, values="permuted"),
        dataclasses.replace(SAC_VCSE, values="frozen", step_cost=0.02),
    ],
}


def make_batch(seed, learners, device="cuda"):
    generator = torch.Generator().manual_seed(seed)
    shape = (learners, 128)
    batch = Batch(
        observations=torch.randn(*shape, 15, generator=generator),
        actions=torch.randn(*shape, 4, generator=generator).tanh(),
        rewards=torch.rand(shape, generator=generator),
        terminated=(torch.rand(shape, generator=generator) < 0.1).float(),
        next_observations=torch.randn(*shape, 15, generator=generator),
    )
    noise = torch.randn(learners, ACTION_SAMPLES, 128, 4, generator=generator)
    return Batch(*(each.to(device) for each in batch)), noise.to(device)


@pytest.mark.parametrize("name", list(SAC_COHORTS))
def test_captured_sac_is_an_eager_one_and_both_are_that_of_the_cpu(name):
    configs = SAC_COHORTS[name]
    learners = len(configs)
    eager, captured = (SAC(SAC_SPEC, configs, range(learners), device="cuda") for _ in range(2))
    on_cpu = SAC(SAC_SPEC, configs, range(learners))
    memory, memory_noise = make_batch(0, learners)
    orders, plain_orders = (
        ValuePermutation([config.values for config in configs], range(learners), 128, torch.device(device))
        for device in ("cuda", "cpu")
    )
    for seed in range(UPDATES):
        batch, noise = make_batch(seed, learners)
        order = orders.of_update(seed)
        for mine, theirs in zip(memory, batch, strict=True):
            mine.copy_(theirs)
        memory_noise.copy_(noise)
        if seed == EAGER_UPDATES:
            captured.capture(memory, memory_noise, order)
        metrics = captured.update(memory, memory_noise, order).metrics
        expected = eager.update(batch, noise, order).metrics
        plain = on_cpu.update(*make_batch(seed, learners, "cpu"), plain_orders.of_update(seed)).metrics
        for key in expected:
            torch.testing.assert_close(metrics[key], expected[key], rtol=1e-4, atol=1e-5, msg=f"{key}, update {seed}")
            torch.testing.assert_close(expected[key].cpu(), plain[key], rtol=2e-3, atol=2e-4, msg=f"{key}, {seed}")
    shown = torch.randn(learners, 1, 15, generator=torch.Generator().manual_seed(0))
    noise = torch.randn(learners, 1, 4, generator=torch.Generator().manual_seed(1))
    for _ in range(2):
        torch.testing.assert_close(captured.act(shown, noise), eager.act(shown, noise), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("inputs", [19, 200])
def test_networks_and_their_gradients_are_those_of_the_cpu(inputs, outputs):
    net = StackedMLP(inputs, 96, outputs, [torch.Generator().manual_seed(seed) for seed in range(5)])
    inputs = torch.randn(5, 33, inputs, generator=torch.Generator().manual_seed(9)).requires_grad_()
    on_device, inputs_on_device = copy.deepcopy(net).cuda(), inputs.detach().cuda().requires_grad_()
    expected, found = net(inputs), on_device(inputs_on_device)
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)
    gradients = torch.autograd.grad(expected.square().sum(), [inputs, *net.layers])
    found_gradients = torch.autograd.grad(found.square().sum(), [inputs_on_device, *on_device.layers])
    for mine, theirs in zip(found_gradients, gradients, strict=True):
        torch.testing.assert_close(mine.cpu(), theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("inputs", "outputs"), [(54, 1), (50, 4), (1024, 1)])
def test_networks_as_large_as_those_that_are_trained_are_those_of_the_cpu(inputs, outputs):
    # Of several tiles in each direction, as those of other tests are not.
    made = StackedMLP(inputs, 1024, outputs, [torch.Generator().manual_seed(seed) for seed in range(2)])
    seen = torch.randn(2, 256, inputs, generator=torch.Generator().manual_seed(9))
    weights, found = torch.randn(2, 256, outputs, generator=torch.Generator().manual_seed(10)), []
    for device in ("cpu", "cuda"):
        net, own = copy.deepcopy(made).to(device), seen.to(device).clone().requires_grad_()
        given = net(own)
        gradients = torch.autograd.grad((given * weights.to(device)).sum(), [own, *net.layers])
        found.append([each.detach().cpu() for each in (given, *gradients)])
    for mine, theirs in zip(found[1], found[0], strict=True):
        assert (mine - theirs).norm() < 1e-3 * theirs.norm()


@pytest.mark.parametrize("where", range(7))
def test_a_nan_that_goes_in_comes_out(where):
    net = StackedMLP(19, 96, 1, [torch.Generator().manual_seed(0)])
    inputs = torch.randn(1, 33, 19, generator=torch.Generator().manual_seed(9))
    [inputs, *(each.data for each in net.layers)][where].view(-1)[0] = float("nan")
    assert net.cuda()(inputs.cuda()).isnan().any()


IMAGES = 24
DRQ_NONE = drqv2_settings("none", task="dmc-pixels/hopper_stand", batch_size=IMAGES, hidden_units=64)
DRQ_VCSE = drqv2_settings("vcse", task="dmc-pixels/hopper_stand", batch_size=IMAGES, hidden_units=64)
DRQ_LEARNERS = {
    "no bonus": DRQ_NONE,
    "se": drqv2_settings("se", task="dmc-pixels/hopper_stand", batch_size=IMAGES, hidden_units=64),
    "vcse": DRQ_VCSE,
    "vcse of a reward divided by its mean": dataclasses.replace(DRQ_VCSE, reward_normalization="mean"),
    "vcse with every remedy of saturation": dataclasses.replace(
        DRQ_VCSE, reward_normalization="centered", actor_normalization=True, pre_activation_penalty=0.1
    ),
}


def make_images(seed, device="cuda"):
    generator = torch.Generator().manual_seed(seed)
    batch = ImageBatch(
        observations=torch.randint(256, (IMAGES, 9, 84, 84), dtype=torch.uint8, generator=generator),
        actions=torch.randn(IMAGES, 4, generator=generator).tanh(),
        rewards=3 * torch.rand(IMAGES, generator=generator),
        first_rewards=torch.rand(IMAGES, generator=generator),
        discounts=0.97 * (torch.rand(IMAGES, generator=generator) < 0.9).float(),
        next_observations=torch.randint(256, (IMAGES, 9, 84, 84), dtype=torch.uint8, generator=generator),
    )
    noise = torch.randn(NOISE_SAMPLES, IMAGES, 4, generator=generator)
    shifts = torch.randint(SHIFTS, (SHIFT_SAMPLES, IMAGES, 2), generator=generator)
    on_device = ImageBatch(*(None if each is None else each.to(device) for each in batch))
    return on_device, noise.to(device), shifts.to(device)


@pytest.mark.parametrize("name", list(DRQ_LEARNERS))
def test_captured_drqv2_is_an_eager_one_and_both_are_that_of_the_cpu(name):
    config = DRQ_LEARNERS[name]
    eager, captured = (DrQv2(DrQv2Spec(9, 4), config, 0, device="cuda") for _ in range(2))
    on_cpu = DrQv2(DrQv2Spec(9, 4), config, 0)
    memory, memory_noise, memory_shifts = make_images(0)
    for seed in range(UPDATES):
        batch, noise, shifts = make_images(seed)
        for mine, theirs in zip(memory, batch, strict=True):
            if mine is not None:
                mine.copy_(theirs)
        memory_noise.copy_(noise)
        memory_shifts.copy_(shifts)
        if seed == EAGER_UPDATES:
            captured.capture(memory, memory_noise, memory_shifts)
        metrics = captured.update(memory, memory_noise, memory_shifts, step=seed).metrics
        expected = eager.update(batch, noise, shifts, step=seed).metrics
        plain = on_cpu.update(*make_images(seed, "cpu"), step=seed).metrics
        for key in expected:
            # Convolutions add up in TF32, in an order of their own.
            torch.testing.assert_close(metrics[key], expected[key], rtol=5e-3, atol=5e-4, msg=f"{key}, update {seed}")
            torch.testing.assert_close(expected[key].cpu(), plain[key], rtol=2e-2, atol=2e-3, msg=f"{key}, {seed}")
    shown, shown_noise = make_images(100, "cpu")[0].observations[:1], torch.randn(1, 4)
    for _ in range(2):
        actions = captured.act(shown, shown_noise, step=3)
        torch.testing.assert_close(actions, eager.act(shown, shown_noise, step=3), rtol=1e-2, atol=1e-3)
        shown = shown.flip(-1)


def test_bfloat16_learns_nearly_the_same():
    rounded = dataclasses.replace(DRQ_VCSE, encoder_precision="bfloat16")
    agents = [DrQv2(DrQv2Spec(9, 4), config, 0, device="cuda") for config in (DRQ_VCSE, rounded)]
    for seed in range(UPDATES):
        expected, metrics = (agent.update(*make_images(seed), step=seed).metrics for agent in agents)
        for key in ("critic_loss", "extrinsic_critic_loss", "actor_loss", "curiosity_loss"):
            torch.testing.assert_close(metrics[key], expected[key], rtol=5e-2, atol=1e-2, msg=f"{key}, update {seed}")
