"""A short fuzz of recordings with hostile structure; `make fuzz-recordings` runs many more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.fuzz.hostile import damage
from tests.tracked import ROOT


def test_hostile_recordings_end_with_a_message_within_the_limits() -> None:
    # A separate process, so that pytest's memory does not count against the bounds.
    command = [sys.executable, "-m", "tests.fuzz.hostile", "40", "1"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "40 recordings: 0 broke a bound" in run.stdout


def test_damaged_recordings_show_no_other_value(tmp_path: Path) -> None:
    assert sum(damage.run(8, 1, tmp_path).values()) >= 8
