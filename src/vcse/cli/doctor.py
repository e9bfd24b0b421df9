"""`vcse doctor`: what is here, what works, what is missing and how to install it."""

import importlib
import importlib.metadata
import importlib.util
import json as json_format
import os
import platform
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vcse import __version__
from vcse.cli.option_types import Flag
from vcse.extras import install

# A requirement of an extra, in a package's metadata; those that depend on more than the extra are left out.
REQUIREMENT = re.compile(r"""(?P<name>[\w.-]+)(\[(?P<inner>[\w-]+)\])?[^;]*; ?extra == ['"](?P<extra>[\w-]+)['"]""")
UNSET_GL = "unset MUJOCO_GL"
SEEN_TASKS = {"dmc": "dmc-pixels/hopper_stand", "metaworld": "metaworld/door-open"}  # that are drawn, by extra
IMAGE_OF = "image of "
Status = Literal["ok", "missing", "broken"]
COLOURS: dict[Status, str] = {"ok": "green", "missing": "yellow", "broken": "bold red"}


@dataclass(frozen=True)
class Finding:
    """One line of the diagnosis."""

    what: str
    status: Status
    found: str
    remedy: str = ""


def doctor(json: Flag = False) -> int:
    """Check Python, PyTorch, devices and extras: what is here, what is missing, and the command that installs it.

    Fails only where something that is installed does not work.

    Args:
        json: Print the rows as a JSON list on standard output, and nothing else.
    """
    console = Console()
    findings = []
    for finding in diagnose():
        findings.append(finding)
        if not json:  # as soon as it is known: some take seconds
            _show(finding, console)
    if json:
        print(json_format.dumps([asdict(finding) for finding in findings], indent=1))
    return 1 if any(finding.status == "broken" for finding in findings) else 0


def diagnose() -> Iterator[Finding]:
    """Return the findings one by one."""
    import torch

    yield Finding("vcse", "ok", __version__)
    yield Finding("Python", "ok", f"{platform.python_version()} on {platform.platform(terse=True)}")
    yield Finding("PyTorch", "ok", f"{torch.__version__}, {torch.get_num_threads()} threads, {os.cpu_count()} cores")
    yield _estimators_on("cpu")
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            gib = torch.cuda.get_device_properties(index).total_memory / 2**30
            yield Finding(f"CUDA device {index}", "ok", f"{torch.cuda.get_device_name(index)}, {gib:.0f} GiB")
        yield _estimators_on("cuda")
        if importlib.util.find_spec("triton") is None:
            yield Finding("Triton", "missing", "the CUDA estimators run without it, slowly", "pip install triton")
    else:
        yield Finding("CUDA", "missing", "no GPU that PyTorch can use; everything runs on the CPU")
    if not (extras := extras_of_vcse()):
        yield Finding("extras", "missing", "not known, as vcse runs without being installed", "pip install vcse")
    for extra, packages in extras.items():
        finding = _extra(extra, packages)
        yield finding
        if extra == "dmc" and finding.status == "ok":
            yield _step_of_hopper(packages)
        if extra in SEEN_TASKS and finding.status == "ok":
            yield _image_of(SEEN_TASKS[extra], packages)


def extras_of_vcse() -> dict[str, list[str]]:
    """Return the packages that each extra needs, as pip names them; none where vcse is not installed."""
    try:
        extras = importlib.metadata.metadata("vcse").get_all("Provides-Extra") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    return {extra: _needed_by("vcse", extra) for extra in extras}


def _needed_by(package: str, extra: str) -> list[str]:
    """Return the packages that an extra of an installed package needs, with those of their own extras."""
    packages = []
    for line in importlib.metadata.requires(package) or ():
        found = REQUIREMENT.fullmatch(line)
        if found and found["extra"] == extra:
            packages.append(found["name"])
            if found["inner"] and _is_installed(found["name"]):
                packages += _needed_by(found["name"], found["inner"])
    return packages


def _estimators_on(device: str) -> Finding:
    """Compute a reward whose value is known."""
    import torch

    from vcse.estimators import value_conditional_reward

    what = f"estimators on {device}"
    try:
        same = torch.ones(16, 64, device=device)
        reward = float(value_conditional_reward(same, same[:, 0], k=3, reading="release-a2c")[0])
    except Exception as error:  # whatever it is, the diagnosis goes on and names it
        return Finding(what, "broken", f"{type(error).__name__}: {error}", "vcse selftest shows more")
    if abs(reward + 11.522) > 1e-3:
        return Finding(what, "broken", f"duplicates earn {reward:.3f} instead of -11.522", "vcse selftest shows more")
    return Finding(what, "ok", "duplicates earn -11.522")


