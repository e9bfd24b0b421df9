"""`vcse watch`: a film of a trained policy."""

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro

from vcse.agents import read_config
from vcse.cli.option_types import Flag, PathIfGiven, Whole, WholeIfGiven, if_given, one_of
from vcse.cli.options import naming_options
from vcse.launch.devices import Device, resolve_device
from vcse.play.imagination import imagine_run
from vcse.play.shipped import find_policies
from vcse.play.watch import watch_run
from vcse.runs.config import RunConfig
from vcse.runs.directory import has_saved, run_directories

Actions = Literal["sampled", "greedy"]


def watch(
    directory: Annotated[Path, tyro.conf.Positional],
    /,
    episodes: WholeIfGiven = None,
    out: PathIfGiven = None,
    actions: Annotated[Actions | None, one_of(Actions), if_given()] = None,
    imagine: Flag = False,
    seed: Whole = 0,
    frames_per_second: WholeIfGiven = None,
    device: Device = "auto",
) -> int:
    """Record a video of the newest policy of a run: watch.gif in its directory, or the file that --out names.

    In a directory of runs, the run with the lowest seed of each task and method that has saved a policy is filmed, each
    into its own directory. --out names one film, so it needs a single run. Films of policies that ship are written to
    the current directory, as minigrid-LavaGapS7-vcse.gif.

    Args:
        directory: A run, a directory of runs, or the name of a policy that ships with vcse-policies, such as
            minigrid/LavaGapS7/vcse.
        episodes: Number of episodes. Default: 3 in MiniGrid and 1 otherwise.
        out: The film, .gif or .mp4 (which needs imageio-ffmpeg).
        actions: How the policy acts. sampled: with actions drawn from it, as in training; greedy: with the most
            probable action, or the mean. Default: sampled in MiniGrid and greedy otherwise.
        imagine: Film what the world model of an agent that has one imagines instead: imagination.gif, with a contact
            sheet (.png) beside it.
        seed: Seed of the layouts and of sampled actions.
        frames_per_second: Images per second of the film. Default: 8 in MiniGrid and 12 otherwise.
        device: Where the network lives; auto is the GPU if there is one.
    """
    torch.set_num_threads(1)  # as in training; more would wait for each other, and for whoever draws
    home = find_policies(directory)
    found = run_directories(home)
    runs = first_runs([path for path in found if has_saved(path)] or found)
    if out is not None and len(runs) > 1:
        arms = ", ".join(str(path) for path in runs)
        raise ValueError(
            f"--out is for one film, but {directory} holds {len(runs)} methods to watch: name one of {arms}"
        )
    for path in runs:
        film = out or _usual_film(path, "imagination" if imagine else "watch", ships=home != directory)
        settings: dict[str, Any] = {
            "episodes": episodes,
            "sampled": None if actions is None else actions == "sampled",
            "seed": seed,
            "frames_per_second": frames_per_second,
            "device": resolve_device(device),
        }
        with naming_options(("episodes", "frames_per_second")):
            summary = (_film_imagination if imagine else _film_episodes)(path, film, settings)
        print(f"{path}: {summary}", file=sys.stderr)
        print(film)
        if imagine:
            print(film.with_suffix(".png"))
    return 0


def _usual_film(path: Path, name: str, *, ships: bool) -> Path:
    """Return where a run's film is written if nothing is said; nothing is written to what is installed."""
    if not ships:
        return path / f"{name}.gif"
    config = read_config(path)
    return Path(f"{config.task}-{config.method}{'' if name == 'watch' else f'-{name}'}.gif".replace("/", "-"))


def _film_episodes(path: Path, film: Path, settings: dict[str, Any]) -> str:
    """Film episodes of a run, and return how they ended."""
    endings = watch_run(path, film, **settings)
    text = ", ".join(f"{ending.outcome} after {ending.step} steps" for ending in endings)
    returns = ", ".join(f"{ending.return_so_far:.2f}" for ending in endings)
    return f"{text}; return {returns}"


def _film_imagination(path: Path, film: Path, settings: dict[str, Any]) -> str:
    """Film what the model of a run imagines, and return how far that is from what happened."""
    found = imagine_run(path, film, **settings)
    errors = ", ".join(f"{100 * each.prediction_error:.1f} %" for each in found)
    return f"difference of what is imagined from step {', '.join(str(each.start) for each in found)}: {errors}"


def first_runs(paths: list[Path]) -> list[Path]:
    """Return the run with the lowest seed of each task and method."""
    found: dict[tuple[str, str], tuple[RunConfig, Path]] = {}
    for path in paths:
        config = read_config(path)
        arm = (config.task, config.method)
        if arm not in found or config.seed < found[arm][0].seed:
            found[arm] = (config, path)
    return [path for _, path in found.values()]
