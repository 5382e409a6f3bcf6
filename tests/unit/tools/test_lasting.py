"""A dashboard ends if its terminal disappears or is no longer read."""

from __future__ import annotations

import gzip
import os
import pty
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from opwatch.sinks import terminal
from opwatch.sinks.terminal import PaintedTerminal
from tests.terminals import read_until, wait_for_exit

RECORDING = Path(__file__).parents[2] / "fixtures" / "good" / "recordings" / "1.opw.gz"


@pytest.fixture
def no_hurry() -> None:
    terminal.allow_blocking()


def test_unread_output_is_dropped_in_a_hurry(no_hurry: None) -> None:
    ours, theirs = pty.openpty()
    with open(theirs, "w", encoding="utf-8") as stream:
        painted = PaintedTerminal(stream)
        terminal.limit_blocking()
        begin = time.monotonic()
        # More than a terminal buffers.
        for _ in range(50):
            assert painted.write("x" * 10_000) == 10_000
        assert time.monotonic() - begin < 10
    os.close(ours)
    terminal.allow_blocking()


def test_output_to_a_vanished_terminal_is_dropped(no_hurry: None) -> None:
    ours, theirs = pty.openpty()
    with open(theirs, "w", encoding="utf-8") as stream:
        painted = PaintedTerminal(stream)
        painted.write("here\n")
        assert b"here" in os.read(ours, 100)
        os.close(ours)
        assert painted.write("gone") == 4
        assert painted.isatty()
        painted.flush()


def _ignore_hang_up() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


@pytest.mark.parametrize("prepare", [None, _ignore_hang_up])
def test_a_replay_ends_with_its_terminal(tmp_path: Path, prepare: Callable[[], None] | None) -> None:
    pytest.importorskip("textual")
    path, chance = tmp_path / "run.opw", random.Random(5)
    path.write_bytes(gzip.decompress(RECORDING.read_bytes()))
    for _ in range(3):
        ours, theirs = pty.openpty()
        subprocess.run(["stty", "rows", "24", "cols", "80"], stdin=theirs, check=True)
        process = subprocess.Popen(
            [sys.executable, "-m", "opwatch", "replay", "--tui", str(path)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=os.environ | {"TERM": "xterm-256color"},
            preexec_fn=prepare,
        )
        os.close(theirs)
        assert b"trust" in read_until(ours, b"trust")
        time.sleep(chance.random() / 2)
        os.close(ours)
        assert wait_for_exit(process) is not None
