"""`vcse selftest`: the estimators against entropies that are known in closed form."""

import json as json_format
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from vcse.cli.flags import check_least
from vcse.cli.option_types import DeviceName, Flag

if TYPE_CHECKING:
    import torch

HEADINGS = f"{'estimator':14}{'samples':20}{'N':>5}{'k':>3}{'expected':>9}{'mean':>8}{'bias':>8}{'spread':>8}"


@dataclass(frozen=True)
class Check:
    """One estimator on one distribution: what it should give and what it gave, in nats."""

    estimator: str
    samples: str
    n: int
    d: int
    k: int
    expected: float
    mean: float
    bias: float
    spread: float  # standard deviation over the draws
    tolerance: float  # largest |bias| that passes

    @property
    def passed(self) -> bool:
        """Whether the bias is within tolerance; a NaN is not."""
        return abs(self.bias) <= self.tolerance


def selftest(json: Flag = False, device: DeviceName = "auto", draws: int = 10, seed: int = 0) -> int:
    """Check the estimators against closed forms: print bias and spread, and fail outside the tolerance.

    A k-nearest-neighbour estimate is biased on finite samples, more in more dimensions; the tolerance of each line is
    that bias and its noise. A constant that is off by log 2 is several times larger.

    Args:
        json: Print the rows as a JSON list on standard output, and nothing else there.
        device: Where to compute; auto is the GPU if there is one.
        draws: Samples per line, of up to 2000 points each; bias and spread are over these.
        seed: Seed of the samples.
    """
    import torch

    from vcse.launch.devices import resolve_device

    check_least(draws=(draws, 2))
    chosen = resolve_device(device)
    console = Console(stderr=json)
    console.print(f"Estimates in nats, on {chosen}\n{HEADINGS}", highlight=False, soft_wrap=True)
    checks = []
    for check in run_checks(chosen, draws, torch.Generator().manual_seed(seed)):
        checks.append(check)  # and shown as soon as it is known: all of them may take a minute
        console.print(_line(check), style="" if check.passed else "bold red", highlight=False, soft_wrap=True)
    if json:
        print(json_format.dumps([asdict(check) | {"passed": check.passed} for check in checks], indent=1))
    failed = [f"{check.estimator}, {check.samples}" for check in checks if not check.passed]
    if failed:
        print(f"vcse selftest: {len(failed)} of {len(checks)} failed: {'; '.join(failed)}", file=sys.stderr)
        return 1
    print(f"vcse selftest: all {len(checks)} passed on {chosen}", file=sys.stderr)
    return 0


# N, d_S, correlation of the value with the first coordinate, k, and what the paper's lower bound comes to there: it is
# loose by 0.65 to 0.9 nats and has no closed form, so this is from a simulation in double precision.
CORRELATED = (
    (1000, 2, 0.0, 5, 2.128),
    (2000, 2, 0.0, 3, 2.138),
    (2000, 2, 0.9, 5, 1.322),
    (2000, 2, 0.9, 12, 1.278),
    (2000, 5, 0.0, 5, 6.189),
)


def run_checks(device: Literal["cpu", "cuda"], draws: int, generator: "torch.Generator") -> Iterator[Check]:
    """Return the checks one by one."""
    import torch

    from vcse.estimators import kl_entropy, ksg_conditional_entropy, state_entropy_reward, value_conditional_reward

    for d, tolerance in ((1, 0.03), (2, 0.05), (5, 0.12)):
        states = torch.randn(draws, 2000, d, generator=generator).to(device)
        yield _check("KL", f"Gaussian, {d}d", states, 5, _gaussian_entropy(d), kl_entropy(states, k=5), tolerance)
    states = 3 * torch.rand(draws, 2000, 2, generator=generator).to(device)
    yield _check("KL", "uniform, 2d", states, 5, 2 * math.log(3), kl_entropy(states, k=5), 0.06)

    for n, d, rho, k, bound in CORRELATED:
        states = torch.randn(draws, n, d, generator=generator)
        noise = torch.randn(draws, n, generator=generator)
        values = (rho * states[..., 0] + math.sqrt(1 - rho**2) * noise).to(device)
        states = states.to(device)
        expected = _gaussian_entropy(d) + 0.5 * math.log(1 - rho**2)
        tolerance = 0.07 if d == 2 else 0.12
        samples = f"Gaussian, {d}d, ρ={rho:g}"
        full = ksg_conditional_entropy(states, values, k=k)
        yield _check("KSG H(S|V)", samples, states, k, expected, full, tolerance)
        joint = ksg_conditional_entropy(states, values, k=k, nv_radius="joint")
        yield _check("KSG-1 H(S|V)", samples, states, k, expected, joint, tolerance)
        lower = ksg_conditional_entropy(states, values, k=k, lower_bound=True)
        yield _check("paper's bound", samples, states, k, bound, lower, 0.09)

    same = torch.full((2, 128, 64), 3.3, device=device)
    paid = value_conditional_reward(same, same[..., 0], k=3, reading="release-a2c")[:, 0]
    yield _check("VCSE reward", "all equal, 64d", same, 3, -0.5772157 / 64 + math.log(1e-5), paid, 1e-4)
    yield _check("SE reward", "all equal, 64d", same, 3, 0.0, state_entropy_reward(same, k=3)[:, 0], 0.0)


def _gaussian_entropy(dimensions: int) -> float:
    return dimensions / 2 * math.log(2 * math.pi * math.e)


def _check(
    estimator: str,
    samples: str,
    states: "torch.Tensor",
    k: int,
    expected: float,
    estimates: "torch.Tensor",
    tolerance: float,
) -> Check:
    mean = float(estimates.mean())
    n, d = states.shape[-2:]
    return Check(estimator, samples, n, d, k, expected, mean, mean - expected, float(estimates.std()), tolerance)


def _line(check: Check) -> str:
    numbers = f"{check.expected:9.3f}{check.mean:8.3f}{check.bias:8.3f}{check.spread:8.3f}"
    verdict = "ok" if check.passed else f"not ±{check.tolerance}"
    return f"{check.estimator:14}{check.samples:20}{check.n:5}{check.k:3}{numbers}  {verdict}"
