"""`study.json`: what the commands asked for that made the runs of a directory."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

STUDY_FILE = "study.json"
ARCHIVED_CURVES = "runs.csv.xz"  # of a study that was packed into an archive
STUDY_SCHEMA_VERSION = 1

Identity = tuple[str, str, int]  # task, method and seed


@dataclass(frozen=True)
class StudyFile:
    """What `vcse study run` was asked for last, and before, as it stands in `study.json`."""

    study: str
    seeds: int
    first_seed: int
    frames: int | None  # how long every run is, where that is not the study's own length
    tasks: list[str]
    methods: list[str]
    command: str  # that makes the runs again
    earlier: list["StudyFile"] = field(default_factory=list)  # what other commands asked for, in the same directory

    @property
    def requests(self) -> list["StudyFile"]:
        """What each command asked for, the last one last."""
        return [*self.earlier, replace(self, earlier=[])]

    @property
    def commands(self) -> list[str]:
        """That make all the runs again."""
        return list(dict.fromkeys(line for each in self.requests for line in each.command.splitlines()))

    @property
    def wanted(self) -> list[Identity]:
        """Every run that was asked for."""
        identities = (
            (task, method, seed)
            for each in self.requests
            for task in each.tasks
            for method in each.methods
            for seed in range(each.first_seed, each.first_seed + each.seeds)
        )
        return list(dict.fromkeys(identities))

    @property
    def wanted_tasks(self) -> list[str]:
        """Every task that was asked for, by any of the commands."""
        return list(dict.fromkeys(task for task, _, _ in self.wanted))

    @property
    def longest(self) -> int | None:
        """Frames of the longest runs that any of the commands asked for; None where that is the study's own length."""
        lengths = [each.frames for each in self.requests]
        return None if None in lengths else max(length for length in lengths if length is not None)

    def to_json(self) -> dict[str, Any]:
        """Return what `study.json` holds."""
        *earlier, last = (
            {name: each for name, each in asdict(one).items() if name != "earlier"} for one in self.requests
        )
        return {"schema_version": STUDY_SCHEMA_VERSION, **last} | ({"earlier": earlier} if earlier else {})

    def joined(self, other: "StudyFile") -> "StudyFile":
        """Return what this and a later command ask for, each as asked, so that neither hides what the other made."""
        return replace(other, earlier=[each for each in self.requests if each != other])

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "StudyFile":
        """Read it back."""
        version = content.get("schema_version")
        if version != STUDY_SCHEMA_VERSION:
            raise ValueError(f"{STUDY_FILE} has schema version {version}; this release reads {STUDY_SCHEMA_VERSION}")
        last = {name: value for name, value in content.items() if name != "schema_version"}
        return cls(**last | {"earlier": [cls(**each) for each in last.get("earlier", [])]})


def read_study_file(directory: Path) -> StudyFile | None:
    """Read what study a directory holds; None where it does not say."""
    path = directory / STUDY_FILE
    if not path.exists():
        return None
    try:
        return StudyFile.from_json(json.loads(path.read_text()))
    except (json.JSONDecodeError, UnicodeDecodeError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def asked_in(directory: Path) -> StudyFile:
    """Read what study a directory holds, and refuse one that does not say."""
    file = read_study_file(directory)
    if file is None:
        raise ValueError(f"{directory} holds no study: there is no {STUDY_FILE} in it")
    return file
