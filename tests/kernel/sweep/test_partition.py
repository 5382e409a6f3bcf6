"""Levels by a partition: none remains however the sweep ends, and no write goes past the partition."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from opwatch.collectors.guard.openers import find_openers
from opwatch.errors import OpwatchError
from opwatch.host.device import BlockDevice, Devices
from opwatch.journal.file import list_journals
from opwatch.journal.state import SweepState
from opwatch.journal.undo import PartitionUndo
from opwatch.tools.acting.sweep.partition import create_level_partition
from tests.kernel.guard.test_refusals import hold_disk
from tests.kernel.support.drives import MIB, Drive, create_drive, run, run_plain_fio
from tests.kernel.support.filesystems import make_filesystem, mount_device
from tests.kernel.sweep.test_sweep import (
    _NOT_REACHED,
    _SHORT,
    make_arguments,
    parse_levels,
    read_sweep_state,
    require_free,
    run_sweep,
)
from tests.unit.sweep.test_journal import REQUEST

_BY_PARTITION = ("--method", "partition", *_SHORT)


def list_partitions(target: Drive) -> list[BlockDevice]:
    devices = Devices()
    disk = devices.by_name(Path(target.device).name)
    assert disk
    return devices.list_partitions(disk)


def list_part_names(target: Drive) -> list[str]:
    return [part.name for part in list_partitions(target)]


class Bench:
    """The members of a sweep's bench that a partition needs, with a list as the journal."""

    def __init__(self, claim: object, disk: object) -> None:
        self.claim, self.disk_claim, self.disk = claim, claim, disk
        self.entries = list[tuple[str, str]]()
        self.journal, self.state = self, SweepState(REQUEST)

    def append_entry(self, entry: str, fields: dict[str, str]) -> None:
        self.entries.append((entry, fields["undo"]))


def test_level_partition_bounds_all_writes_and_is_journaled() -> None:
    with create_drive(64 * MIB, "10%") as target, hold_disk(target.device) as claim:
        bench = Bench(claim, claim.disk)
        undo = str(PartitionUndo(16 * MIB))
        with create_level_partition(bench, 16 * MIB) as path:  # type: ignore[arg-type]  # what is asked of a bench
            assert bench.entries == [("changed", undo)]
            assert bench.state.undo == [undo]
            assert list_part_names(target) == [f"{claim.disk.name}p1"]
            # With a window, fio would have written the second half too.
            done = run_plain_fio(path, "--rw=write", "--bs=1m", "--size=32m")
            assert target.read_truth()["host_write_bytes"] <= 16 * MIB, done.stdout
        assert bench.entries == [("changed", undo), ("restored", undo)]
        assert (bench.state.undo, list_part_names(target)) == ([], [])


def test_error_during_a_level_leaves_no_partition() -> None:
    with create_drive(64 * MIB, "10%") as target, hold_disk(target.device) as claim:
        bench = Bench(claim, claim.disk)
        with (
            pytest.raises(OpwatchError, match="fio"),
            create_level_partition(bench, 16 * MIB),  # type: ignore[arg-type]  # what is asked of a bench
        ):
            raise OpwatchError("fio failed")
        assert bench.entries[-1][0] == "restored"
        assert list_part_names(target) == []


def test_sweep_by_partitions_measures_all_levels(tmp_path: Path) -> None:
    with create_drive(64 * MIB, "10%") as target:
        done = run_sweep("run", target, tmp_path, "--dev", target.device, *_BY_PARTITION)
        assert done.returncode == _NOT_REACHED, done.stderr
        require_free(target)
        assert list_part_names(target) == []
        written = target.read_truth()["host_write_bytes"]
    levels = parse_levels(done.stdout)
    assert [len(level["rounds"]) for level in levels] == [5, 5]
    assert written == sum(level["used_bytes"] for level in levels) + sum(
        one["host_bytes"] for level in levels for one in level["rounds"]
    )
    assert read_sweep_state(tmp_path).undo == []


def kill_with_partition(target: Drive, folder: Path, number: signal.Signals) -> int:
    """Signal a sweep while its partition exists, and return the exit status."""
    argv = make_arguments("run", target, folder, "--dev", target.device, *_BY_PARTITION, "-q")
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while not list_part_names(target) and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.5)
        assert list_part_names(target)
        process.send_signal(number)
        process.wait(timeout=60)
    # fio is killed with the sweep, and holds the partition open until it has ended.
    deadline = time.monotonic() + 20
    while find_openers([part.dev for part in list_partitions(target)]).openers:
        assert time.monotonic() < deadline, "a fio is left"
        time.sleep(0.05)
    return process.returncode


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_leaves_no_partition(number: signal.Signals, tmp_path: Path) -> None:
    with create_drive(64 * MIB, "10%") as target:
        assert kill_with_partition(target, tmp_path, number) == 7
        require_free(target)
        assert list_part_names(target) == []
        assert read_sweep_state(tmp_path).undo == []


def test_resume_after_a_kill_removes_the_partition(tmp_path: Path) -> None:
    with create_drive(64 * MIB, "10%") as target:
        assert kill_with_partition(target, tmp_path, signal.SIGKILL) == -signal.SIGKILL
        require_free(target)
        [part] = list_part_names(target)
        assert read_sweep_state(tmp_path).undo == [str(PartitionUndo(64 * MIB))]
        name = list_journals(tmp_path)[0]
        # While another user holds the partition, nothing is undone.
        point = tmp_path / "point"
        point.mkdir()
        make_filesystem("ext4", f"/dev/{part}")
        with mount_device(f"/dev/{part}", point):
            done = run_sweep("resume", target, tmp_path, name, "-q")
            assert done.returncode == 3
            # The fill was written before.
            assert str(point) in done.stderr and "nothing was written" not in done.stderr
        assert list_part_names(target) == [part]
        run("wipefs", "--all", f"/dev/{part}")
        done = run_sweep("resume", target, tmp_path, name, "-q")
        assert done.returncode == _NOT_REACHED, done.stderr
        assert list_part_names(target) == []
        assert (read_sweep_state(tmp_path).undo, read_sweep_state(tmp_path).is_ended) == ([], True)


def delete_partition(target: Drive) -> None:
    """Delete the partition, retrying until the kernel has closed the files of a killed process."""
    deadline = time.monotonic() + 10
    while subprocess.run(["delpart", target.device, "1"], check=False, capture_output=True).returncode:
        assert time.monotonic() < deadline, "the partition stays open"
        time.sleep(0.1)


def test_partition_of_another_tool_is_not_removed(tmp_path: Path) -> None:
    with create_drive(64 * MIB, "10%") as target:
        kill_with_partition(target, tmp_path, signal.SIGKILL)
        require_free(target)
        delete_partition(target)
        run("addpart", target.device, "1", "2048", "4096")
        done = run_sweep("resume", target, tmp_path, list_journals(tmp_path)[0], "-q")
        assert done.returncode == 3
        assert "delete the partition" in done.stderr
        assert len(list_part_names(target)) == 1
        run("delpart", target.device, "1")
