"""Completions of requests that are taken back, complete twice, or only seem complete."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from opwatch.host.device import Devices
from opwatch.tools.runs.backends import attach_tracer
from opwatch.tools.runs.live_watch import choose_leaves
from opwatch.trace.tracing import Tracer
from tests.kernel.support.load import discards, flushes, reads, writes
from tests.vm.guest.support import stacked, sysfs
from tests.vm.guest.support.exact import assert_explained, observe_as_default, observe_disks
from tests.vm.guest.support.nullblk import Irq, NullBlk, create_null_blk
from tests.vm.guest.support.reading_checks import observe_readings
from tests.vm.guest.support.scsidebug import Opts, load_scsi_debug
from tests.vm.guest.support.shell import write_attribute
from tests.vm.guest.support.workload import Fio, FioCounts, run_fio

DEVICES = ("nvme-multipath", "ahci", "virtio-blk")
CPUS = 4
# Manual runs only, until its guest has been seen to start reliably on a loaded machine.
TIERS = ()
TIMEOUT_S = 1800
# PCI specification: offset of the command register, and its memory space enable bit.
PCI_COMMAND = 4
PCI_MEMORY = 2
SAMPLES = 100


def _cut_path(path: str) -> None:
    """Cut a path's controller off from the driver, which resets the controller when requests time out."""
    numbers = re.fullmatch(r"nvme\d+c(\d+)n\d+", path)
    assert numbers
    controller = Path(f"/sys/class/nvme/nvme{numbers[1]}")
    write_attribute(sysfs.SYS_BLOCK / path / "queue/io_timeout", 1000)
    with (controller / "device/config").open("r+b", buffering=0) as config:
        config.seek(PCI_COMMAND)
        before = config.read(1)[0]
        config.seek(PCI_COMMAND)
        config.write(bytes([before & ~PCI_MEMORY]))
    state = controller / "state"
    sysfs.wait_for("a reset", lambda: state.read_text().strip() != "live")
    sysfs.wait_for("a live controller", lambda: state.read_text().strip() == "live")


def _run_while_cutting(head: str, job: Fio, paths: Sequence[str]) -> FioCounts:
    """Run fio once while these paths below the head are cut in turn."""
    counts: list[FioCounts] = []
    running = threading.Thread(target=lambda: counts.append(run_fio(head, job)))
    running.start()
    time.sleep(1)
    for path in paths:
        assert running.is_alive()
        _cut_path(path)
    running.join()
    return counts[0]


def _set_round_robin(head: str) -> None:
    """Use both paths at the same time."""
    [policy] = Path("/sys/class/nvme-subsystem").glob("*/iopolicy")
    write_attribute(policy, "round-robin")
    assert len(sysfs.list_paths(head)) == 2


def test_requests_of_a_failed_path_are_taken_back() -> None:
    head = sysfs.disk("opw-nvme-multipath")
    _set_round_robin(head)
    job = Fio("randrw", 1 << 30, jobs=2, iodepth=64, extra=("--runtime=40", "--time_based"))
    counts: list[FioCounts] = []
    watched = observe_disks(
        [head], lambda: counts.append(_run_while_cutting(head, job, sysfs.list_paths(head)))
    )
    [job_counts] = counts
    assert job_counts.errors == 0
    for one in watched:
        assert_explained("nvme failover", one)
        given_back = one.trust.taken_back - one.trust.refused
        assert one.trust.issued == one.trust.completed + given_back
        assert one.trust.unmatched == 0
    assert sum(one.trust.taken_back for one in watched) > 0
    assert sum(one.count_by_op()["read"][1] for one in watched) == job_counts.read_bytes
    assert sum(one.count_by_op()["write"][1] for one in watched) == job_counts.write_bytes


def test_request_cloned_by_device_mapper_counts_once() -> None:
    """dm-multipath clones requests, and completes the original's data before the original."""
    slow = NullBlk(size=64, memory_backed=1, discard=1, irqmode=Irq.TIMER)
    with create_null_blk(slow) as below, stacked.create_multipath(below) as top:
        assert sysfs.count_hardware_queues(top.name) > 0, "it takes bios"
        node = f"/dev/{top.name}"

        def run_workload() -> None:
            reads(node, 101)
            writes(node, 53)
            writes(node, 31, flags=os.O_DSYNC)
            discards(node, 11)
            flushes(node, 7)

        watched = observe_as_default([top.name, below], run_workload)
    for one in watched.values():
        assert one.count_by_op()["read"] == (101, 101 * 4096)
        assert one.count_by_op()["write"] == (84, 84 * 4096)
        assert one.count_by_op()["discard"] == (11, 11 << 19)
        assert_explained("dm-multipath by requests", one)
        assert one.trust.unmatched == 0
    assert watched[top.name].trust.flush_tails >= 101 + 84 + 11
    assert watched[top.name].trust.taken_back == 0


