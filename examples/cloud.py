"""The bonus at work on a made-up cloud of states and values, as an image.

Three rooms of equal size lead to a goal; the nearer, the higher the value. The agent has begun to prefer high values:
most of its states lie in the last room, few in the first. State entropy pays where few states are, and that is the
first room, wherever in it: the agent is paid to turn back. Value-conditional state entropy pays where few states *of
the same value* are: the seldom visited corners of every room, and no room more than another.

State entropy is drawn in its matched form (`MatchedStateEntropy`), which differs from the other in the value alone.

    python examples/cloud.py --out out/cloud
"""

from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import torch
import tyro
from torch import Tensor

from vcse.bonuses import BonusOutput, MatchedStateEntropy, ValueConditionalStateEntropy

mpl.use("Agg")
import matplotlib.pyplot as plt
import matplotlib.ticker
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

ROOMS = ("low value", "middle", "high value")
SHARE_OF_VISITS = (0.06, 0.22, 0.72)
ROOM_WIDTH = 1.15  # each room is a unit square; the rest is wall


@dataclass(frozen=True)
class Args:
    """Draw where two bonuses pay, on a made-up cloud of states and values."""

    out: Path = Path("out/cloud")
    """Folder for cloud.png."""
    states: int = 900
    """How many states the agent has visited."""
    k: int = 12
    """Which neighbour the bonuses look at."""
    seed: int = 0
    """Seed of the cloud."""


def main(args: Args) -> None:
    """Make the cloud, compute both bonuses with this library, draw them."""
    if args.states < 30:
        raise SystemExit(f"--states must be at least 30, got {args.states}")
    states, values, rooms = make_cloud(args.states, torch.Generator().manual_seed(args.seed))
    outputs = {
        "state entropy (matched)": MatchedStateEntropy(k=args.k, reading="clean")(states),
        "value-conditional state entropy": ValueConditionalStateEntropy(k=args.k, reading="clean")(
            states, values=values
        ),
    }
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "cloud.png"
    draw(states, values, rooms, outputs, path)
    print("share of each room's states that is among the best-paid tenth of all:")
    for name, output in outputs.items():
        shares = zip(ROOMS, well_paid_shares(rooms, output), strict=True)
        print(f"  {name:32}" + "   ".join(f"{room} {share:4.0%}" for room, share in shares))
    print(f"wrote {path}")


def make_cloud(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Draw states that keep to the middle of each room, their values, and which room each is in."""
    rooms = torch.multinomial(torch.tensor(SHARE_OF_VISITS), count, replacement=True, generator=generator)
    centre = torch.tensor([0.5, 0.5])
    inside = (centre + 0.2 * torch.randn(count, 2, generator=generator)).clamp(0.01, 0.99)
    states = inside + torch.stack((rooms * ROOM_WIDTH, torch.zeros(count)), -1)
    return states, 0.2 + 0.3 * rooms + 0.05 * inside[:, 0], rooms


def well_paid_shares(rooms: Tensor, output: BonusOutput) -> list[float]:
    """Return for each room which share of its states is among the best-paid tenth of all."""
    well_paid = torch.zeros(len(rooms))
    well_paid[output.reward.topk(len(rooms) // 10).indices] = 1
    return [float(well_paid[rooms == room].mean()) for room in range(len(ROOMS))]


def draw(states: Tensor, values: Tensor, rooms: Tensor, outputs: dict[str, BonusOutput], path: Path) -> None:
    """Draw the cloud, who is among the best paid, and how that is spread over the rooms."""
    figure, axes = plt.subplots(2, 2, figsize=(12, 4.8), layout="constrained")
    cloud, bars = axes[0]
    dots = _scatter(cloud, states, values, "viridis")
    cloud.set_title("the states that were visited, by value")
    figure.colorbar(dots, ax=cloud, label="value", shrink=0.7)
    places = torch.arange(len(ROOMS))
    for side, color, (name, output) in zip((-0.2, 0.2), ("#9a9a9a", "#c0392b"), outputs.items(), strict=True):
        bars.bar(places + side, well_paid_shares(rooms, output), 0.38, color=color, label=name)
    bars.axhline(0.1, color="black", linewidth=0.9, linestyle=":", label="paid alike")
    bars.set_xticks(places, ROOMS)
    bars.set_ylim(0, 1)
    bars.yaxis.set_major_formatter(mpl.ticker.PercentFormatter(1))
    bars.set_title("of each room, among the best-paid tenth")
    bars.legend(frameon=False, fontsize=9)
    bars.spines[["top", "right"]].set_visible(False)
    for axis, (name, output) in zip(axes[1], outputs.items(), strict=True):
        rank = output.reward.argsort().argsort() / (len(rooms) - 1)
        dots = _scatter(axis, states, rank, "magma_r")
        axis.set_title(f"where {name} pays")
        figure.colorbar(dots, ax=axis, label="rank of the bonus", shrink=0.7)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _scatter(axis: Axes, states: Tensor, colors: Tensor, palette: str) -> mpl.collections.PathCollection:
    for room in range(len(ROOMS)):
        axis.add_patch(Rectangle((room * ROOM_WIDTH, 0), 1, 1, fill=False, color="#888888", linewidth=1))
    axis.plot((len(ROOMS) - 1) * ROOM_WIDTH + 0.93, 0.93, marker="*", markersize=12, color="gold", zorder=3)
    axis.set_aspect("equal")
    axis.axis("off")
    return axis.scatter(states[:, 0], states[:, 1], c=colors, cmap=palette, s=9, linewidths=0)


if __name__ == "__main__":
    main(tyro.cli(Args))
