"""Films of what a world model imagines: beside what happened, from a few images that it observes and the actions."""

import io
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, UInt8

from vcse.agents import agent_entry, agent_names, read_config
from vcse.agents.entry import Policies
from vcse.envs.tasks import make_environments
from vcse.play.load import load_policies
from vcse.play.video import COLOURS, check_film, write_film, write_line
from vcse.runs.checkpoint import write_atomically
from vcse.runs.config import RunConfig
from vcse.streams import episode_seeds

if TYPE_CHECKING:
    from PIL.Image import Image

CONTEXT, HORIZON = 5, 45  # images that the model observes, and that it predicts after them
MOST_STARTS = 5  # in an episode
SHEET_EVERY = 5  # steps from one column of a contact sheet to the next
PANEL_PIXELS, TILE_PIXELS = 256, 112  # about the side of an image in a film and on a contact sheet
SHEET_WIDTH = 640  # at least, so that its title has room
MARGIN, GAP = 12, 10
TITLES = ("what happened", "what the model imagines", "difference")
ROWS = ("happened", "imagined", "difference")
OBSERVED_COLOUR, IMAGINED_COLOUR = "#4da3e8", "#f2702a"
SHEET_COLOURS = {"paper": "#ffffff", "text": "#1d2129", "faint": "#626b78"}
# From no difference to half of the range of a value, and more.
DARK_DIFFERENCES = ("#0e1014", "#7a2f10", "#e2500f", "#ffe3b8")
LIGHT_DIFFERENCES = ("#f3f2f0", "#fbc58f", "#e2500f", "#5b1606")
LARGEST_DIFFERENCE = 0.5


class Played(NamedTuple):
    """An episode as its policy observed it."""

    images: UInt8[np.ndarray, "t 3 s s"]
    actions: Float[np.ndarray, "t a"]  # that led to each image; zeros to the first


class Imagination(NamedTuple):
    """What happened from one step of an episode on, and what a world model imagines."""

    episode: int  # the first is 1
    start: int  # steps of the episode before the first image
    context: int  # images that the model observed
    happened: UInt8[np.ndarray, "t 3 s s"]
    imagined: UInt8[np.ndarray, "t 3 s s"]

    @property
    def difference(self) -> Float[np.ndarray, "t s s"]:
        """Absolute difference of each pixel, averaged over colours, as a share of the largest that there is."""
        apart = np.abs(self.happened.astype(np.int16) - self.imagined)
        shares: Float[np.ndarray, "t s s"] = apart.mean(1, dtype=np.float32) / 255
        return shares

    @property
    def prediction_error(self) -> float:
        """Mean difference of the images that were predicted."""
        return float(self.difference[self.context :].mean())


def imagine_run(
    run: Path,
    out: Path,
    *,
    episodes: int | None = None,
    sampled: bool | None = None,
    seed: int = 0,
    frames_per_second: int | None = None,
    device: str = "cpu",
) -> list[Imagination]:
    """Film what the world model of a run imagines, with a contact sheet (.png) beside the film, and return all of it.

    Args:
        run: The run's directory.
        out: The film: a file that ends in .gif or .mp4.
        episodes: How many are played; as is the agent's habit if None, and likewise below.
        sampled: Sample the actions from the policy, as in training, instead of taking the greedy ones.
        seed: Of the episodes and of the samples; it is no run's seed.
        frames_per_second: Images that are shown in a second.
        device: Where the networks live.
    """
    for name, number in (("episodes", episodes), ("frames_per_second", frames_per_second)):
        if number is not None and number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    check_film(out)
    _check_imagines(read_config(run).agent)
    (policies,) = load_policies([run], device)
    config = policies.configs[0]
    habit = agent_entry(config.agent).film
    episodes = habit.episodes if episodes is None else episodes
    sampled = habit.sampled if sampled is None else sampled
    played = observed_episodes(policies, episodes=episodes, sampled=sampled, seed=seed)
    found = [each for number, seen in enumerate(played, start=1) for each in imagine(policies, seen, episode=number)]
    images = [image for each in found for image in film_images(each, config, episodes)]
    ends = [place == len(each.happened) - 1 for each in found for place in range(len(each.happened))]
    write_film(out, images, ends, frames_per_second or habit.frames_per_second)
    sheet = io.BytesIO()
    contact_sheet(found, config).save(sheet, "PNG")
    write_atomically(out.with_suffix(".png"), sheet.getvalue())
    return found


