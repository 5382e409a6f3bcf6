"""A dashboard of a real disk on its own terminal: it is drawn, kept, and summed up at the end."""

from __future__ import annotations

import os
import pty
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from opwatch.host.scratch import ScratchDisk
from tests.kernel.support.watching import run_opwatch
from tests.terminals import read_until, run_on_terminal, wait_for_exit

WRITES = 211


def test_dashboard_keeps_a_recording_and_prints_a_summary(
    disk: ScratchDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = set(Path("/run").glob("opwatch-shown-*"))
    load = f"fio --name=x --filename={disk.node} --rw=randwrite --bs=4k --number_ios={WRITES} --size=64m"
    script = f"sleep 2; {load} --direct=1 --rate_iops=100 --output=/dev/null"
    with subprocess.Popen(["sh", "-c", script]) as running:
        argv = [sys.executable, "-m", "opwatch", "--dev", disk.node, "0.5"]
        typed = {b"write latency": b"o", b"recorded: ": b"q"}
        status, written = run_on_terminal(argv, typed, {"TERM": "xterm-256color"})
        running.wait()
    assert status == 0
    screen, summary = written.split("\x1b[?1049l")
    assert "trust:" in screen
    assert f"== {os.path.basename(disk.node)}" in summary
    assert "trust: issued" in re.sub(r"\x1b\[[0-9;]*m", "", summary)
    # The kept file is a normal recording, and no temporary file of the ring remains.
    [path] = tmp_path.glob("opwatch-*.opw")
    assert "write " in run_opwatch("replay", str(path)).stdout
    assert set(Path("/run").glob("opwatch-shown-*")) <= before


ENDINGS = (
    *(
        pytest.param(ending, marks=pytest.mark.manual)
        for ending in (("term", "close"), ("close", "term"), ("stall", "term"))
    ),
    ("close",),
    ("stall", "close", "term"),
)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("ignores_hang_up", [False, pytest.param(True, marks=pytest.mark.manual)])
def test_dashboard_ends_when_its_terminal_closes_or_a_signal_arrives(
    disk: ScratchDisk, ending: tuple[str, ...], ignores_hang_up: bool
) -> None:
    """In any order and at any moment, including while a write blocks because the terminal is not read."""
    chance = random.Random(repr(ending))
    for _ in range(2):
        ours, theirs = pty.openpty()
        subprocess.run(["stty", "rows", "60", "cols", "250"], stdin=theirs, check=True)
        process = subprocess.Popen(
            [sys.executable, "-m", "opwatch", "--tui", "--dev", disk.node, "0.05"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=os.environ | {"TERM": "xterm-256color"},
            preexec_fn=(lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) if ignores_hang_up else None,
        )
        os.close(theirs)
        assert b"trust" in read_until(ours, b"trust")
        for step in ending:
            # Wait until the unread terminal is full.
            time.sleep(3 if step == "stall" else chance.random() / 3)
            if step == "term":
                process.send_signal(signal.SIGTERM)
            elif step == "close":
                os.close(ours)
        assert wait_for_exit(process) is not None
        if "close" not in ending:
            os.close(ours)
