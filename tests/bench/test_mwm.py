import json
import math
import time
from collections import Counter
from types import SimpleNamespace

import pytest
from gl import needs_gl
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from vcse.agents.mwm.agent import MWM, MWMSpec
from vcse.agents.mwm.costs import operations
from vcse.agents.mwm.settings import mwm_settings
from vcse.bench import mwm, training
from vcse.bench.mwm import Case, measure
from vcse.cli import main

SHARES = ("share_env", "share_act", "share_update")
PARTS = ("ms_per_autoencoder_update", "ms_per_model_update", "ms_per_actor_critic_update")
TRAINED = (1.0, dict.fromkeys(SHARES, 1 / 3), "egl")  # what a training returned that was not made
TINY = {
    **{"batch_size": 4, "sequence_length": 4, "autoencoder_batch_size": 2, "autoencoder_sequence_length": 4},
    **{"horizon": 2, "token_dimensions": 16, "encoder_blocks": 1, "decoder_blocks": 1, "model_dimensions": 16},
    **{"model_blocks": 1, "deterministic": 16, "variables": 4, "classes": 4, "hidden_units": 16, "projection_size": 8},
}


@pytest.fixture(autouse=True)
def _short(monkeypatch, without_type_checks):
    """Little is measured, of tiny networks, in the time of this process alone: others may take the core meanwhile."""
    monkeypatch.setitem(mwm.SETTINGS, "small", TINY)
    monkeypatch.setattr(mwm, "PRETRAINING_UPDATES", 1)
    monkeypatch.setattr(training, "time", SimpleNamespace(perf_counter=time.process_time))


@pytest.fixture
def _untrained(monkeypatch):
    monkeypatch.setattr(mwm, "train_on_images", lambda *_: TRAINED)


@needs_gl
def test_a_row_says_what_was_measured_and_what_rendered_it_and_its_shares_add_up(monkeypatch):
    monkeypatch.setattr(mwm, "RENDERING", "fast")
    monkeypatch.setattr(mwm, "SEED_FRAMES", 20)
    monkeypatch.setitem(mwm.SETTINGS, "small", {**TINY, "sequence_sampling": "uniform"})  # needs no complete episode
    [row] = measure("cpu", [Case("vcse", "small", "float32")], threads=1, seconds=0.02)
    assert (row.device, row.bonus, row.sizes, row.precision) == ("cpu", "vcse", "small", "float32")
    assert row.rendered_by in ("egl", "osmesa")
    assert row.frames_per_s > 0
    assert sum(getattr(row, share) for share in SHARES) == pytest.approx(1)
    assert all(0 < getattr(row, share) < 1 for share in SHARES)


@pytest.mark.usefixtures("_untrained")
def test_an_update_is_its_parts_and_is_held_against_one_without_a_bonus(monkeypatch):
    # Seconds of autoencoder, world model and whole; with what was measured, the rest of so small an update is noise.
    found = iter([0.001, 0.002, 0.004, 0.001, 0.003, 0.006])

    def duration(call, device, seconds):
        call()
        return next(found)

    monkeypatch.setattr(mwm, "duration", duration)
    plain, paid = measure("cpu", [Case(bonus, "small", "float32") for bonus in ("none", "vcse")], threads=1)
    assert [getattr(plain, part) for part in PARTS] == pytest.approx([1, 2, 1])
    assert [getattr(paid, part) for part in PARTS] == pytest.approx([1, 3, 2])
    assert (plain.ms_per_update, paid.ms_per_update) == pytest.approx((4, 6))
    assert (plain.times_plain, paid.times_plain) == (1, pytest.approx(1.5))


@pytest.mark.usefixtures("_untrained")
def test_a_case_without_a_plain_one_of_its_precision_is_held_against_nothing():
    cases = [Case("none", "small", "float32"), Case("se", "small", "bfloat16")]
    _, alone = measure("cpu", cases, threads=1, seconds=0.01)
    assert math.isnan(alone.times_plain)


@pytest.mark.usefixtures("_untrained")
def test_the_share_of_the_peak_is_told_where_that_is_known(monkeypatch):
    [unknown] = measure("cpu", [Case("none", "small", "float32")], threads=1, seconds=0.01)
    assert unknown.share_of_peak is None
    monkeypatch.setitem(mwm.PEAKS, "cpu", {"float32": 0.5})
    [row] = measure("cpu", [Case("none", "small", "float32")], threads=1, seconds=0.01)
    assert row.tflop_per_update == pytest.approx(2e-12 * operations(mwm_settings("none", **TINY)).total)
    assert row.share_of_peak == pytest.approx(row.tflop_per_update / (0.5 * row.ms_per_update / 1000))


