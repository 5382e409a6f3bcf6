"""Recordings with hostile structure, for a moment: `make fuzz-recordings` tries very many."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.fuzz.hostile import damage
from tests.unit.house.test_architecture import ROOT


def test_hostile_recordings_end_with_a_message_within_their_bounds() -> None:
    # A process of its own: what pytest has in memory is none of the readers'.
    command = [sys.executable, "-m", "tests.fuzz.hostile", "40", "1"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "40 recordings: 0 broke a bound" in run.stdout


def test_damaged_recordings_show_no_other_value(tmp_path: Path) -> None:
    assert sum(damage.run(8, 1, tmp_path).values()) >= 8
