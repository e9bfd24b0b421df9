"""Run cells given as JSON on standard input, and write what each printed to a JSON file; see executed_pages.py."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path


def printed_by(cell: dict[str, str], names: dict[str, object]) -> str:
    """Run a cell, and return what it and its children wrote to standard output."""
    if cell["file"]:
        Path(cell["file"]).write_text(cell["code"])
        return ""
    with tempfile.TemporaryFile("w+") as caught:
        sys.stdout.flush()
        before = os.dup(1)
        os.dup2(caught.fileno(), 1)
        try:
            if cell["kind"] == "sh":
                subprocess.run(["bash", "-euo", "pipefail", "-c", cell["code"]], check=True)
            else:
                exec(compile(cell["code"], f"a cell of {Path.cwd().name}", "exec"), names)
        finally:
            sys.stdout.flush()
            os.dup2(before, 1)
            os.close(before)
        caught.seek(0)
        return caught.read().rstrip()


def main() -> None:
    """Run all cells in one namespace."""
    sys.path[0] = os.getcwd()  # in place of this script's folder
    names: dict[str, object] = {"__name__": "__main__"}
    outputs = [printed_by(cell, names) for cell in json.load(sys.stdin)]
    Path(sys.argv[1]).write_text(json.dumps(outputs))


if __name__ == "__main__":
    main()
