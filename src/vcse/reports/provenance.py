"""How runs were made, in words, and what pages share beyond that."""

import base64
from collections.abc import Iterable, Mapping
from typing import Any


def machine(meta: Mapping[str, Any]) -> str:
    """Name the machine of a run's `meta.json`."""
    cores = f"{meta['cpus']} CPU cores" if meta.get("cpus") else "unknown"
    parts = [cores] + ([] if meta.get("device") in (None, "cpu") else [str(meta["device"])])
    return ", ".join(parts + ([f"images drawn by {meta['drawn_by']}"] if meta.get("drawn_by") else []))


def versions(meta: Mapping[str, Any]) -> str:
    """Name the versions of a run's `meta.json`."""
    packages = meta.get("packages")
    named = {"vcse": meta.get("vcse"), "Python": meta.get("python"), **(packages if isinstance(packages, dict) else {})}
    return ", ".join(f"{name} {version}" for name, version in named.items() if version) or "unknown"


def commit(meta: Mapping[str, Any]) -> str:
    """Name the commit of a run's `meta.json`."""
    return str(meta.get("commit") or "unknown")[:12]


def all_of(found: Iterable[str]) -> str:
    """Put together what runs say, each different answer once."""
    return "; ".join(dict.fromkeys(found))


def data_uri(content: bytes, kind: str) -> str:
    """Write a file into a page."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
