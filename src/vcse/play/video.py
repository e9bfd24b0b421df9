"""Films of an episode: images with a caption that says what is seen, written as .gif or .mp4."""

import importlib
import importlib.util
import io
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcse.envs.moments import Moment
from vcse.extras import install
from vcse.runs.checkpoint import replacing, write_atomically
from vcse.runs.config import RunConfig

if TYPE_CHECKING:
    from PIL.Image import Image

INSTALL_MP4 = "pip install imageio-ffmpeg"
CAPTION_PIXELS = 62
LAST_IMAGE_S = 1.2  # how long the end of an episode stays
COLOURS = {"paper": "#16191f", "text": "#e8eaee", "faint": "#9aa3b0"}
OUTCOME_COLOURS = {"goal": "#5fd08a", "failed": "#ff9a5c", "out of time": "#f2c94c", "over": COLOURS["text"]}


def caption(moment: Moment, config: RunConfig, episodes: int) -> "Image":
    """Put a line above the image that says which policy this is, and one with the episode, step and return."""
    from PIL import Image, ImageDraw

    drawn = Image.fromarray(moment.image)
    # Even sides, which films need.
    canvas = Image.new("RGB", (drawn.width + drawn.width % 2, drawn.height + CAPTION_PIXELS + drawn.height % 2))
    canvas.paste(COLOURS["paper"], (0, 0, *canvas.size))
    canvas.paste(drawn, (0, CAPTION_PIXELS))
    pen = ImageDraw.Draw(canvas)
    progress = f"episode {moment.episode} of {episodes}   step {moment.step}   return {moment.return_so_far:.2f}"
    whose = f"{config.method}, seed {config.seed}"
    write_line(pen, 20, config.task, whose, COLOURS["text"], COLOURS["text"])
    ending = OUTCOME_COLOURS.get(moment.outcome, COLOURS["faint"])
    write_line(pen, 43, progress, moment.outcome, COLOURS["faint"], ending)
    return canvas


def check_film(path: Path) -> None:
    """Refuse a film that cannot be written, before anything is played."""
    if path.suffix not in (".gif", ".mp4"):
        raise ValueError(f"a film is a .gif or an .mp4, got {path.name!r}")
    if path.is_dir():
        raise ValueError(f"the film cannot be written to {path}, which is a directory")
    place = next(each for each in path.absolute().parents if each.exists())  # others are made
    if not place.is_dir() or not os.access(place, os.W_OK):
        why = "may not be written to" if place.is_dir() else "is a file"
        raise ValueError(f"the film cannot be written to {path}: {place} {why}")
    if importlib.util.find_spec("PIL") is None:
        raise RuntimeError(f"Pillow, which draws films, is not installed: {install('report')}")
    if path.suffix == ".mp4" and importlib.util.find_spec("imageio_ffmpeg") is None:
        raise RuntimeError(f"imageio-ffmpeg, which writes .mp4, is not installed: {INSTALL_MP4}, or take a .gif")


def write_film(path: Path, images: Sequence["Image"], ends: Sequence[bool], frames_per_second: int) -> None:
    """Write images as a film.

    Args:
        path: The film, which ends in .gif or .mp4.
        images: Of one size.
        ends: Which of them are the last of an episode, or of a part of one: these stay for a moment.
        frames_per_second: Images that are shown in a second.
    """
    if path.suffix == ".mp4":
        _write_mp4(path, images, ends, frames_per_second)
        return
    from PIL import Image

    # One palette for all, from a few images of which some are ends: only those show how an episode came out.
    last = [image for image, is_end in zip(images, ends, strict=True) if is_end]
    few = [*last[:4], *images[:: max(1, len(images) // 12)]]
    sample = Image.new("RGB", (few[0].width, sum(each.height for each in few)))
    for place, each in enumerate(few):
        sample.paste(each, (0, place * each.height))
    palette = sample.quantize(128)
    quantized = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    shown_ms = [1000 * (LAST_IMAGE_S if is_end else 1 / frames_per_second) for is_end in ends]
    content = io.BytesIO()
    quantized[0].save(
        content,
        "GIF",
        save_all=True,
        append_images=quantized[1:],
        duration=[round(each) for each in shown_ms],
        loop=0,
        optimize=True,
    )
    write_atomically(path, content.getvalue())


def _write_mp4(path: Path, images: Sequence["Image"], ends: Sequence[bool], frames_per_second: int) -> None:
    ffmpeg: Any = importlib.import_module("imageio_ffmpeg")
    width, height = images[0].size
    shown = (max(1, round(LAST_IMAGE_S * frames_per_second)) if is_end else 1 for is_end in ends)
    pixels = b"".join(image.tobytes() * times for image, times in zip(images, shown, strict=True))
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(frames_per_second), "-i", "-"]
    film = ["-f", "mp4", "-vcodec", "libx264", "-pix_fmt", "yuv420p", "-crf", "25"]
    with replacing(path) as temporary:
        command = [ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y", *raw, *film, str(temporary)]
        done = subprocess.run(command, input=pixels, capture_output=True, check=False)
        if done.returncode != 0:
            why = done.stderr.decode(errors="replace").strip().partition("\n")[0]
            raise RuntimeError(f"{path}: ffmpeg failed: {why or f'exit code {done.returncode}'}")


def write_line(pen: Any, y: int, left: str, right: str, left_colour: str, right_colour: str) -> None:
    """Write at both ends of a line, as large as there is room."""
    from PIL import ImageFont

    margin, width = 12, pen.im.size[0]
    for size in range(16, 8, -1):
        font = ImageFont.load_default(size)
        if pen.textlength(f"{left}   {right}", font) <= width - 2 * margin:
            break
    pen.text((margin, y), left, left_colour, font, anchor="lm")
    pen.text((width - margin, y), right, right_colour, font, anchor="rm")
