"""Sweeps in virtual time that repeat a recorded history, from the command line."""

from __future__ import annotations

import json
from array import array
from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.codec import encode
from opwatch.ftl.models import predict_greedy_with_static
from opwatch.load.workload import find_workload
from opwatch.tools.cli import main
from opwatch.trim.history.changes import ChangeKind
from opwatch.trim.history.sectormap import SECTOR
from tests.unit.support.histories import ACTIVE, DRIVE, UNITS, make_requests, write_history
from tests.unit.support.sweeps import NAME, make_journal_entries

_LEAST_PAGES = 64


def _run_sweep(verb: str, path: Path, *words: str, virtual: str = "ideal") -> int:
    return main(["sweep", verb, "--virtual", virtual, "--op", "28%", "--workload", str(path), *words])


def _write_journal(folder: Path) -> str:
    """Write the sweep of a drive with the serial number and size of the histories; return it as a profile."""
    first, *others = make_journal_entries("0,7,28%")
    request = json.loads(first) | {"workload": encode(find_workload("random-4k"))}
    request["disk"] |= {"size_bytes": DRIVE.sectors * SECTOR}
    path = folder / f"{NAME}.journal"
    path.write_text("".join(f"{entry}\n" for entry in (json.dumps(request), *others)))
    return f"fitted:{path}"


def test_history_has_the_waf_of_a_disk_with_static_data(tmp_path: Path) -> None:
    path, output = write_history(tmp_path / "a.history", make_requests(20000)), tmp_path / "o.json"
    assert _run_sweep("run", path, "-q", "--base", "flash", "-o", str(output)) == 0
    answer = json.loads(output.read_text())
    [level] = answer["levels"]
    figures = level["figures"]
    # Requests overwrite one half of the disk, and the other half stays as it was filled.
    truth = predict_greedy_with_static(1.28, _LEAST_PAGES, ACTIVE / UNITS)
    assert level["opwatch"]["state"] == "pass"
    assert abs(figures["waf"] - truth) <= figures["waf_error"] < 0.05 * truth
    assert figures["iops"] is None and "history" in figures["missing"]["iops"]
    assert "a.history" in answer["workload"]


def test_history_of_another_drive_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fitted = _write_journal(tmp_path)
    own = write_history(tmp_path / "own.history", make_requests(20000))
    assert _run_sweep("plan", own, virtual=fitted) == 0
    other = replace(DRIVE, name="sdb", serial="S2")
    path = write_history(tmp_path / "other.history", make_requests(20000), drive=other)
    capsys.readouterr()
    for verb in ("plan", "run"):
        assert _run_sweep(verb, path, virtual=fitted) == 3
        captured = capsys.readouterr()
        assert not captured.out
        assert all(word in captured.err for word in ("other.history", "sdb", "S2", "S1", NAME))
    # The other size is another namespace of a drive with this serial number.
    namespace = replace(DRIVE, sectors=2 * DRIVE.sectors)
    path = write_history(tmp_path / "namespace.history", make_requests(20000), drive=namespace)
    assert _run_sweep("plan", path, virtual=fitted) == 3
    # A profile is no particular drive.
    assert _run_sweep("plan", path) == 0


def test_history_that_cannot_be_repeated_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writes = make_requests(20000)
    trims = writes._replace(kinds=bytes([ChangeKind.DISCARD]) * len(writes.kinds))
    beyond = writes._replace(sectors=array("Q", [DRIVE.sectors]) * len(writes.kinds))
    cut = write_history(tmp_path / "cut.history", writes)
    cut.write_bytes(cut.read_bytes()[:-4096])
    text = tmp_path / "text.history"
    text.write_text("rw=randwrite\n")
    refusals = {
        write_history(tmp_path / "trims.history", trims): (2, "no writes"),
        write_history(tmp_path / "empty.history", None): (1, "no requests"),
        write_history(tmp_path / "beyond.history", beyond): (1, "beyond the disk"),
        cut: (1, "not a readable history"),
        text: (1, "not a readable history"),
        tmp_path / "missing.history": (1, "No such file"),
    }
    for path, (status, reason) in refusals.items():
        assert (_run_sweep("run", path, "-q"), path.name) == (status, path.name)
        error = capsys.readouterr().err
        assert path.name in error and reason in error, error


@pytest.mark.parametrize("words", [("--bs", "8k"), ("--reads", "10%"), ("--seed", "2")])
def test_options_of_random_writes_are_refused_with_a_history(
    words: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_history(tmp_path / "a.history", make_requests(20000))
    assert _run_sweep("run", path, "-q", *words) == 2
    assert words[0] in capsys.readouterr().err


def test_file_is_a_history_by_its_content_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_history(tmp_path / "disk.opw", make_requests(20000))
    assert _run_sweep("plan", path) == 0
    assert "disk.opw" in capsys.readouterr().out
