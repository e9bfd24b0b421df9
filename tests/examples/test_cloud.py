import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples" / "cloud.py"


def test_the_demo_draws_its_image_and_shows_the_point(tmp_path):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--out", str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert (tmp_path / "cloud.png").stat().st_size > 10_000
    assert "state entropy (matched)" in done.stdout
    blind, conditional = (
        [int(share) for share in re.findall(r"(\d+)%", line)] for line in done.stdout.splitlines()[1:3]
    )
    assert blind[0] > 5 * blind[2]
    assert max(conditional) < 2 * min(conditional)
