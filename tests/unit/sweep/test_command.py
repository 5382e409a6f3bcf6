"""Arguments and exit statuses of `opwatch sweep`."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.codec import encode
from opwatch.journal.file import FOLDER, create_sweep_journal
from opwatch.journal.state import SweepState
from opwatch.steady.strict import StrictState
from opwatch.sweep.room import FilesPlace
from opwatch.tools.cli import main
from opwatch.tools.commands.sweep.running import print_outcomes
from tests.unit.sweep.test_journal import RECORD, REQUEST
from tests.unit.sweep.test_returns import VERDICT, make_outcomes


@pytest.mark.parametrize(
    ("states", "status"),
    [
        ((StrictState.PASS, StrictState.PASS), 0),
        ((StrictState.PASS, StrictState.NOT_REACHED), 6),
        ((StrictState.UNPROVEN, StrictState.PASS), 6),
        ((StrictState.UNPROVEN, StrictState.UNPROVEN), 6),
    ],
)
def test_unproven_steady_state_is_not_a_success(
    states: tuple[StrictState, ...], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = [
        replace(outcome, figures=RECORD.figures, strict=replace(VERDICT, state=state))
        for outcome, state in zip(make_outcomes((1.0, 1.0), (1.0, 1.0)), states, strict=True)
    ]
    assert print_outcomes(SweepState(REQUEST), measured, json=False) == status
    assert "nvme0n1" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ("--max-life", "3"),
        ("--max-life", "1"),
        ("--max-temperature", "70"),
        ("--max-write", "1G"),
        ("--settle", "1"),
        ("--purge", "format"),
        ("--journals", "/nowhere"),
        ("--refresh", "1"),
    ],
)
def test_drive_options_are_refused_for_a_model(
    words: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", "run", "--virtual", "ideal", "--op", "28%", "--rounds", "5", "-q", *words]) == 2
    error = capsys.readouterr().err
    assert words[0] in error and " --dev" in error


@pytest.mark.parametrize("verb", ["plan", "run"])
def test_model_supports_only_windows(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["sweep", verb, "--virtual", "ideal", "--op", "28%", "--rounds", "5", "--method", "namespace"]
    assert main(argv) == 2
    assert "--method namespace" in capsys.readouterr().err


def test_list_shows_the_started_sweeps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with create_sweep_journal(tmp_path, REQUEST) as journal:
        journal.append_entry("outcome", encode(RECORD))
        journal.append_entry("changed", {"undo": "partition 1: 1048576 bytes from the begin"})
    (tmp_path / "20260102-000000-abcd.journal").write_text("{}\n")
    assert main(["sweep", "list", "--journals", str(tmp_path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert re.search(rf"3 levels, .* 2 to go: opwatch sweep resume {REQUEST.name}", text)
    assert ": partition 1: 1048576 bytes" in text
    assert main(["sweep", "list", "--json", "--journals", str(tmp_path)]) == 0
    first, second = json.loads(capsys.readouterr().out)["sweeps"]
    assert (first["left"], first["is_ended"], first["problem"]) == (2, False, None)
    assert first["undo"] == ["partition 1: 1048576 bytes from the begin"]
    assert second["problem"]


def test_list_reports_an_unreadable_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["sweep", "list", "--journals", str(tmp_path / "file")]) == 1
    out, err = capsys.readouterr()
    assert "--method" in out and str(tmp_path / "file") in err


def test_list_without_root_shows_what_needs_no_journals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    iterate = Path.iterdir

    def refuse(path: Path) -> Iterator[Path]:
        if path in (FOLDER, tmp_path):
            raise PermissionError(errno.EACCES, "Permission denied")
        return iterate(path)

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert main(["sweep", "list"]) == 0
    out, err = capsys.readouterr()
    assert "--method" in out and "root" in err
    assert main(["sweep", "list", "--json"]) == 0
    assert "root" in json.loads(capsys.readouterr().out)["problem"]
    # Whoever names a folder asks for its sweeps.
    assert main(["sweep", "list", "--journals", str(tmp_path)]) == 4


def test_list_distinguishes_no_sweeps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "list", "--journals", str(tmp_path / "none")]) == 0
    assert f"no sweeps in {tmp_path / 'none'}" in capsys.readouterr().out


def test_list_names_leftover_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = replace(REQUEST, method="file", place=FilesPlace("/data", 0, 1 << 30))
    with create_sweep_journal(tmp_path, request) as journal:
        journal.append_entry("changed", {"undo": "files in .opwatch-sweep-20260101-000000-abcd"})
    assert main(["sweep", "list", "--journals", str(tmp_path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert re.search(r" /data .*: files in \.opwatch-sweep-20260101-000000-abcd", text)
