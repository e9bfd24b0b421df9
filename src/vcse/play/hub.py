"""Pushing a policy to the Hugging Face Hub, where there are a token and a network."""

import re
import shutil
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vcse.extras import install
from vcse.play.card import REPOSITORY
from vcse.play.export import CARD_FILE
from vcse.runs.directory import done_frame


def check_repository(repository: str) -> None:
    """Refuse what cannot be the name of a repository."""
    if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", repository):
        raise ValueError(f"repo must be user/name, got {repository!r}")


def check_can_push() -> None:
    """Refuse to begin where huggingface_hub or a token is missing."""
    if find_spec("huggingface_hub") is None:
        raise RuntimeError(f"huggingface_hub, which uploads, is not installed: {install('hub')}")
    if import_module("huggingface_hub").get_token() is None:
        raise RuntimeError(
            "there is no token for the Hugging Face Hub: hf auth login stores one, and the variable HF_TOKEN sets one; "
            "--dry-run needs none"
        )


def prepare_folder(exported: Path, folder: Path, repository: str) -> dict[str, int]:
    """Copy an exported policy as it is sent, its repository named on the card; return the bytes of each file."""
    shutil.copytree(exported, folder, ignore=shutil.ignore_patterns(".*"))
    card = folder / CARD_FILE
    card.write_text(card.read_text().replace(f'("{REPOSITORY}")', f'("{repository}")'))
    return {
        each.relative_to(folder).as_posix(): each.stat().st_size for each in sorted(folder.rglob("*")) if each.is_file()
    }


def push_folder(folder: Path, repository: str, *, private: bool) -> str:
    """Upload all files of a folder to a repository, which is made if it does not exist; return its address.

    Args:
        folder: As `prepare_folder` made it.
        repository: As user/name.
        private: Whether a repository that is made is private; one that exists stays as it is.
    """
    hub: Any = import_module("huggingface_hub")
    api = hub.HfApi(library_name="vcse")
    try:
        address = api.create_repo(repository, private=private, exist_ok=True)
        message = f"Policy at frame {done_frame(folder):,}"
        api.upload_folder(repo_id=repository, folder_path=folder, commit_message=message)
    except hub.utils.httpx.HTTPError as error:  # refused, or not reached, which is no OSError
        why = str(error).strip().partition("\n")[0]
        raise RuntimeError(f"{repository} was not pushed to the Hub: {why}") from error
    return str(address)
