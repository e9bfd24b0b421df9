"""Draw the figures of docs/explanation/estimators.md: neighbours.png and counts.png, beside this file.

python docs/images/draw_estimators.py
"""

from pathlib import Path

import matplotlib as mpl
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Circle, Rectangle
from torch import Tensor

from vcse.estimators import CONDITIONAL_READINGS, count_within, joint_neighbors, kth_neighbor_distance

mpl.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
K = 4
GREY, CROWDED, RARE = "#9aa0a6", "#1f6fb2", "#c0392b"


def cloud() -> Tensor:
    """Draw points: most in one place, some elsewhere."""
    generator = torch.Generator().manual_seed(3)
    dense = 0.35 * torch.randn(60, 2, generator=generator) - torch.tensor([0.9, 0.4])
    sparse = 0.8 * torch.randn(14, 2, generator=generator) + torch.tensor([1.2, 0.6])
    return torch.cat((dense, sparse))


def draw_state_entropy(axes: Axes, points: Tensor) -> None:
    """Draw the distance to the k-th neighbour of a crowded point and of a lonely one."""
    radii = kth_neighbor_distance(points, k=K)
    axes.scatter(*points.T, s=14, color=GREY)
    for index, color in ((int(radii.argmin()), CROWDED), (int(radii[60:].argsort()[7]) + 60, RARE)):
        axes.add_patch(Circle(points[index].tolist(), float(radii[index]), fill=False, color=color, linewidth=1.6))
        axes.scatter(*points[index], s=40, color=color, zorder=3)
    axes.set(title=f"state entropy: the circle reaches neighbour {K}", xlabel="first coordinate of the state")
    axes.set_ylabel("second coordinate")


def draw_conditional(axes: Axes, states: Tensor, values: Tensor, index: int, nv_radius: str) -> None:
    """Draw the square that reaches the k-th joint neighbour, and the strip in which values are counted."""
    joint = joint_neighbors(states[:, None], values, k=K)
    radius = float(joint.radius[index])
    reach = radius if nv_radius == "joint" else float(joint.value_distance[index])
    state, value = float(states[index]), float(values[index])
    near = (values - value).abs() < reach
    count = int(count_within(values[:, None], torch.full_like(values, reach))[index])
    axes.axhspan(value - reach, value + reach, color="#f6d8a8", alpha=0.6, zorder=0)
    axes.scatter(states[~near], values[~near], s=14, color=GREY)
    axes.scatter(states[near], values[near], s=14, color="#d98200")
    axes.add_patch(
        Rectangle((state - radius, value - radius), 2 * radius, 2 * radius, fill=False, color=RARE, linewidth=1.6)
    )
    axes.scatter(state, value, s=40, color=RARE, zorder=3)
    axes.set(xlabel="state (one coordinate)", ylabel="value, standardised")
    axes.set_title(f"n_v = {count}, counted within " + ("ε/2" if nv_radius == "joint" else "ε_v/2"))


def states_and_values() -> tuple[Tensor, Tensor]:
    """Draw states whose value is known but for some noise."""
    generator = torch.Generator().manual_seed(5)
    states = torch.randn(90, generator=generator)
    values = 0.8 * states + 0.6 * torch.randn(90, generator=generator)
    return states, (values - values.mean()) / values.std(correction=0)


def save(figure: plt.Figure, name: str) -> None:
    """Write a figure beside this file."""
    figure.savefig(HERE / name, dpi=110)
    plt.close(figure)


def main() -> None:
    """Write both figures."""
    states, values = states_and_values()
    joint = joint_neighbors(states[:, None], values, k=K)
    by_state = (joint.value_distance < 0.4 * joint.radius) & (joint.radius > 0.3)  # where ε and ε_v differ
    shown = int(torch.where(by_state, values.abs(), torch.inf).argmin())
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
    draw_state_entropy(left, cloud())
    left.set_aspect("equal")
    draw_conditional(right, states, values, shown, "joint")
    right.set_aspect("equal")
    right.set_title(f"given the value: the square reaches neighbour {K}")
    save(figure, "neighbours.png")
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
    for each, name in zip(axes, ("clean", "paper"), strict=True):
        draw_conditional(each, states, values, shown, CONDITIONAL_READINGS[name].nv_radius)
        each.set_aspect("equal")
        each.set_title(f"{name}: {each.get_title()}")
    save(figure, "counts.png")


if __name__ == "__main__":
    main()
