"""Films of a policy: the `minigrid` package steps and draws the task, a caption says what is seen."""

import importlib
import importlib.util
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8

from vcse.agents.a2c import A2C
from vcse.envs.crossing import GOAL, MAPS, TASK, CrossingMap, TableCrossing
from vcse.envs.minigrid import ReferenceMiniGrid, map_planes
from vcse.envs.tasks import make_environments
from vcse.runs.checkpoint import write_atomically
from vcse.runs.config import RunConfig
from vcse.runs.load import load_policies

if TYPE_CHECKING:
    from PIL.Image import Image

INSTALL = "pip install 'vcse[report]'"
INSTALL_MP4 = "pip install imageio-ffmpeg"
MAP_PIXELS = 384  # about as wide as a map is drawn
CAPTION_PIXELS = 62
LAST_PICTURE_S = 1.2  # how long the end of an episode stays
COLOURS = {"paper": "#16191f", "text": "#e8eaee", "faint": "#9aa3b0"}
OUTCOME_COLOURS = {"goal": "#5fd08a", "failed": "#ff9a5c", "out of time": "#f2c94c"}
Outcome = Literal["", "goal", "failed", "out of time"]


class Moment(NamedTuple):
    """What is seen at one step of an episode."""

    picture: UInt8[np.ndarray, "h w 3"]
    episode: int  # the first is 1
    step: int  # steps taken so far
    return_so_far: float
    outcome: Outcome  # empty while the episode goes on


def watch_run(
    run: Path,
    out: Path,
    *,
    episodes: int = 3,
    sampled: bool = True,
    seed: int = 0,
    frames_per_second: int = 8,
    device: str = "cpu",
) -> list[Moment]:
    """Film the newest policy of a run, and give how each episode ended.

    Args:
        run: The run's directory.
        out: The film: a file that ends in .gif or .mp4.
        episodes: How many.
        sampled: Draw the actions from the policy, as in training, instead of taking the likeliest.
        seed: Of the layouts and of the draws; it is no run's seed.
        frames_per_second: Steps that are shown in a second.
        device: Where the network lives.
    """
    for name, number in (("episodes", episodes), ("frames_per_second", frames_per_second)):
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    check_film(out)
    (policies,) = load_policies([run], device)
    config, agent = policies.configs[0], policies.agent
    if not isinstance(agent, A2C):
        raise ValueError(f"{run} is of {config.task}: films are drawn of MiniGrid tasks alone so far")
    moments = list(play(agent, config, episodes=episodes, sampled=sampled, seed=seed))
    write_film(out, [caption(moment, config, episodes) for moment in moments], moments, frames_per_second)
    return [moment for moment in moments if moment.outcome]


def play(agent: A2C, config: RunConfig, *, episodes: int, sampled: bool, seed: int) -> Iterator[Moment]:
    """Play episodes with an agent's first learner, and draw every step of them."""
    world, full, fixed_map = _world(config.task, seed)
    draws = np.random.default_rng(seed)
    for episode in range(1, episodes + 1):
        # Only the first reset is seeded: later layouts follow from it.
        shown = world.reset(seed=seed if episode == 1 else None)[0]
        if fixed_map is not None:
            _build(world, fixed_map)
            shown = world.gen_obs()
        step, return_so_far = 0, 0.0
        outcome: Outcome = ""
        yield Moment(world.render(), episode, step, return_so_far, outcome)
        while not outcome:
            observation = torch.from_numpy(map_planes(world) if full else shown["image"])[None, None].to(agent.device)
            noise = torch.from_numpy(draws.random((1, 1), dtype=np.float32)).to(agent.device) if sampled else None
            action = int(agent.act(observation, noise, slice(0, 1)))
            shown, reward, terminated, truncated, _ = world.step(action)
            step, return_so_far = step + 1, return_so_far + float(reward)
            outcome = _outcome(terminated, truncated, return_so_far)
            yield Moment(world.render(), episode, step, return_so_far, outcome)
    world.close()


def caption(moment: Moment, config: RunConfig, episodes: int) -> "Image":
    """Put a line above the picture that says which policy this is, and one with the episode, step and return."""
    from PIL import Image, ImageDraw

    drawn = Image.fromarray(moment.picture)
    # Even sides, which films need.
    canvas = Image.new("RGB", (drawn.width + drawn.width % 2, drawn.height + CAPTION_PIXELS + drawn.height % 2))
    canvas.paste(COLOURS["paper"], (0, 0, *canvas.size))
    canvas.paste(drawn, (0, CAPTION_PIXELS))
    pen = ImageDraw.Draw(canvas)
    progress = f"episode {moment.episode} of {episodes}   step {moment.step}   return {moment.return_so_far:.2f}"
    whose = f"{config.method}, seed {config.seed}"
    _write_line(pen, 20, config.task, whose, COLOURS["text"], COLOURS["text"])
    ending = OUTCOME_COLOURS.get(moment.outcome, COLOURS["faint"])
    _write_line(pen, 43, progress, moment.outcome, COLOURS["faint"], ending)
    return canvas


