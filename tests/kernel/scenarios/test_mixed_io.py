"""Mixed I/O on the test's own file system: fio's counts equal the kernel's, and no file is left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from opwatch.scenarios.experiment_file import read_experiments
from opwatch.scenarios.experiment_journal import ExperimentState
from tests.kernel.support.trims import MIB, create_file, create_loop, mount_filesystem
from tests.unit.scenarios.test_untrimmed import find_problems

COMMAND = (sys.executable, "-m", "opwatch", "sweep", "run", "--scenario", "mixed-io", "-q")


@pytest.fixture
def point() -> Iterator[Path]:
    with create_file(96 * MIB) as image, create_loop(image) as node, mount_filesystem(node, "ext4") as where:
        yield where


def _read_free_bytes(point: Path) -> int:
    space = os.statvfs(point)
    return space.f_bfree * space.f_frsize


def test_kernel_counts_match_the_requests_of_the_load(point: Path, tmp_path: Path) -> None:
    before = _read_free_bytes(point)
    words = ("--on", f"one={point}", "--set", "run_s=1s", "--set", "threads=4", "--journals", str(tmp_path))
    argv = [*COMMAND, *words, "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert find_problems(document) == []
    [one] = document["configurations"]
    assert one["kind"] == "loop" and len(one["rates"]) == 6
    for rate in one["rates"]:
        [member] = rate["members"]
        # No request is merged or split here; the file system's journal adds some writes.
        assert rate["reads"] <= member["reads"] <= rate["reads"] + 64
        assert rate["writes"] <= member["writes"] <= rate["writes"] + 64
        assert member["read_bytes"] >= rate["reads"] * rate["xfersize"]
    ratios = [rate["reads"] / (rate["reads"] + rate["writes"]) for rate in one["rates"]]
    assert ratios == pytest.approx([0.75, 0.25, 0.75, 0.25, 1.0, 0.0], abs=0.05)
    assert sorted(os.listdir(point)) == ["lost+found"] and _read_free_bytes(point) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_run_leaves_no_file(point: Path, tmp_path: Path, number: int) -> None:
    before = _read_free_bytes(point)
    words = ("--on", f"one={point}", "--set", "run_s=60s", "--journals", str(tmp_path))
    with subprocess.Popen([*COMMAND, *words], stderr=subprocess.PIPE, text=True) as running:
        deadline = time.monotonic() + 60
        # The file exists once it takes space.
        while _read_free_bytes(point) > before - 16 * MIB:
            assert time.monotonic() < deadline and running.poll() is None
            time.sleep(0.05)
        running.send_signal(number)
        running.communicate(timeout=60)
    assert running.returncode == (7 if number == signal.SIGINT else -number)
    deadline = time.monotonic() + 20
    while _read_free_bytes(point) != before:
        assert time.monotonic() < deadline, "space is still taken"
        time.sleep(0.1)
    assert sorted(os.listdir(point)) == ["lost+found"]


# SIGKILL is the case in which the run cannot clean up by itself.
RESUMED_SIGNALS = (
    *(pytest.param(number, marks=pytest.mark.manual) for number in (signal.SIGINT, signal.SIGTERM)),
    signal.SIGKILL,
)


@pytest.mark.parametrize("number", RESUMED_SIGNALS)
def test_resume_keeps_finished_rates_and_measures_the_rest(point: Path, tmp_path: Path, number: int) -> None:
    """In between, no file and no fio is left, and the file system is not in use."""
    before, journals = _read_free_bytes(point), ("--journals", str(tmp_path))
    words = ("--on", f"one={point}", "--set", "run_s=2s", "--set", "threads=2", *journals)
    with subprocess.Popen([*COMMAND, *words], stderr=subprocess.PIPE, text=True) as running:
        deadline = time.monotonic() + 120
        while not _list_recorded(tmp_path) or not _list_recorded(tmp_path)[0][1].completed_count:
            assert time.monotonic() < deadline and running.poll() is None
            time.sleep(0.05)
        running.send_signal(number)
        said = running.communicate(timeout=60)[1]
    assert running.returncode == (-number if number == signal.SIGKILL else 7)
    [(name, state)] = _list_recorded(tmp_path)
    assert (f"opwatch sweep resume {name} --journals {tmp_path}" in said) == (number != signal.SIGKILL)
    deadline = time.monotonic() + 20
    while _read_free_bytes(point) != before:
        assert time.monotonic() < deadline, "space is still taken"
        time.sleep(0.1)
    kept = state.rates["one"]
    assert 0 < len(kept) < 6 and not state.is_ended
    again = (*COMMAND[:4], "resume", name, *journals, "-q", "--json", "-o", str(tmp_path / "kept.json"))
    done = subprocess.run(again, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert find_problems(document) == [] and document == json.loads((tmp_path / "kept.json").read_text())
    rates = document["configurations"][0]["rates"]
    assert [rate["reads"] for rate in rates[: len(kept)]] == [rate.reads for rate in kept]
    assert len(rates) == 6 and _list_recorded(tmp_path)[0][1].is_ended
    assert sorted(os.listdir(point)) == ["lost+found"] and _read_free_bytes(point) == before


def test_resume_is_refused_on_another_filesystem(point: Path, tmp_path: Path) -> None:
    words = ("--on", f"one={point}", "--set", "run_s=1s", "--journals", str(tmp_path))
    with subprocess.Popen([*COMMAND, *words], stderr=subprocess.DEVNULL) as running:
        deadline = time.monotonic() + 60
        while not _list_recorded(tmp_path):
            assert time.monotonic() < deadline and running.poll() is None
            time.sleep(0.05)
        running.kill()
    [(name, state)] = _list_recorded(tmp_path)
    path = tmp_path / f"{name}.experiment"
    path.write_text(path.read_text().replace(state.request.places[0].mark, "another"))
    again = (*COMMAND[:4], "resume", name, "--journals", str(tmp_path), "-q")
    done = subprocess.run(again, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert "not the filesystem" in done.stderr


def test_sysbench_load_matches_the_kernel_counts(point: Path, tmp_path: Path) -> None:
    if not shutil.which("sysbench"):
        pytest.skip("sysbench is not installed")
    words = ("--load", "sysbench", "--workload", "rndwr", "--journals", str(tmp_path), "--json")
    more = ("--on", f"one={point}", "--set", "run_s=2s", "--set", "threads=4")
    # A folder of its own, because other tests run sysbench at the same time.
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = os.environ | {"TMPDIR": str(temporary)}
    argv = [*COMMAND, *words, *more]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["workload"].endswith(", by sysbench")
    [rate] = document["configurations"][0]["rates"]
    [member] = rate["members"]
    assert rate["reads"] == 0 < rate["writes"] <= member["writes"] <= rate["writes"] + 64
    assert rate["bytes_per_s"] == pytest.approx(rate["iops"] * 16384)
    assert sorted(os.listdir(point)) == ["lost+found"]
    assert not list(temporary.iterdir())


def _list_recorded(folder: Path) -> list[tuple[str, ExperimentState]]:
    return [(name, state) for name, state in read_experiments(folder) if isinstance(state, ExperimentState)]
