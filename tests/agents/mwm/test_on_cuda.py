"""Updates and actions on CUDA: captured or not, held against each other and against those of a CPU."""

import dataclasses
import math

import pytest
import torch
from agents.contract import MWMKind, assert_same_state
from agents.mwm import toy_images
from agents.mwm.toy_images import FRAMES, make_config
from csv_rows import read_rows
from runs.small import newest_state, train
from torch.nn.attention import SDPBackend, sdpa_kernel

from vcse.agents.mwm.agent import MWM, MWMSpec
from vcse.agents.mwm.networks import PolicyState
from vcse.agents.mwm.settings import mwm_settings
from vcse.replay.sequences import SequenceBatch

KIND = MWMKind()
UPDATES, EAGER_UPDATES = 8, 3
BONUSES = ("none", "se", "vcse", "rcse")
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
# Of what is summed in another order, or in TF32 or bfloat16.
TOLERANCE = {"float32": {"rtol": 1e-2, "atol": 1e-3}, "bfloat16": {"rtol": 5e-2, "atol": 2e-2}}


@pytest.fixture
def exact(monkeypatch):
    """Compute products in float32, and sum attention and convolutions in one order."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    with sdpa_kernel(SDPBackend.MATH):
        yield
    torch.set_float32_matmul_precision(before)


def on(device, batch):
    return SequenceBatch(*(each.to(device) for each in batch))


def update(agent, number, *, captures=False):
    """Make an update of the autoencoder and one of all else, and return the numbers to log."""
    batches = [on(agent.device, KIND.material(number + 500)), on(agent.device, KIND.material(number))]
    if captures:
        agent.capture_autoencoder(batches[0])
        agent.capture(batches[1])
    metrics = agent.update_autoencoder(batches[0]) | agent.update(batches[1]).metrics
    return {name: each.cpu().clone() for name, each in metrics.items()}


def act(agent, number, *, noisy=True):
    """Choose actions for images on the host, the second of an episode, and return them with the memory."""
    uniforms, noise = KIND.uniforms(number)
    _, memory = agent.act(KIND.images(number + 1), agent.acting_policy.initial_state(4), uniforms, noise)
    memory = PolicyState(*(each.clone() for each in memory))  # the next call overwrites it
    actions, memory = agent.act(KIND.images(number), memory, uniforms, noise if noisy else None)
    return [each.cpu().clone() for each in (actions, *memory)]


@needs_cuda
@pytest.mark.parametrize("bonus", BONUSES)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_captured_updates_and_actions_are_those_of_an_eager_agent(bonus, precision):
    config = KIND.config(bonus, precision=precision, target_updates=3)
    eager, captured = (MWM(KIND.spec, config, 0, device="cuda") for _ in range(2))
    for number in range(UPDATES):
        expected, found = update(eager, number), update(captured, number, captures=number == EAGER_UPDATES)
        assert found.keys() == expected.keys()
        for name, each in expected.items():
            torch.testing.assert_close(found[name], each, **TOLERANCE[precision], msg=f"{name}, update {number}")
    captured.load_policy(eager.state_dict())  # no sample is of another class then, but by rounding
    for number in range(3):
        for noisy in (True, False):
            expected, found = (act(agent, number, noisy=noisy)[0] for agent in (eager, captured))
            torch.testing.assert_close(found, expected, **TOLERANCE[precision])


@needs_cuda
@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("captures", [False, True])
def test_the_same_seed_learns_the_same_again(captures):
    agents = [MWM(KIND.spec, KIND.config("vcse", target_updates=3), 0, device="cuda") for _ in range(2)]
    for number in range(UPDATES):
        mine, theirs = (update(agent, number, captures=captures and number == EAGER_UPDATES) for agent in agents)
        for name, each in mine.items():
            assert torch.equal(each, theirs[name]), f"{name}, update {number}"
    assert_same_state(*(agent.state_dict() for agent in agents))
    for one, other in zip(*(act(agent, 0) for agent in agents), strict=True):
        assert torch.equal(one, other)


@needs_cuda
@pytest.mark.usefixtures("exact")
def test_saved_loaded_and_continued_equals_not_stopping_after_a_capture_too():
    agent, other = (MWM(KIND.spec, KIND.config("vcse"), seed, device="cuda") for seed in (0, 7))
    for each in (agent, other):
        for number in range(UPDATES):
            update(each, number, captures=number == EAGER_UPDATES)
    other.load_state_dict(agent.state_dict())
    for each in (agent, other):
        update(each, UPDATES)
    assert_same_state(other.state_dict(), agent.state_dict())


def with_numbers_of_the_host(agent):
    """Make an agent sample by the same numbers on any device."""
    agent.generator = torch.Generator()
    agent.rand = lambda *shape: torch.rand(*shape, generator=agent.generator).to(agent.device)
    return agent


def check_against_cpu(bonus, device):
    """Hold an agent on a device against one on the CPU, number by number."""
    config = KIND.config(bonus, warm_up_updates=4)
    agents = [with_numbers_of_the_host(MWM(KIND.spec, config, 0, device=each)) for each in ("cpu", device)]
    for number in range(3):
        expected, found = (update(agent, number) for agent in agents)
        for name, each in expected.items():
            torch.testing.assert_close(found[name], each, rtol=1e-3, atol=1e-4, msg=f"{name}, update {number}")
    expected, found = (act(agent, 0) for agent in agents)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-2, atol=1e-3)


@needs_cuda
@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("bonus", BONUSES)
def test_updates_are_those_of_a_cpu(bonus):
    check_against_cpu(bonus, "cuda")


def test_the_comparison_itself_holds_on_a_cpu():
    check_against_cpu("vcse", "cpu")


def full_batch(config):
    """Return batches of the release's size: for the autoencoder, and for all else."""
    generator = torch.Generator().manual_seed(0)
    of_autoencoder = config.autoencoder_batch_size, config.autoencoder_sequence_length
    for shape in (of_autoencoder, (config.batch_size, config.sequence_length)):
        batch = SequenceBatch(
            images=torch.randint(256, (*shape, 3, 64, 64), dtype=torch.uint8, generator=generator),
            actions=torch.randn(*shape, 4, generator=generator).tanh(),
            rewards=10 * torch.rand(shape, generator=generator),
            is_first=(torch.arange(shape[1]) == 0).expand(shape),
        )
        yield on("cuda", batch)


