"""A dashboard of a real disk, on a terminal of its own: it is drawn, kept, and summed up when it has gone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from opwatch.host.scratch import ScratchDisk
from tests.kernel.support.watching import opwatch
from tests.terminals import screen_of

WRITES = 211


def test_what_is_shown_can_be_kept_and_is_summed_up(
    disk: ScratchDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = set(Path("/run").glob("opwatch-shown-*"))
    load = f"fio --name=x --filename={disk.node} --rw=randwrite --bs=4k --number_ios={WRITES} --size=64m"
    script = f"sleep 2; {load} --direct=1 --rate_iops=100 --output=/dev/null"
    with subprocess.Popen(["sh", "-c", script]) as running:
        argv = [sys.executable, "-m", "opwatch", "--dev", disk.node, "0.5"]
        typed = {b"write latency": b"o", b"written: ": b"q"}
        status, written = screen_of(argv, typed, {"TERM": "xterm-256color"})
        running.wait()
    assert status == 0
    screen, summary = written.split("\x1b[?1049l")
    assert "trust:" in screen
    assert f"== {os.path.basename(disk.node)}" in summary
    assert "trust: issued" in re.sub(r"\x1b\[[0-9;]*m", "", summary)
    # What was kept is a recording like any other, and nothing of the ring is left.
    [path] = tmp_path.glob("opwatch-*.opw")
    assert "write " in opwatch("replay", str(path)).stdout
    assert set(Path("/run").glob("opwatch-shown-*")) <= before