def test_clones_refused_by_a_busy_path_are_not_missed_requests() -> None:
    """Refused clones are freed without a completion, and newer kernels count them as completed."""
    for _ in range(5):
        with (
            load_scsi_debug() as scsi,
            stacked.create_multipath(scsi.name) as top,
            scsi.inject_faults(Opts.HOST_BUSY, every_nth=7),
        ):
            watched = observe_as_default(
                [top.name, scsi.name], lambda: run_fio(top.name, Fio("randread", 211))
            )
        # On a busy emulator a timer interrupts a program; the kernel skips and counts the nested run.
        if not any(one.trust.misses for one in watched.values()):
            break
    assert watched[scsi.name].trust.requeued > 0
    for one in watched.values():
        assert one.count_by_op()["read"] == (211, 211 * 4096)
        assert_explained("dm-multipath, busy path", one)


@pytest.mark.parametrize("serial", ["opw-ahci", "opw-virtio-blk"])
def test_a_sequence_that_a_reading_cuts_in_two_is_explained(serial: str) -> None:
    """Without FUA, the data of an O_DSYNC write completes one flush before the write does."""
    disk = sysfs.disk(serial)
    assert sysfs.read_number(disk, "queue/fua") == 0
    argv = ["python3", "-m", "opwatch", "--json", "--dev", disk, "0.2", str(SAMPLES)]
    ended = threading.Event()

    def write_endlessly() -> None:
        while not ended.is_set():
            writes(f"/dev/{disk}", 11, flags=os.O_DSYNC)

    writer = threading.Thread(target=write_endlessly)
    writer.start()
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=True)
    finally:
        ended.set()
        writer.join()
    [(whole, between)] = observe_readings([disk], lambda: writes(f"/dev/{disk}", 331, flags=os.O_DSYNC))
    assert_explained(f"{serial.removeprefix('opw-')} O_DSYNC every 0.2 s", whole, between)
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(printed) == SAMPLES + 1
    assert [one["unexplained"] for one in printed if one["unexplained"]] == []
    # In a guest with little CPU time, some 0.2 s intervals complete no write.
    assert sum(one["ops"]["write"]["count"] > 0 for one in printed) > SAMPLES // 4


def _count_reads_during_discard(tracer: Tracer) -> list[int]:
    """Return the number of reads per disk that were issued while a discard was in flight."""
    return [reading.sample.ops["read"].behind for reading in tracer.read()]


def test_discard_issued_before_attach_is_not_subtracted() -> None:
    slow = NullBlk(size=64, memory_backed=1, discard=1, irqmode=Irq.TIMER, completion_nsec=1_500_000_000)
    with create_null_blk(slow) as disk:
        early, late = (threading.Thread(target=discards, args=(f"/dev/{disk}", 1)) for _ in range(2))
        early.start()
        time.sleep(0.5)
        with closing(attach_tracer("libbpf", choose_leaves(Devices(), [disk])[0])) as tracer:
            early.join()
            late.start()
            time.sleep(0.5)
            reads(f"/dev/{disk}", 1)
            late.join()
            assert _count_reads_during_discard(tracer) == [1]
            reads(f"/dev/{disk}", 1)
            assert _count_reads_during_discard(tracer) == [1]


def test_taken_back_discard_no_longer_delays_requests() -> None:
    """A discard that is taken back completes with 0 bytes, so later reads are not behind it."""
    head = sysfs.disk("opw-nvme-multipath")
    _set_round_robin(head)
    trims = Fio("randtrim", 1 << 20, block_bytes=1 << 20, jobs=2, extra=("--runtime=20", "--time_based"))
    counts: list[FioCounts] = []
    with closing(attach_tracer("libbpf", choose_leaves(Devices(), [head])[0])) as tracer:
        cut = sysfs.list_paths(head)[:1]
        watched = observe_disks([head], lambda: counts.append(_run_while_cutting(head, trims, cut)))
        before = _count_reads_during_discard(tracer)
        reads(f"/dev/{head}", 211)
        assert _count_reads_during_discard(tracer) == before
    for one in watched:
        assert_explained("nvme failover of discards", one)
    assert sum(one.trust.taken_back for one in watched) > 0
