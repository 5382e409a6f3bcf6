"""`opwatch note` on running recordings, and the output of the notes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest

from opwatch.host.scratch import ScratchDisk
from tests.kernel.support.watching import parse_lines, run_opwatch

OPWATCH = (sys.executable, "-m", "opwatch")


def add_note(path: Path, *words: str) -> None:
    """Add a note, retrying until the recording accepts it."""
    deadline = time.monotonic() + 60
    while (done := run_opwatch("note", str(path), *words)).returncode and time.monotonic() < deadline:
        time.sleep(0.2)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("command", ["record", "watch"])
def test_a_note_is_shown_with_its_time(disk: ScratchDisk, tmp_path: Path, command: str) -> None:
    path = tmp_path / "run.opw"
    form = () if command == "record" else ("--json",)
    argv = [*OPWATCH, command, "--dev", disk.node, *form, "-o", str(path), "--note", "before", "--", "cat"]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout
        # A note from before the first sample has no time. A recorder neither shows its samples nor lets
        # others read them.
        first = ""
        if form:
            first = run.stdout.readline()
        else:
            time.sleep(3)
        add_note(path, "fstrim", "begins")
        # The note leaves no other file in the folder.
        assert set(os.listdir(tmp_path)) <= {"run.opw", "run.opw-wal"}
        rest, _ = run.communicate("", timeout=60)
    assert run.returncode == 0
    replayed, dumped = (
        run_opwatch("replay", "--json", str(path)),
        run_opwatch("dump", "-O", "jsonl", str(path)),
    )
    notes = [line for line in parse_lines(replayed.stdout) if line["type"] == "note"]
    assert [note["text"] for note in notes] == ["before", "fstrim begins"]
    assert [line for line in parse_lines(dumped.stdout) if line["type"] == "note"] == notes
    times = [datetime.fromisoformat(note["time"]) for note in notes]
    assert 0 < (times[1] - times[0]).total_seconds() < 60
    assert notes[0]["mono_ns"] < notes[1]["mono_ns"]
    for shown in (run_opwatch("replay", str(path)), dumped):
        assert "note: before\n" in shown.stderr
        assert f"note at {times[1].astimezone():%Y-%m-%d %H:%M:%S}: fstrim begins\n" in shown.stderr
    if command == "watch":
        assert replayed.stdout == first + rest
    late = run_opwatch("note", str(path), "too late")
    assert late.returncode == 2
    assert f" {path} " in late.stderr


def test_mistakes_are_reported(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    for name, words in (
        ("text", "is not being written"),
        ("none", "No such file"),
        ("pipe", "not a regular file"),
        (".", "opwatch flight note"),
    ):
        done = run_opwatch("note", str(tmp_path / name), "x")
        assert done.returncode in (1, 2)
        assert words in done.stderr
        assert "Traceback" not in done.stderr
    assert run_opwatch("note", str(tmp_path / "text")).returncode == 2
