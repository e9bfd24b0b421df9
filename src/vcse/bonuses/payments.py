"""Warnings about bonuses that reward the wrong thing, each issued once and with the remedy in its text."""

import warnings

import torch
from torch import Tensor

from vcse.bonuses.base import BonusOutput

MOST_ZERO_RADII = 0.95  # share of a batch
LEAST_DECIDED = 0.01  # share of neighbours that the value decides
ALL_COUNTED = 0.9  # of the other states: n_v no longer tells values apart
NEGATIVE_SHARE = 0.5  # of the mean size of the task's rewards
LEAST_MEAN = 1e-3  # of the mean size of the bonus: what is left of a mean that was taken off is rounding
WARM_UP_BATCHES = 3  # that must look alike, so that one odd batch is no alarm


class BonusWarning(UserWarning):
    """A bonus that is 0 throughout, rewards the end of episodes, or does not depend on the value."""


class PaymentMonitor:
    """Monitors the rewards of a bonus, and warns once about each problem.

    Args:
        beta: The weight of the bonus.

    Example:
        >>> import torch
        >>> from vcse.bonuses import MatchedStateEntropy, PaymentMonitor
        >>> bonus, monitor = MatchedStateEntropy(k=3, reading="clean", log_offset=1e-5), PaymentMonitor(beta=0.005)
        >>> output = bonus(torch.zeros(32, 2))
        >>> sorted(monitor.findings(output, rewards=torch.zeros(32)))
        ['pays for ending episodes', 'radii are zero']
    """

    def __init__(self, *, beta: float) -> None:
        self.beta = beta
        self._seen: dict[str, int] = {}
        self._rewards, self._batches = 0.0, 0  # sum of mean sizes

    def __call__(self, output: BonusOutput, *, rewards: Tensor | None = None) -> None:
        """Check one batch, and warn of what three in a row have in common. Waits for the device on CUDA.

        Args:
            output: What the bonus returned.
            rewards: The task's rewards of the same transitions, or of all that are known.
        """
        found = self.findings(output, rewards=rewards)
        for name in [*self._seen]:
            if name not in found and self._seen[name] < WARM_UP_BATCHES:
                del self._seen[name]
        for name, text in found.items():
            self._seen[name] = self._seen.get(name, 0) + 1
            if self._seen[name] == WARM_UP_BATCHES:
                warnings.warn(text, BonusWarning, stacklevel=3)

    @torch.no_grad()
    def findings(self, output: BonusOutput, *, rewards: Tensor | None = None) -> dict[str, str]:
        """Return the problems of a batch: their names, and texts with the remedy."""
        found = {}
        if rewards is not None and rewards.numel() > 0:
            self._rewards += rewards.float().abs().mean().item()
            self._batches += 1
        if output.radius is not None:
            zero = (output.radius == 0).float().mean().item()
            if zero > MOST_ZERO_RADII:
                found["radii are zero"] = (
                    f"{zero:.0%} of the states have their k-th neighbour at distance 0: they are duplicates, and the "
                    "bonus does not tell them apart. Take a larger k or batch, or features that differ more; "
                    "where a duplicate earns log(1e-5), take log_offset=1.0 too"
                )
        mean, size = (self.beta * each.float().mean().item() for each in (output.reward, output.reward.abs()))
        usual = self._rewards / max(self._batches, 1)
        if rewards is not None and -mean > max(NEGATIVE_SHARE * usual, LEAST_MEAN * abs(size)):
            found["pays for ending episodes"] = (
                f"the bonus pays {mean:.3g} a step on average, where the task's rewards are of mean size {usual:.3g}: "
                "an agent that ends its episodes early is better off. Take scaling='standardized' (or 'centered'), or "
                "the default, ValueConditionalStateEntropy(), whose reading is recommended"
            )
        decided = _decided_by_value(output)
        if decided is not None and decided < LEAST_DECIDED:
            found["the value decides nothing"] = (
                f"the value decides {decided:.1%} of the distances to the k-th neighbour: features are so far apart "
                "(a mean radius of "
                f"{output.radius.float().mean().item() if output.radius is not None else 0:.3g}, where standardised "
                "values span about 6) that the bonus is plain state entropy. Scale the features down, or take fewer "
                "dimensions of them"
            )
        return found


def _decided_by_value(output: BonusOutput) -> float | None:
    """Return the share of non-zero radii that are distances in value.

    None if there is no value or no radius, or if n_v still differs between values: states of which few are distinct may
    have neighbours that are far in features only, and are not too far apart for the value to count.
    """
    if output.radius is None or output.value_distance is None or output.values is None:
        return None
    apart = output.radius > 0
    if not apart.any() or not (output.values.amax(-1) > output.values.amin(-1)).any():
        return None
    if output.value_count is not None:
        counted = output.value_count.float()[apart].mean() / (output.value_count.shape[-1] - 1)
        if counted < ALL_COUNTED:
            return None
    return (output.value_distance == output.radius)[apart].float().mean().item()
