"""Pipes in place of files are refused immediately with a remedy, because reading a pipe could block for
ever. A path that cannot be looked at is refused, too."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from opwatch.tools import cli

IOSTAT = Path(__file__).parents[2] / "fixtures" / "good" / "imports" / "iostat.json"


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["counters", "--from", "PIPE"], 2),
        (["report", "FILE", "-o", "PIPE"], 3),
        (["report", "PIPE", "--json"], 1),
        (["replay", "PIPE"], 1),
        (["compare", "PIPE", "PIPE"], 1),
        (["dump", "PIPE", "-O", "csv"], 1),
        (["import", "PIPE", "-o", "new.opw"], 1),
        (["import", "FILE", "-o", "PIPE"], 3),
        (["sweep", "show", "PIPE"], 1),
        (["note", "PIPE", "words"], 1),
    ],
)
def test_a_pipe_is_refused_at_once(tmp_path: Path, words: list[str], status: int) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    file = IOSTAT if words[0] == "import" else tmp_path / "run.opw"
    if words[0] == "report" and "FILE" in words:
        assert _run_command(tmp_path, ["import", str(IOSTAT), "-o", str(file)]).returncode == 0
    argv = [{"PIPE": str(pipe), "FILE": str(file)}.get(word, word) for word in words]
    answer = _run_command(tmp_path, argv)
    assert answer.returncode == status
    assert str(pipe) in answer.stderr
    assert "Traceback" not in answer.stderr


def _run_command(folder: Path, argv: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "opwatch", *argv]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "words",
    [
        ["report", "LONG", "--markdown"],
        ["report", "FILE", "-o", "LONG"],
        ["counters", "--from", "LONG"],
        ["replay", "LONG"],
        ["compare", "LONG", "LONG"],
        ["dump", "LONG", "-O", "csv"],
        ["import", "LONG", "-o", "new.opw"],
        ["import", "FILE", "-o", "LONG"],
        ["sweep", "show", "LONG"],
        ["note", "LONG", "words"],
    ],
)
def test_path_that_cannot_be_looked_at_is_refused(
    tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    named = {"LONG": "a" * 300, "FILE": str(IOSTAT)}
    assert cli.main([named.get(word, word) for word in words]) in (1, 2, 3)
    assert os.strerror(errno.ENAMETOOLONG) in capsys.readouterr().err
