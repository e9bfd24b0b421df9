"""`vcse export`: a trained policy as a small folder. `vcse push`: the same, on the Hugging Face Hub."""

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import tyro

from vcse.cli.option_types import Flag, WholeIfGiven
from vcse.cli.options import naming_options
from vcse.launch.devices import Device, resolve_device
from vcse.play.export import export_policy, is_exported
from vcse.play.hub import check_can_push, check_repository, prepare_folder, push_folder
from vcse.play.shipped import find_policies
from vcse.runs.directory import run_directories
from vcse.runs.formatting import counted


def export(
    directory: Annotated[Path, tyro.conf.Positional],
    /,
    out: Path,
    episodes: WholeIfGiven = None,
    device: Device = "auto",
) -> int:
    """Write the newest policy of a run as a small folder: weights that act, configuration, and a card with scores.

    The folder is read like a run: vcse eval, vcse watch and vcse.load_policy take it. Weights are rounded to float16 if
    that leaves success and return within their 95 % intervals.

    Args:
        directory: A run, or a directory that holds one.
        out: The folder, which must be empty or not exist.
        episodes: Episodes of the evaluation on the card, for each of the two ways to act. Default: as many as in
            training, or, if that is 0, 100 in MiniGrid and 10 otherwise.
        device: Where the networks live; auto is the GPU if there is one.
    """
    with naming_options(("episodes",)):
        scores = export_policy(_only_run(directory), out, episodes=episodes, device=resolve_device(device))
    taken = sum(each.stat().st_size for each in out.rglob("*") if each.is_file())
    print(f"vcse: weights in {scores.precision}, {taken / 1e3:,.0f} kB", file=sys.stderr)
    print(out)
    return 0


def push(
    directory: Annotated[Path, tyro.conf.Positional],
    /,
    repo: Annotated[str, tyro.conf.arg(metavar="USER/NAME")],
    episodes: WholeIfGiven = None,
    private: Flag = False,
    dry_run: Flag = False,
    device: Device = "auto",
) -> int:
    """Upload a run's policy, or an exported one, to the Hugging Face Hub, with a card.

    A run is exported first; an exported folder is uploaded as it is, so that you can edit its card first. It needs a
    token, from hf auth login or in HF_TOKEN.

    Args:
        directory: A run, a folder that vcse export made, or the name of a policy that ships.
        repo: The repository of the Hub, which is made if it does not exist.
        episodes: Episodes of the evaluation on the card, where a run is exported, as in vcse export.
        private: Make the repository private.
        dry_run: Print what would be uploaded; upload nothing.
        device: Where the networks live; auto is the GPU if there is one.
    """
    with naming_options(("repo",)):
        check_repository(repo)
    if not dry_run:
        check_can_push()
    run = _only_run(directory)
    with tempfile.TemporaryDirectory() as temporary:
        exported, folder = Path(temporary) / "exported", Path(temporary) / "sent"
        if is_exported(run):
            exported = run
        else:
            with naming_options(("episodes",)):
                export_policy(run, exported, episodes=episodes, device=resolve_device(device))
        files = prepare_folder(exported, folder, repo)
        if dry_run:
            print(f"would upload {counted(len(files), 'file')}, {sum(files.values()) / 1e3:,.0f} kB, to {repo}:")
            for name, count in files.items():
                print(f"  {name}  {count / 1e3:,.1f} kB")
            return 0
        print(push_folder(folder, repo, private=private))
    return 0


def _only_run(directory: Path) -> Path:
    """Return the run that a directory is, or the only one below it."""
    found = run_directories(find_policies(directory))
    if len(found) > 1:
        raise ValueError(f"{directory} holds {len(found)} runs: name one of them, such as {found[0]}")
    return found[0]