@pytest.mark.usefixtures("_untrained")
def test_the_command_prints_flat_rows_or_a_table(capsys, monkeypatch):
    monkeypatch.setattr(mwm, "CPU_CASES", (Case("none", "small", "float32"),))
    command = ["bench", "mwm", "--device", "cpu", "--seconds", "0.01", "--threads", "1"]
    assert main([*command, "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert (row["rendered_by"], row["frames_per_s"], row["share_of_peak"]) == ("egl", 1, None)
    assert main(command) == 0
    shown = capsys.readouterr()
    assert "MWM, small size, on cpu, rendered by egl" in shown.out
    assert shown.err.splitlines()[-1].startswith("none, float32: ")


@pytest.mark.parametrize("peak", [0.5, None])
def test_a_table_fits_a_terminal(peak, capsys, monkeypatch):
    from rich.console import Console

    from vcse.bench.tables import TABLES

    numbers = [4.213, 6.123, 7.712, 18.02, 1.11, 7.25, peak, 153.2, 0.4, 0.1, 0.5]
    Console(width=80).print(TABLES["mwm"]([mwm.Row("NVIDIA H200", "vcse", "full", "bfloat16", "osmesa", *numbers)]))
    last = capsys.readouterr().out.splitlines()[-1].split()
    assert last[:8] == ["vcse", "bfloat16", "4.21", "6.12", "7.71", "18", "1.11", "7.2"]
    assert last[8:] == ["–" if peak is None else "50%", "153", "40%", "10%", "50%"]


def test_a_plain_case_comes_before_those_that_are_held_against_it():
    for cases in (mwm.CPU_CASES, mwm.CUDA_CASES):
        for number, case in enumerate(cases):
            assert case._replace(bonus="none") in cases[: number + 1]


class Counted(TorchDispatchMode):
    """Counts multiplications of matrix products, convolutions and attention."""

    def __init__(self):
        super().__init__()
        self.by_kind = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out, packet = function(*args, **(kwargs or {})), function.overloadpacket
        kind = str(packet)
        if packet in flop_registry:
            self.by_kind[kind] += flop_registry[packet](*args, **(kwargs or {}), out_val=out) // 2
        elif "scaled_dot_product" in kind:
            is_backward = "backward" in kind
            queries, keys = args[1:3] if is_backward else args[:2]
            products = 4 if is_backward else 2
            self.by_kind[kind] += products * queries.numel() * keys.shape[2]
        return out


@pytest.mark.parametrize("bonus", ["none", "se", "vcse"])
def test_the_operations_of_an_update_are_those_that_are_counted(bonus):
    # Of uneven sizes, so that no part can hide in another.
    sizes = {"token_dimensions": 64, "model_dimensions": 48, "deterministic": 96, "variables": 6, "classes": 12}
    batches = {"batch_size": 3, "sequence_length": 6, "autoencoder_batch_size": 2, "autoencoder_sequence_length": 5}
    blocks = {"encoder_blocks": 2, "decoder_blocks": 3, "model_blocks": 1, "hidden_units": 80, "horizon": 4}
    config = mwm_settings(bonus, **sizes, **batches, **blocks, precision="float32", image_size=32)
    agent = MWM(MWMSpec(4), config, seed=0)
    of_autoencoder, batch = mwm._random_batch(2, 5, 32, "cpu"), mwm._random_batch(3, 6, 32, "cpu")
    found = {}
    for name, call in (
        ("autoencoder", lambda: agent._update_autoencoder(of_autoencoder)),
        ("model", lambda: agent.update_world_model(batch)),
        ("all else", lambda: agent._update(batch)),
    ):
        with Counted() as counted:
            call()
        found[name] = counted.by_kind.total()
    reckoned = operations(config)
    assert reckoned.autoencoder == pytest.approx(found["autoencoder"], rel=0.03)
    assert reckoned.model == pytest.approx(found["model"], rel=0.03)
    assert reckoned.actor_critic == pytest.approx(found["all else"] - found["model"], rel=0.03)
