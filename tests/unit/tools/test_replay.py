"""A replay that continues on request."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from opwatch.tools import cli

RECORDING = Path(__file__).parents[2] / "fixtures" / "good" / "recordings" / "1.opw.gz"


@pytest.fixture
def kept(tmp_path: Path) -> str:
    path = tmp_path / "run.opw"
    path.write_bytes(gzip.decompress(RECORDING.read_bytes()))
    return str(path)


def replay_lines(capsys: pytest.CaptureFixture[str], *argv: str) -> list[dict[str, Any]]:
    assert cli.main(["replay", "--json", *argv]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("typed", "count"), [("", 1), ("q\n", 1), ("\n", 2), ("\nwhat\nq\n", 2), ("2\n", 3), ("\n1\nq\n", 3)]
)
def test_step_shows_one_interval(
    kept: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, typed: str, count: int
) -> None:
    whole = replay_lines(capsys, kept)
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    trees = replay_lines(capsys, kept, "--step")
    ends = sorted(
        {tree["end_mono_ns"] for tree in trees if tree["type"] == "interval" and tree["device"] == "sda"}
    )
    all_ends = [
        tree["end_mono_ns"] for tree in whole if tree["type"] == "interval" and tree["device"] == "sda"
    ]
    assert ends == all_ends[:count]
    # The summary covers the part that was shown.
    [summary] = [tree for tree in trees if tree["type"] == "summary" and tree["device"] == "sda"]
    assert summary["end_mono_ns"] == all_ends[count - 1]


def test_stepping_through_the_run_shows_the_same_output(
    kept: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = replay_lines(capsys, kept)
    monkeypatch.setattr("sys.stdin", io.StringIO("999999999\n"))
    assert replay_lines(capsys, kept, "--step") == whole


def test_step_and_speed_exclude_each_other(kept: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["replay", kept, "--step", "--speed", "2"])
    assert end.value.code == 2
    assert "--step" in capsys.readouterr().err