def check_film(path: Path) -> None:
    """Refuse a film that cannot be written, before anything is played."""
    if path.suffix not in (".gif", ".mp4"):
        raise ValueError(f"a film is a .gif or an .mp4, got {path.name!r}")
    if importlib.util.find_spec("PIL") is None:
        raise RuntimeError(f"Pillow, which draws films, is not installed: {INSTALL}")
    if path.suffix == ".mp4" and importlib.util.find_spec("imageio_ffmpeg") is None:
        raise RuntimeError(f"imageio-ffmpeg, which writes .mp4, is not installed: {INSTALL_MP4}, or take a .gif")


def write_film(path: Path, images: Sequence["Image"], moments: Sequence[Moment], frames_per_second: int) -> None:
    """Write images as a film, in which the end of an episode stays for a moment."""
    if path.suffix == ".mp4":
        _write_mp4(path, images, moments, frames_per_second)
        return
    from PIL import Image

    # One palette for all, from a few pictures of which some are ends: only those show how an episode came out.
    ends = [image for image, moment in zip(images, moments, strict=True) if moment.outcome]
    few = [*ends[:4], *images[:: max(1, len(images) // 12)]]
    sample = Image.new("RGB", (few[0].width, sum(each.height for each in few)))
    for place, each in enumerate(few):
        sample.paste(each, (0, place * each.height))
    palette = sample.quantize(128)
    pictures = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    shown_ms = [1000 * (LAST_PICTURE_S if moment.outcome else 1 / frames_per_second) for moment in moments]
    content = io.BytesIO()
    pictures[0].save(
        content,
        "GIF",
        save_all=True,
        append_images=pictures[1:],
        duration=[round(each) for each in shown_ms],
        loop=0,
        optimize=True,
    )
    write_atomically(path, content.getvalue())


def _write_mp4(path: Path, images: Sequence["Image"], moments: Sequence[Moment], frames_per_second: int) -> None:
    ffmpeg: Any = importlib.import_module("imageio_ffmpeg")
    path.parent.mkdir(parents=True, exist_ok=True)
    film = ffmpeg.write_frames(str(path), images[0].size, fps=frames_per_second, macro_block_size=2)
    film.send(None)
    for image, moment in zip(images, moments, strict=True):
        for _ in range(max(1, round(LAST_PICTURE_S * frames_per_second)) if moment.outcome else 1):
            film.send(image.tobytes())
    film.close()


def _world(task: str, seed: int) -> tuple[Any, bool, CrossingMap | None]:
    """Make the world that is drawn, and say whether the policy sees all of it and on which map alone it stays."""
    family, _, name = task.partition("/")
    fixed_map: CrossingMap | None = None
    if family == "minigrid-table":
        table = make_environments(task, [seed])
        if isinstance(table, TableCrossing) and table.fixed_map is not None:
            fixed_map = MAPS[table.fixed_map]
        name = TASK
    full = family == "minigrid-full"
    world = ReferenceMiniGrid(name, [seed], full=full, pictures=True).worlds[0]
    world.highlight = not full  # what the policy sees is drawn brighter
    world.tile_size = max(8, MAP_PIXELS // max(world.width, world.height))
    return world, full, fixed_map


def _build(world: Any, fixed_map: CrossingMap) -> None:
    """Put the wall of one map in the place of the one that was drawn by chance."""
    from minigrid.core.world_object import Goal, Wall

    for x in range(world.width):
        for y in range(world.height):
            world.grid.set(x, y, Wall() if fixed_map.is_wall(x, y) else None)
    world.grid.set(*GOAL, Goal())


def _outcome(terminated: bool, truncated: bool, return_so_far: float) -> Outcome:
    if return_so_far > 0:
        return "goal"
    if terminated:
        return "failed"
    return "out of time" if truncated else ""


def _write_line(pen: Any, y: int, left: str, right: str, left_colour: str, right_colour: str) -> None:
    """Write at both ends of a line, as large as there is room."""
    from PIL import ImageFont

    margin, width = 12, pen.im.size[0]
    for size in range(16, 8, -1):
        font = ImageFont.load_default(size)
        if pen.textlength(f"{left}   {right}", font) <= width - 2 * margin:
            break
    pen.text((margin, y), left, left_colour, font, anchor="lm")
    pen.text((width - margin, y), right, right_colour, font, anchor="rm")