def observed_episodes(policies: Policies, *, episodes: int, sampled: bool, seed: int) -> Iterator[Played]:
    """Play episodes with the first policy in an environment of its task, and return what it observed.

    Args:
        policies: Of which the first plays.
        episodes: How many.
        sampled: Sample the actions from the policy instead of taking the greedy ones.
        seed: Of the episodes and of the samples.
    """
    config = policies.configs[0]
    entry = agent_entry(config.agent)
    generator = np.random.default_rng(seed)
    with closing(make_environments([config.task], entry.making(config))) as world:
        for _ in range(episodes):
            image = world.reset(episode_seeds(generator, 1)).copy()
            images, actions = [image], []
            stack = deque([image] * entry.stacked_images, maxlen=entry.stacked_images)
            has_ended, state = False, None
            while not has_ended:
                observations = np.concatenate(stack, axis=1)
                action, state = entry.player.act(policies, observations, generator if sampled else None, state)
                world.send(action)
                step = world.receive()
                image, has_ended = step.next_observations.copy(), bool(step.ended[0])
                images.append(image)
                stack.append(image)
                actions.append(action.astype(np.float32))
            yield Played(np.concatenate(images), np.concatenate([np.zeros_like(actions[0]), *actions]))


def starting_steps(images: int, length: int) -> list[int]:
    """Return the steps at which parts of an episode begin: one after the other, or spread where they are too many."""
    parts = max(1, images // length)
    taken = min(parts, MOST_STARTS)
    return [part * parts // taken * length for part in range(taken)]


def imagine(
    policies: Policies, played: Played, *, episode: int = 1, context: int = CONTEXT, horizon: int = HORIZON
) -> list[Imagination]:
    """Return parts of an episode as the world model of the first policy imagines them.

    Args:
        policies: Of an agent that imagines.
        played: The episode.
        episode: Its number, from 1 on.
        context: Images that the model observes at the beginning of each part.
        horizon: Images that it predicts after them; fewer in an episode that is shorter.
    """
    agent = policies.configs[0].agent
    model = _check_imagines(agent)
    if len(played.images) <= context:
        raise ValueError(f"an episode must be longer than the context of {context}, got {len(played.images)} images")
    found = []
    for start in starting_steps(len(played.images), context + horizon):
        part = slice(start, start + context + horizon)
        happened, actions = played.images[part], played.actions[part].copy()
        actions[0] = 0  # which led there from what the model does not see
        imagined = model(policies, happened, actions, context)
        if imagined.shape != happened.shape or imagined.dtype != happened.dtype:
            raise ValueError(
                f"{agent} must imagine {happened.dtype} images of shape {happened.shape}, "
                f"got {imagined.dtype} of shape {imagined.shape}"
            )
        found.append(Imagination(episode, start, context, happened, imagined))
    return found


def film_images(imagination: Imagination, config: RunConfig, episodes: int) -> Iterator["Image"]:
    """Compose the images of a film: what happened, what the model imagines, and the difference, with a caption.

    The colour of a border says whether the model observes what happened, or predicts it from the actions alone.

    Args:
        imagination: What is shown.
        config: Of the run.
        episodes: How many are shown in the film.
    """
    from PIL import Image, ImageDraw

    count, _, side, _ = imagination.happened.shape
    side *= max(1, round(PANEL_PIXELS / side))
    columns = [MARGIN + place * (side + GAP) for place in range(3)]
    width, top = columns[-1] + side + MARGIN, 92
    heat = _coloured(imagination.difference, DARK_DIFFERENCES)
    for step in range(count):
        canvas = Image.new("RGB", (width + width % 2, top + side + 34 + side % 2), COLOURS["paper"])
        pen = ImageDraw.Draw(canvas)
        is_observed = step < imagination.context
        colour = OBSERVED_COLOUR if is_observed else IMAGINED_COLOUR
        shown = (imagination.happened[step], imagination.imagined[step], heat[step])
        for left, image in zip(columns, shown, strict=True):
            canvas.paste(_enlarged(image, side), (left, top))
        left = columns[0] if is_observed else columns[1]
        pen.rectangle((left - 4, top - 4, left + side + 3, top + side + 3), outline=colour, width=3)
        _write_caption(pen, imagination, config, step, episodes)
        apart = f"{100 * imagination.difference[step].mean():.1f} %"
        for left, title in zip(columns, (*TITLES[:2], f"{TITLES[2]} {apart}"), strict=True):
            pen.text((left + side / 2, top - 17), title, COLOURS["text"], _font(15), anchor="mm")
        _mark_progress(pen, imagination, step, (MARGIN, top + side + 14, columns[-1] + side, top + side + 22))
        yield canvas


def contact_sheet(imaginations: Sequence[Imagination], config: RunConfig) -> "Image":
    """Compose a sheet with a column for every few steps of a part, and three rows for each part.

    The rows are what happened, what the model imagines, and the difference.

    Args:
        imaginations: What is shown, from the top to the bottom.
        config: Of the run.
    """
    from PIL import Image, ImageDraw

    first = imaginations[0]
    side = first.happened.shape[-1]
    side *= max(1, round(TILE_PIXELS / side))
    longest = max(len(each.happened) for each in imaginations)
    steps = sorted({*range(0, longest, SHEET_EVERY), longest - 1})
    label, head, gap = 108, 116, 3
    lefts = [label + place * (side + gap) + (GAP if step >= first.context else 0) for place, step in enumerate(steps)]
    block = 3 * (side + gap) + 18
    size = max(SHEET_WIDTH, lefts[-1] + side + MARGIN), head + block * len(imaginations)
    canvas = Image.new("RGB", size, SHEET_COLOURS["paper"])
    pen = ImageDraw.Draw(canvas)
    pen.text((MARGIN, 24), config.task, SHEET_COLOURS["text"], _font(22), anchor="lm")
    whose = f"{config.method}, seed {config.seed}"
    pen.text((size[0] - MARGIN, 24), whose, SHEET_COLOURS["text"], _font(22), anchor="rm")
    observed = sum(step < first.context for step in steps)
    for place, doing, colour in ((0, "sees", OBSERVED_COLOUR), (observed, "imagines", IMAGINED_COLOUR)):
        pen.text((lefts[place], 58), doing, colour, _font(18), anchor="lm")
    for step, left in zip(steps, lefts, strict=True):
        colour = OBSERVED_COLOUR if step < first.context else IMAGINED_COLOUR
        pen.text((left + side / 2, 88), str(step), SHEET_COLOURS["text"], _font(16), anchor="mm")
        pen.rectangle((left, 102, left + side - 1, 106), fill=colour)
    pen.text((MARGIN, 88), "step", SHEET_COLOURS["faint"], _font(16), anchor="lm")
    for number, each in enumerate(imaginations):
        top = head + number * block
        _write_labels(pen, each, top, side + gap)
        rows = (each.happened, each.imagined, _coloured(each.difference, LIGHT_DIFFERENCES))
        for row, images in enumerate(rows):
            for step, left in zip(steps, lefts, strict=True):
                if step < len(images):
                    canvas.paste(_enlarged(images[step], side), (left, top + row * (side + gap)))
    return canvas


def _check_imagines(agent: str) -> Any:
    """Return how an agent imagines; one without a world model is refused."""
    model = agent_entry(agent).imagine
    if model is None:
        able = ", ".join(name for name in agent_names() if agent_entry(name).imagine) or "none"
        raise ValueError(f"{agent} has no world model that imagines; agents that have one: {able}")
    return model


def _write_caption(pen: Any, imagination: Imagination, config: RunConfig, step: int, episodes: int) -> None:
    """Write which policy this is, where in the episode it is, and whether its model observes or imagines."""
    observed, count = imagination.context, len(imagination.happened)
    is_observed = step < observed
    number, of = (step + 1, observed) if is_observed else (step + 1 - observed, count - observed)
    doing = f"{'sees' if is_observed else 'imagines'} {number} of {of}"
    write_line(pen, 20, config.task, f"{config.method}, seed {config.seed}", COLOURS["text"], COLOURS["text"])
    where = f"episode {imagination.episode} of {episodes}   step {imagination.start + step}"
    write_line(pen, 43, where, doing, COLOURS["faint"], OBSERVED_COLOUR if is_observed else IMAGINED_COLOUR)


def _mark_progress(pen: Any, imagination: Imagination, step: int, box: tuple[int, int, int, int]) -> None:
    """Mark how far the part is: a cell for every step, those to come dim."""
    left, top, right, bottom = box
    edges = np.linspace(left, right + 1, len(imagination.happened) + 1).round().astype(int).tolist()
    for place, (begin, end) in enumerate(pairwise(edges)):
        colour = OBSERVED_COLOUR if place < imagination.context else IMAGINED_COLOUR
        pen.rectangle((begin, top, end - 2, bottom), fill=colour if place <= step else "#30353e")


def _write_labels(pen: Any, imagination: Imagination, top: int, height: int) -> None:
    """Write at the left of three rows what they show, and of which part of which episode."""
    for row, name in enumerate(ROWS):
        middle = top + row * height + height / 2
        pen.text((MARGIN, middle), name, SHEET_COLOURS["text"], _font(16), anchor="lm")
    where = f"episode {imagination.episode}", f"from step {imagination.start}"
    for line, text in enumerate(where):
        pen.text((MARGIN, top + 12 + 18 * line), text, SHEET_COLOURS["faint"], _font(13), anchor="lm")


def _coloured(shares: Float[np.ndarray, "t s s"], colours: Sequence[str]) -> UInt8[np.ndarray, "t 3 s s"]:
    """Return differences as colours."""
    from PIL import ImageColor

    stops = np.array([ImageColor.getrgb(colour) for colour in colours], dtype=np.float32)
    places = np.linspace(0, LARGEST_DIFFERENCE, len(stops))
    channels = [np.interp(shares, places, stops[:, channel]) for channel in range(3)]
    return np.stack(channels, axis=1).round().astype(np.uint8)


def _enlarged(image: UInt8[np.ndarray, "3 s s"], side: int) -> "Image":
    """Return an image of whole pixels."""
    from PIL import Image

    return Image.fromarray(image.transpose(1, 2, 0)).resize((side, side), Image.Resampling.NEAREST)


def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)