def _extra(extra: str, packages: list[str]) -> Finding:
    absent = [package for package in packages if not _is_installed(package)]
    if absent:
        return Finding(f"extra {extra}", "missing", f"not installed: {', '.join(absent)}", install(extra))
    if "mujoco" in packages:
        from vcse.envs.mujoco.rendering import named_backend

        try:
            named_backend()
        except RuntimeError as error:
            return Finding(f"extra {extra}", "broken", str(error), UNSET_GL)
    versions = []
    for package in packages:
        try:
            importlib.import_module(_module(package))
        except Exception as error:  # an installed package can fail in any way when it is imported
            found = f"{package} is installed but does not import: {type(error).__name__}: {error}"
            remedy = _install_again([package])
            if "mujoco" in packages and os.environ.get("MUJOCO_GL"):  # it does not import with what it cannot draw with
                remedy = UNSET_GL
            return Finding(f"extra {extra}", "broken", found, remedy)
        versions.append(f"{package} {importlib.metadata.version(package)}")
    return Finding(f"extra {extra}", "ok", ", ".join(versions))


def _step_of_hopper(packages: list[str]) -> Finding:
    """Simulate one step, without drawing it."""
    import numpy as np

    from vcse.envs.mujoco.dmc import DMCStates

    what = "dmc/hopper_stand"
    try:
        environments = DMCStates(["hopper_stand"])
        environments.reset([0])
        environments.send(np.zeros((1, environments.action_size), dtype=np.float32))
        [reward] = environments.receive().rewards
    except Exception as error:  # whatever it is, the diagnosis goes on and names it
        return Finding(what, "broken", f"{type(error).__name__}: {error}", _install_again(packages))
    return Finding(what, "ok", f"one step of the simulator earns {reward:.1f}")


def _image_of(task: str, packages: list[str]) -> Finding:
    """Draw one image, on the GPU where there is one, in a process of its own."""
    import torch

    from vcse.envs.interface import Making
    from vcse.envs.mujoco.pixels import Pixels
    from vcse.envs.mujoco.rendering import missing_library

    device: Literal["cpu", "cuda"] = "cuda" if torch.cuda.is_available() else "cpu"
    what = IMAGE_OF + task
    # This is asked first: what fails in that process would not tell a library that is not here from one that is broken.
    missing = missing_library(device)
    if missing is not None:
        return Finding(what, "missing", missing.reason, missing.install)
    try:
        with closing(Pixels([task], Making(rendering="light", device=device))) as environments:
            [image] = environments.reset([0])
    except Exception as error:  # whatever it is, the diagnosis goes on and names it
        chosen = [variable for variable in ("MUJOCO_GL", "MUJOCO_EGL_DEVICE_ID") if os.environ.get(variable)]
        remedy = f"unset {' '.join(chosen)}" if chosen else _install_again(packages)
        return Finding(what, "broken", f"{type(error).__name__}: {error}", remedy)
    if image.min() == image.max():
        return Finding(what, "broken", "the image is empty", "set MUJOCO_GL to egl or osmesa")
    return Finding(what, "ok", f"drawn by {environments.gl_backend} on {device}")


def _install_again(packages: list[str]) -> str:
    return f"pip install --force-reinstall {' '.join(packages[:2])}"


def _is_installed(package: str) -> bool:
    return any(importlib.metadata.distributions(name=package))


def _module(package: str) -> str:
    """Return the name by which an installed package is imported, which is its own where it has such a module."""
    files = importlib.metadata.distribution(package).files or ()
    modules = {file.parts[0].removesuffix(".py") for file in files if file.suffix == ".py"}
    name = package.replace("-", "_").lower()
    public = (module for module in modules if module.isidentifier() and module[0] != "_")
    return name if name in modules else min(public, default=name)


def _show(finding: Finding, console: Console) -> None:
    """Print one finding, so that names stand below each other and commands can be copied, however narrow it is."""
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_column(width=max(map(len, COLOURS)))
    line.add_column(width=len(IMAGE_OF + SEEN_TASKS["dmc"]), overflow="fold")
    line.add_column(overflow="fold")
    line.add_row(f"[{COLOURS[finding.status]}]{finding.status}[/]", finding.what, escape(finding.found))
    console.print(line)
    if finding.remedy:
        console.print(f"  fix: {finding.remedy}", markup=False, highlight=False, soft_wrap=True)
