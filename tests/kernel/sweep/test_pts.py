"""SNIA's tests by name, with real fio on a simulated drive, at minimal size."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from opwatch.journal.file import list_journals
from tests.kernel.support.drives import MIB, Drive, create_drive
from tests.kernel.sweep.test_sweep import (
    _NOT_REACHED,
    make_arguments,
    read_sweep_state,
    require_free,
    run_sweep,
)

_SHORT = ("--settle", "0", "--scale", "0.01%", "-q")


def run_pts(target: Drive, folder: Path, name: str, *more: str) -> dict[str, Any]:
    done = run_sweep("run", target, folder, "--dev", target.device, "--test", name, *_SHORT, *more)
    assert done.returncode in (0, _NOT_REACHED), done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if answer["is_whole"] else _NOT_REACHED)
    assert answer["is_ended"]
    assert not answer["is_conforming"]
    require_free(target)
    return answer


def sum_written(answer: dict[str, Any]) -> int:
    return sum(sample["write_bytes"] for part in answer["parts"] for sample in part["samples"])


def test_saturation_ends_in_steady_state_or_after_four_capacities(tmp_path: Path) -> None:
    with create_drive(64 * MIB, "10%") as target:
        answer = run_pts(target, tmp_path, "wsat")
        [part] = answer["parts"]
        assert part["ended_by"] in ("steady", "capacity")
        # A round that the bound cut off yields no figures, but the drive counts its bytes.
        assert 0 < sum_written(answer) <= target.read_truth()["host_write_bytes"] <= 4 * 64 * MIB
        assert {sample["block_bytes"] for sample in part["samples"]} == {4096}
        assert all(sample["iops"] > 0 and sample["mean_ns"] > 0 for sample in part["samples"])
        # Announced bytes that were not written are given back.
        assert sum_written(answer) <= read_sweep_state(tmp_path).announced_bytes <= 4 * 64 * MIB
        assert answer["header"]["serial"] == target.read_truth()["serial"]
        assert answer["header"]["software_version"].count("fio")


def test_iops_matrix_has_all_points(tmp_path: Path) -> None:
    with create_drive(32 * MIB, "10%") as target:
        answer = run_pts(target, tmp_path, "iops", "--rounds", "1", "--max-write", "20G")
        before = target.read_truth()["host_write_bytes"]
    [part] = answer["parts"]
    assert (part["pts"], part["ended_by"]) == (None, "rounds")
    assert len({figures["name"] for figures in part["figures"]}) == 56
    # Twice the capacity for preconditioning, plus the points' writes: the report covers every byte.
    assert before == 2 * 32 * MIB + sum_written(answer)
    for sample in part["samples"]:
        share = sample["write_bytes"] / (sample["read_bytes"] + sample["write_bytes"])
        few = 5 / sample["ios"] ** 0.5
        assert abs(share - (1 - sample["read_percent"] / 100)) <= few


def test_throughput_resumes_with_the_remaining_part_after_a_kill(tmp_path: Path) -> None:
    with create_drive(32 * MIB, "10%") as target:
        run = ("--dev", target.device, "--test", "throughput", "--rounds", "5", "--max-write", "100G")
        argv = make_arguments("run", target, tmp_path, *run, *_SHORT)
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            deadline = time.monotonic() + 60
            while not any('"entry":"part"' in path.read_text() for path in tmp_path.glob("*.journal")):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            process.send_signal(signal.SIGKILL)
        require_free(target)
        state = read_sweep_state(tmp_path)
        assert state.remaining_levels == (1,)
        first = state.parts[0]
        done = run_sweep("resume", target, tmp_path, list_journals(tmp_path)[0], "-q")
        assert done.returncode in (0, _NOT_REACHED), done.stderr
        require_free(target)
        assert read_sweep_state(tmp_path).parts[0] == first
    parts = json.loads(done.stdout)["parts"]
    assert [part["name"] for part in parts] == ["throughput-128k", "throughput-1024k"]
    assert [part["pts"]["rounds"] for part in parts] == [5, 5]
    for part in parts:
        assert [figures["read_percent"] for figures in part["figures"]] == [100, 0]
        assert all(figures["megabytes_per_s"] > 0 for figures in part["figures"])


@pytest.mark.manual
def test_cross_stimulus_and_host_idle_recovery_report_their_series(tmp_path: Path) -> None:
    with create_drive(32 * MIB, "10%") as target:
        crossing = run_pts(target, tmp_path / "xsr", "xsr", "--max-write", "100G")
        idle = run_pts(target, tmp_path / "hir", "hir", "--rounds", "1", "--max-write", "100G")
        spent = run_pts(target, tmp_path / "spent", "wsat", "--max-write", "5M")
    [part] = crossing["parts"]
    assert part["ended_by"] == "done"
    assert [stage["name"] for stage in part["stages"]] == [f"stretch {number}" for number in (1, 2, 3)]
    series = [(stage["loads"], stage["max_ns"]) for stage in part["stages"]]
    assert all(loads >= 10 and max_ns for loads, max_ns in series), series
    [part] = idle["parts"]
    assert len(part["stages"]) == 10
    # The starts of two bursts are at least the pause and one burst apart.
    pauses = [sample for sample in part["samples"] if sample["stage"] == "pause 50 s"]
    assert all(later["begin_s"] - earlier["begin_s"] >= 1.0 for earlier, later in itertools.pairwise(pauses))
    assert [part["ended_by"] for part in spent["parts"]] == ["budget"]
    assert not spent["is_whole"]


def test_latency_test_has_a_single_outstanding_request(tmp_path: Path) -> None:
    with create_drive(32 * MIB, "10%") as target:
        answer = run_pts(target, tmp_path, "latency", "--rounds", "1", "--max-write", "10G")
    [part] = answer["parts"]
    assert len(part["figures"]) == 9
    for sample in part["samples"]:
        # With one outstanding request, the sum of all latencies fits into the elapsed time.
        assert sample["mean_ns"] * sample["ios"] <= sample["seconds"] * 1e9 * 1.2
    assert answer["header"]["outstanding_ios_per_thread"] == answer["header"]["threads"] == 1
