"""What runs take of a machine, and whether it is there for all that are trained at once."""

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from vcse.runs.cgroups import free_in_groups
from vcse.runs.formatting import counted, size

MOST_SHARE = 0.8  # of memory that is free; simulators, and all else that is not counted, need some too
PROCESS_BYTES = 500_000_000  # of a process that has imported everything, before it learns
CHECKPOINT_COPIES = 3  # in memory: what it is made of, and two while it is written
DISK = "disk"
PLACES = {"cuda": "in the memory of the GPU", "cpu": "in the memory of the host", DISK: "on disk, which is slower"}


class Needs(NamedTuple):
    """About what runs take of a machine, in bytes."""

    working: int  # memory where the networks live: of these, of a batch, and of a checkpoint while it is written
    replay: int  # memory there, or of the host
    files: int  # on disk, at the end
    until_done: int = 0  # more on disk, as long as the runs are trained
    may_use_disk: bool = False  # where memory is too small, the replay may be a file
    runs: int = 1


class Room(NamedTuple):
    """What the processes of a command take, and where their replays lie."""

    place: str  # of the replays: where the networks live, cpu or disk
    at_once: Needs  # of what is trained at the same time, at most
    process_bytes: int  # of the host, for the processes themselves
    all_files: int  # on disk when every run is done, or just before, if the last leave less behind
    free_disk: int

    @property
    def memory(self) -> int:
        """All that is taken of memory, wherever that is."""
        in_memory = 0 if self.place == DISK else self.at_once.replay
        return self.at_once.working + in_memory + self.process_bytes

    def of_replays(self) -> str:
        """Return what replays take, and where; empty where there is none."""
        if not self.at_once.replay:
            return ""
        runs = f", for {self.at_once.runs} runs at once" if self.at_once.runs > 1 else ""
        return f"replay: {size(self.at_once.replay)} {PLACES[self.place]}{runs}"

    def of_files(self) -> str:
        """Return what all files take, with a warning where there is no room for them."""
        when = "at most" if self.at_once.until_done else "at the end"
        text = f"files: {size(self.all_files)} more on disk {when}, where {size(self.free_disk)} are free"
        if self.all_files <= self.free_disk:
            return text
        text += "\nwarning: that is too little for all runs; the last will stop, and can be resumed once there is room"
        if self.at_once.replay and not self.at_once.until_done:
            text += "; with --no-keep-replay they leave far less behind"
        return text

    def describe(self) -> str:
        """Return what replays and files take; empty where there is no replay, and room for the files."""
        if replays := self.of_replays():
            return f"{replays}; {self.of_files()}"
        return self.of_files() if self.all_files > self.free_disk else ""


def together(needs: Iterable[Needs]) -> Needs:
    """Return what runs take that are trained at the same time."""
    nothing = Needs(working=0, replay=0, files=0, may_use_disk=True, runs=0)
    working, replay, files, until_done, may_use_disk, runs = zip(nothing, *needs, strict=True)
    return Needs(sum(working), sum(replay), sum(files), sum(until_done), all(may_use_disk), sum(runs))


def find_room(cohorts: Sequence[Needs], directory: Path, *, device: str, jobs: int) -> Room:
    """Choose one place for all replays: the device where they fit, else the host, else disk, where they may lie there.

    What fits nowhere is refused.

    Args:
        cohorts: What each takes. At the same time those are trained that take most.
        directory: Where files are written; it need not be there yet.
        device: Where the networks live.
        jobs: Cohorts that are trained at the same time, each in a process of its own.
    """
    jobs = min(jobs, len(cohorts))
    at_once = together(sorted(cohorts, key=lambda needs: needs.working + needs.replay, reverse=True)[:jobs])
    process_bytes = jobs * PROCESS_BYTES
    taken = {device: at_once.working}
    taken["cpu"] = taken.get("cpu", 0) + process_bytes
    free = {place: free_bytes(place) for place in taken}
    for place, there in free.items():
        if there is not None and taken[place] > there:
            raise ValueError(
                f"for {_of(at_once, jobs)}, {size(taken[place])} are needed {PLACES[place]} beside the replay, but "
                f"{size(there)} are free: train fewer at once (--jobs, --seeds), smaller networks, or with a smaller "
                "--batch-size"
            )
    # In addition to what is taken there; None where the system does not report what is free.
    left = {place: None if there is None else int(MOST_SHARE * there) - taken[place] for place, there in free.items()}
    found = next((place for place, room in left.items() if room is None or at_once.replay <= room), None)
    files = at_once.files + at_once.until_done
    if found is None and at_once.may_use_disk and at_once.replay + files <= free_on_disk(directory):
        found = DISK
    check_files(at_once, directory, place=found or "")
    if found is None:
        most = [f"{size(max(0, room))} {PLACES[place]}" for place, room in left.items() if room is not None]
        if at_once.may_use_disk:
            most.append(f"{size(free_on_disk(directory) - files)} on disk, in addition to their files")
        raise ValueError(
            f"for the replays of {_of(at_once, jobs)}, {size(at_once.replay)} are needed, but there is room for "
            f"{' and '.join(most)}: train fewer at once (--jobs, --seeds), shorter ones (--frames), or with a smaller "
            "--replay-capacity"
        )
    all_files = sum(each.files for each in cohorts) + at_once.until_done
    return Room(found, at_once, process_bytes, all_files, free_on_disk(directory))


def check_files(needs: Needs, directory: Path, *, place: str) -> None:
    """Refuse files, with the replay where its place is there, that will not fit on the disk of a directory."""
    needed, free = needs.files + needs.until_done + (needs.replay if place == DISK else 0), free_on_disk(directory)
    if needed > free:
        raise ValueError(
            f"the files of {counted(needs.runs, 'run')} will need {size(needed)} on disk, but {size(free)} are free in "
            f"{directory}: make room there, train fewer runs at once (--jobs, --seeds) or shorter ones (--frames), or "
            "choose another --out"
        )


def free_bytes(device: str) -> int | None:
    """Return the memory that is free; None where the system does not report it."""
    if device == "cuda":
        return torch.cuda.mem_get_info()[0]
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return None
    lines = [line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable:")]
    free = [1024 * int(line.split()[1]) for line in lines] + free_in_groups()
    return min(free, default=None)


def free_on_disk(directory: Path) -> int:
    """Return the bytes that are free on the disk on which a directory lies, or will lie."""
    there = next(each for each in (directory, *directory.absolute().parents) if each.exists())
    return shutil.disk_usage(there).free


def _of(needs: Needs, jobs: int) -> str:
    runs = f"{counted(needs.runs, 'run')} at once"
    return f"{runs} in {jobs} processes" if jobs > 1 else runs
