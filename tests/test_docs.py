"""Generated pages are what the sources say."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_generated_pages_are_current():
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_pictures_are_there():
    for name in ("reach", "frequencies"):
        assert (ROOT / "docs" / "pictures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
