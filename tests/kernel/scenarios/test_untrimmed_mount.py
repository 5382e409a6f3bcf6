"""The untrimmed cliff on a real file system of a simulated drive: predicted, then found by its counters."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opwatch.errors import Unsupported
from opwatch.host.device import Devices
from opwatch.scenarios.experiment_file import read_experiments
from opwatch.scenarios.experiment_journal import ExperimentState
from opwatch.tools.acting.scenarios.untrimmed import make_untrimmed_place
from tests.kernel.support.drives import MIB, create_drive
from tests.kernel.support.trims import create_file, create_loop, mount_filesystem
from tests.unit.scenarios.test_untrimmed import find_problems

COMMAND = (sys.executable, "-m", "opwatch", "sweep", "run", "--scenario", "untrimmed-cliff", "-q", "--json")


@pytest.fixture
def point() -> Iterator[Path]:
    with create_drive(768 * MIB, "7%") as made, mount_filesystem(made.device, "ext4") as where:
        yield where


@pytest.mark.parametrize("loader", ["fio", "sysbench"])
def test_untrimmed_cliff_occurs_at_the_predicted_bytes(point: Path, tmp_path: Path, loader: str) -> None:
    if not shutil.which(loader):
        pytest.skip(f"{loader} is not installed")
    more = ("--load", loader, "--journals", str(tmp_path))
    argv = [*COMMAND, "--on", f"here={point}", "--set", "rounds=6", *more]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert find_problems(document) == []
    untrimmed, shrunk, trimmed = document["runs"]
    assert abs(untrimmed["error_ratio"]) < 0.02
    assert untrimmed["stale_bytes"] > 0.3 * (768 << 20) and trimmed["stale_bytes"] == 0
    # Stale space is free for the file system but not for the drive.
    assert untrimmed["free_bytes"] > 2 * untrimmed["room_bytes"]
    assert shrunk["cliff_bytes"] is None and trimmed["cliff_bytes"] is None
    assert trimmed["room_bytes"] > 2 * untrimmed["room_bytes"]
    assert [one.name for one in point.iterdir()] == ["lost+found"]


def test_prediction_is_unsupported_for_other_drives() -> None:
    with (
        create_file(96 * MIB) as image,
        create_loop(image) as node,
        mount_filesystem(node, "ext4") as where,
        pytest.raises(Unsupported, match="simulated"),
    ):
        make_untrimmed_place(Devices(), where)


@pytest.mark.manual
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_resume_keeps_finished_runs(point: Path, tmp_path: Path, number: int) -> None:
    """A stop in the second run repeats the run from its trim; the first run is kept."""
    argv = [*COMMAND, "--on", f"here={point}", "--set", "rounds=4", "--journals", str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        deadline = time.monotonic() + 300
        while not (state := _read_state(tmp_path)) or not state.runs:
            assert time.monotonic() < deadline and running.poll() is None
            time.sleep(0.05)
        running.send_signal(number)
        running.wait(60)
    assert running.returncode == (-number if number == signal.SIGKILL else 7)
    state = _read_state(tmp_path)
    assert state and len(state.runs) in (1, 2) and not state.is_ended
    again = [*COMMAND[:4], "resume", state.request.name, "--journals", str(tmp_path), "-q", "--json"]
    done = subprocess.run(again, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert find_problems(document) == []
    untrimmed, shrunk, trimmed = document["runs"]
    assert untrimmed["cliff_bytes"] == state.runs[0].cliff_bytes
    assert abs(untrimmed["error_ratio"]) < 0.02
    assert shrunk["cliff_bytes"] is None and trimmed["cliff_bytes"] is None
    assert len({round(one["rounds"][0]["host_bytes"]) for one in document["runs"]}) == 1
    assert [one.name for one in point.iterdir()] == ["lost+found"]


def test_blocks_smaller_than_a_drive_unit_are_refused(tmp_path: Path) -> None:
    """mkfs.ext4's choice for a small drive: writes of 16 KiB start within a drive's unit and touch five."""
    with create_drive(256 * MIB, "7%") as made, create_mount(made.device, "-b", "1024") as where:
        before = made.read_truth()["host_write_bytes"]
        with pytest.raises(Unsupported, match=r"\b1024 bytes.*mkfs -b 4096"):
            make_untrimmed_place(Devices(), where)
        assert made.read_truth()["host_write_bytes"] == before


@contextlib.contextmanager
def create_mount(device: str, *words: str) -> Iterator[Path]:
    subprocess.run(["mkfs.ext4", "-q", "-F", "-E", "nodiscard", *words, device], check=True)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["mount", device, folder], check=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)


def _read_state(folder: Path) -> ExperimentState | None:
    return next((one for _, one in read_experiments(folder) if isinstance(one, ExperimentState)), None)
