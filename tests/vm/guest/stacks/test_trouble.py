"""Requests that fail, are requeued, complete in parts or lose their disk are explained too."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from opwatch.collectors.block import blk
from tests.kernel.support.load import reads
from tests.vm.guest.support import removal, stacked, sysfs
from tests.vm.guest.support.copies import start_opwatch
from tests.vm.guest.support.exact import assert_explained, observe_disks, run_and_check
from tests.vm.guest.support.nullblk import Irq, NullBlk, create_null_blk
from tests.vm.guest.support.reading_checks import observe_readings
from tests.vm.guest.support.scsidebug import BAD_SECTORS, Opts, load_scsi_debug
from tests.vm.guest.support.shell import write_attribute
from tests.vm.guest.support.workload import Fio, run_fio

DEVICES = ("nvme", "virtio-blk")
TIERS = ("full",)
CPUS = 2
TIMEOUT_S = 1800
# Minimum number of times that a CPU goes offline and online while requests are in flight.
MIN_CHANGES = 3
READS = Fio("read", 1009, iodepth=4)


@pytest.mark.parametrize("scheduler", [pytest.param("none", marks=pytest.mark.manual), "mq-deadline"])
def test_requeued_requests_are_explained(scheduler: str) -> None:
    with load_scsi_debug() as scsi, scsi.inject_faults(Opts.HOST_BUSY, every_nth=7):
        write_attribute(sysfs.SYS_BLOCK / scsi.name / "queue/scheduler", scheduler)
        _, watched = run_and_check(f"scsi_debug busy {scheduler}", scsi.name, READS)
    assert watched.trust.requeued > 50
    assert watched.trust.issued == watched.trust.completed


@pytest.mark.manual
def test_shared_tag_set_of_all_queues_is_explained() -> None:
    """host_max_queue gives scsi_debug a host_tagset: many queues with one set of tags."""
    with load_scsi_debug(submit_queues=2, host_max_queue=64) as scsi:
        assert sysfs.count_hardware_queues(scsi.name) == 2
        _, watched = run_and_check(
            "scsi_debug shared tags", scsi.name, Fio("randrw", 4001, jobs=2, iodepth=48)
        )
    assert watched.trust.map_full == 0


def test_tags_beyond_the_array_go_to_the_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blk, "MAX_STAMPS", 8)
    with create_null_blk(NullBlk(irqmode=Irq.TIMER, submit_queues=2)) as disk:
        run_and_check("null_blk by hash", disk, Fio("randrw", 20_011, jobs=2, iodepth=32))


def test_partial_completions_are_explained() -> None:
    with load_scsi_debug() as scsi, scsi.inject_faults(Opts.SHORT_TRANSFER, every_nth=5):
        _, watched = run_and_check("scsi_debug short transfer", scsi.name, READS)
    assert watched.trust.partial > 50
    assert watched.count_by_op()["read"][1] == 1009 * 4096


def test_medium_errors_are_counted_by_status() -> None:
    first = BAD_SECTORS.start * 512 // 4096 * 4096
    job = Fio("read", 5, iodepth=1, extra=(f"--offset={first}",), goes_on=True)
    with load_scsi_debug() as scsi:
        [watched] = observe_disks(
            [scsi.name], lambda: _assert_two_errors(scsi.name, job, scsi.inject_faults(Opts.MEDIUM_ERROR))
        )
    read = watched.interval.ops["read"]
    assert read.statuses.get("medium", 0) >= 2
    assert read.errors == sum(read.statuses.values())
    assert_explained("scsi_debug medium error", watched)


def _assert_two_errors(name: str, job: Fio, trouble: object) -> None:
    with trouble:  # type: ignore[attr-defined]
        assert run_fio(name, job).errors == 2


@pytest.mark.manual
def test_bios_failed_by_dm_flakey_are_not_counted_below() -> None:
    """dm-flakey fails bios before a request exists, so the disk below sees no request."""
    with (
        create_null_blk(NullBlk(size=64, memory_backed=1)) as below,
        stacked.create_flakey(below, up_s=0, down_s=60) as top,
    ):
        job = Fio("write", 17, iodepth=1, goes_on=True)
        [watched] = observe_disks([top.name], lambda: _assert_all_fail(top.name, job))
    assert "write" not in watched.count_by_op()
    assert_explained("dm-flakey below", watched)


def _assert_all_fail(name: str, job: Fio) -> None:
    assert run_fio(name, job).errors == 17


@pytest.mark.parametrize(
    ("device", "serial"),
    [
        ("nvme-plain", "opw-nvme"),
        pytest.param("virtio-blk", "opw-virtio-blk", marks=pytest.mark.manual),
    ],
)
def test_watch_ends_when_its_disk_is_unplugged_under_load(device: str, serial: str) -> None:
    disk = sysfs.disk(serial)
    argv = Fio("randread", 1 << 30, iodepth=4).build_argv(f"/dev/{disk}")
    before = sysfs.read_stat(disk).reads
    with start_opwatch("--dev", disk, "-q", "0.2", "--", *argv) as watch:
        sysfs.wait_for("reads", lambda: sysfs.read_stat(disk).reads > before + 100)
        time.sleep(1)
        removal.unplug_device(device, disk)
        done = watch.wait()
    assert done.returncode == 1, done.stderr
    assert f"{disk} is gone" in done.stderr
    assert "trust: issued" in done.stdout
    assert "Traceback" not in done.stderr


def test_cpu_taken_offline_loses_no_request() -> None:
    with create_null_blk(NullBlk(irqmode=Irq.TIMER, submit_queues=2)) as disk:

        def run_workload() -> None:
            argv = Fio("randread", 40_009, jobs=2).build_argv(f"/dev/{disk}")
            with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as running:
                time.sleep(0.5)
                with removal.take_cpu_offline(1):
                    time.sleep(0.5)
                assert running.wait(300) == 0

        [watched] = observe_disks([disk], run_workload)
    assert watched.count_by_op()["read"][1] == 2 * 40_009 * 4096
    assert_explained("null_blk, a CPU offline", watched)


@pytest.mark.manual
def test_cpus_that_go_offline_repeatedly_lose_no_request() -> None:
    """Rows and lanes are per CPU; a request may complete on a different CPU than it started on."""
    jobs: list[Fio] = []
    with create_null_blk(NullBlk(irqmode=Irq.TIMER, submit_queues=2)) as disk:

        def run_workload() -> None:
            # A fast machine may end a job after few changes.
            changes = 0
            while changes <= MIN_CHANGES:
                jobs.append(Fio("randrw", 30_011, jobs=2))
                changes += _change_cpus_during(jobs[-1].build_argv(f"/dev/{disk}"))

        [(watched, between)] = observe_readings([disk], run_workload)
    counts = watched.count_by_op()
    assert counts["read"][1] + counts["write"][1] == len(jobs) * 2 * 30_011 * 4096
    assert between.readings > MIN_CHANGES
    assert_explained("null_blk, a CPU that comes and goes", watched, between)


def _change_cpus_during(argv: list[str]) -> int:
    """Take a CPU offline and online until the command ends, and return how many times."""
    changes = 0
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as running:
        while running.poll() is None:
            time.sleep(0.3)
            with removal.take_cpu_offline(1):
                time.sleep(0.3)
            changes += 1
    assert running.returncode == 0
    return changes


def test_drift_is_missing_when_kernel_statistics_are_off() -> None:
    with create_null_blk(NullBlk()) as disk:
        write_attribute(Path(f"/sys/block/{disk}/queue/iostats"), 0)
        [watched] = observe_disks([disk], lambda: reads(f"/dev/{disk}", 23))
    assert watched.count_by_op()["read"] == (23, 23 * 4096)
    assert watched.trust.no_drift is not None
    assert watched.trust.no_drift.startswith("statistics are off")
