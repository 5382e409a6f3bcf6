"""Experiments with levels on a simulated drive: under the protocol, killed midway, and resumed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from opwatch.codec import encode
from opwatch.journal.file import list_journals
from tests.kernel.support.drives import MIB, create_drive
from tests.kernel.sweep.test_sweep import make_arguments, read_sweep_state, require_free, run_sweep

# Too few rounds for a level to be certain of steady state.
_SHORT = ("--settle", "0", "--rounds", "5", "--round", "50%", "--refresh", "0")
_NOT_REACHED, _STOPPED, _REFUSED = 6, 7, 4


def _parse_scenario(text: str) -> dict[str, Any]:
    scenario: dict[str, Any] = json.loads(text)["scenario"]
    return scenario


def test_run_writes_no_byte_without_the_serial_number(tmp_path: Path) -> None:
    with create_drive(64 * MIB, "10%") as target:
        before = target.read_truth()["host_write_bytes"]
        done = run_sweep(
            "run",
            target,
            tmp_path,
            "--dev",
            target.device,
            "--scenario",
            "write-saturation",
            "--confirm",
            "X",
        )
        assert done.returncode != 0
        assert target.read_truth()["host_write_bytes"] == before
    assert list_journals(tmp_path) == []


# SIGKILL is the case in which the run cannot clean up by itself.
RESUMED_SIGNALS = (
    *(pytest.param(number, marks=pytest.mark.manual) for number in (signal.SIGINT, signal.SIGTERM)),
    signal.SIGKILL,
)


@pytest.mark.parametrize("ended_by", RESUMED_SIGNALS)
def test_resume_keeps_finished_levels_and_measures_the_rest(ended_by: signal.Signals, tmp_path: Path) -> None:
    with create_drive(64 * MIB, "10%") as target:
        argv = make_arguments(
            "run", target, tmp_path, "--dev", target.device, "--scenario", "write-saturation", *_SHORT
        )
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            _wait_for_a_level(tmp_path)
            process.send_signal(ended_by)
            status = process.wait(60)
        assert status == (-signal.SIGKILL if ended_by is signal.SIGKILL else _STOPPED)
        require_free(target)
        kept = read_sweep_state(tmp_path).records
        assert kept
        assert 0 < len(read_sweep_state(tmp_path).remaining_levels) < 3
        done = run_sweep("resume", target, tmp_path, *list_journals(tmp_path))
        assert done.returncode == _NOT_REACHED, done.stderr
        require_free(target)
        after = read_sweep_state(tmp_path)
        assert all(encode(after.records[place]) == encode(record) for place, record in kept.items())
        assert after.undo == []
        # The drive was discarded at the end, so it holds no data.
        assert target.read_truth()["valid_bytes"] == 0
    levels = _parse_scenario(done.stdout)["levels"]
    assert [level["label"] for level in levels] == ["0 %", "11.4 %", "30.1 %"]
    assert {level["likeness"] for level in levels} == {"cannot be told"}
    assert all(level["gain"] is None and level["steady_iops"] is None for level in levels)
    assert all(level["predicted_cliff_bytes"] == pytest.approx(70.4 * MIB, rel=0.1) for level in levels)


def _wait_for_a_level(folder: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if any('"outcome"' in path.read_text() for path in folder.glob("*.journal")):
            return
        time.sleep(0.05)
    pytest.fail("no level came to its end")


def test_reserved_space_uses_a_partition_that_is_removed_afterwards(tmp_path: Path) -> None:
    more = ("--scenario", "free-space", "--op", "60,50%", *_SHORT)
    with create_drive(64 * MIB, "10%") as target:
        done = run_sweep("run", target, tmp_path, "--dev", target.device, *more)
        assert done.returncode == _NOT_REACHED, done.stderr
        require_free(target)
        name = Path(target.device).name
        assert not list(Path(f"/sys/block/{name}").glob(f"{name}p*"))
    document = json.loads(done.stdout)
    assert [level["label"] for level in document["levels"]][2:] == ["60 %, reserved", "50 %, reserved"]
    assert [level["capacity_bytes"] // MIB for level in document["levels"]] == [64, 64, 48, 48]
    assert len(document["scenario"]["points"]) == 2
    assert document["scenario"]["statements"][0]["verdict"] == "cannot be told"


def test_reads_and_writes_are_measured_on_the_empty_and_on_the_full_drive(tmp_path: Path) -> None:
    """Killed after one level, resumed, recorded: each kind of I/O has a rate and CPU time."""
    more = ("--scenario", "iometer-op10", "--set", "probe_s=1s", *_SHORT)
    with create_drive(64 * MIB, "10%") as target:
        argv = make_arguments("run", target, tmp_path, "--dev", target.device, *more)
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            _wait_for_a_level(tmp_path)
            process.kill()
            process.wait(60)
        require_free(target)
        kept = read_sweep_state(tmp_path).records
        recording = tmp_path / "rest.opw"
        done = run_sweep("resume", target, tmp_path, *list_journals(tmp_path), "-o", str(recording))
        assert done.returncode == _NOT_REACHED, done.stderr
        require_free(target)
        assert target.read_truth()["valid_bytes"] == 0
        assert read_sweep_state(tmp_path).records[0].probes == kept[0].probes
    rates = _parse_scenario(done.stdout)["rates"]
    assert [(rate["op"], rate["is_full"]) for rate in rates] == [
        *(("read", False), ("write", False), ("read", True), ("write", True))
    ] * 2
    for rate in rates:
        # An operation without steady state has no rate, and a reason.
        is_known = not (rate["op"] == "write" and rate["is_full"])
        assert (rate["iops"] is not None) == is_known
        assert not is_known or (rate["mean_ns"] > 0 and rate["cpu_ratio"] > 0)
    assert {rate["level"] for rate in rates} == {"0 %", "10 %"}
    dumped = subprocess.run(
        [sys.executable, "-m", "opwatch", "report", str(recording), "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
    assert "level 10 %: read, empty" in dumped and "level 10 %: write, empty" in dumped