@needs_cuda
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_updates_of_full_size_are_made_and_captured(precision):
    config = mwm_settings("vcse", precision=precision)
    agent = MWM(MWMSpec(4), config, 0, device="cuda")
    for_autoencoder, for_all = full_batch(config)
    losses = []
    for number in range(12):
        if number == EAGER_UPDATES:
            agent.capture_autoencoder(for_autoencoder)
            agent.capture(for_all)
        metrics = agent.update_autoencoder(for_autoencoder) | agent.update(for_all).metrics
        for name, each in metrics.items():
            assert math.isfinite(each.item()), f"{name}, update {number}"
        losses.append([metrics[name].item() for name in ("autoencoder_loss", "reward_loss")])
    assert all(last < first for first, last in zip(losses[0], losses[-1], strict=True))
    for each in (*agent.policy.parameters(), *agent.acting_policy.parameters()):
        assert each.dtype == torch.float32
        assert each.isfinite().all()


@needs_cuda
@pytest.mark.parametrize("bonus", BONUSES)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_update_waits_for_nothing(bonus, precision):
    agent = MWM(KIND.spec, KIND.config(bonus, precision=precision, target_updates=2), 0, device="cuda")
    batches = [on("cuda", KIND.material(number)) for number in range(2)]
    for number in range(6):
        is_warm = number >= EAGER_UPDATES  # kernels are compiled, and the optimisers have their memory
        torch.cuda.set_sync_debug_mode("error" if is_warm else "default")
        try:
            agent.update_autoencoder(batches[0])
            agent.update(batches[1])
        finally:
            torch.cuda.set_sync_debug_mode("default")


@needs_cuda
@pytest.mark.usefixtures("without_type_checks")
def test_a_run_is_trained_and_evaluated(tmp_path, monkeypatch):
    toy_images.register(monkeypatch)
    config = make_config("vcse")
    config = dataclasses.replace(config, settings=dataclasses.replace(config.settings, precision="bfloat16"))
    train([config], tmp_path, device="cuda")
    *_, row = read_rows(tmp_path / config.name / "train.csv")
    assert all(math.isfinite(row[name]) for name in MWM.METRICS)
    agent = newest_state(tmp_path / config.name).state["agent"]
    assert (agent["updates"], row["frame"]) == (toy_images.UPDATES, FRAMES)
    assert math.isfinite(row["eval_return_mean"])
