"""A drive's own latency pages: each command counts once, by the drive's clock, whatever delays its path."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from opwatch.collectors.firmware.own_latency import LatencyReader
from opwatch.counters.decode.amazon import AmazonLog
from opwatch.counters.decode.monitor import MonitorLog
from opwatch.errors import Unsupported
from opwatch.host.device import Devices
from opwatch.host.scratch import ScratchDisk
from tests.kernel.support.drives import MIB, Drive, create_drive
from tests.kernel.support.load import BLOCK, discards, reads, writes
from tests.kernel.support.watching import run_opwatch
from tests.requirements import require_drive


@pytest.fixture(autouse=True)
def _drive() -> None:
    require_drive()


@pytest.fixture
def one() -> Iterator[Drive]:
    with create_drive() as made:
        yield made


def read_pages(one: Drive) -> tuple[AmazonLog, MonitorLog]:
    with closing(LatencyReader(Devices().resolve(one.device).disk)) as reader:
        drive_latency = reader.read_latency()
    assert drive_latency.amazon
    assert drive_latency.monitor
    return drive_latency.amazon, drive_latency.monitor


def test_latency_log_counts_each_command_once(one: Drive) -> None:
    before, _ = read_pages(one)
    writes(one.device, 23)
    reads(one.device, 11)
    discards(one.device, 7)
    truth = one.read_truth()
    log, _ = read_pages(one)
    # Opening a disk may cause extra reads, so the drive's own count is the reference.
    assert log.read.commands == truth["timed_reads"] == truth["host_reads"]
    assert log.write.commands == truth["timed_writes"] == truth["host_writes"] == 23
    assert truth["timed_trims"] == truth["trims"] == 7
    assert log.read.commands - before.read.commands >= 11
    assert log.write.bytes == 23 * BLOCK
    assert log.read.bytes == truth["host_read_bytes"]
    for times, ns in ((log.read, truth["timed_read_ns"]), (log.write, truth["timed_write_ns"])):
        assert sum(slot.count for slot in times.slots) == times.commands
        assert times.time_us == ns // 1000
    by_size = [sum(slot.count for slot in sized.write) for sized in log.by_size]
    assert sum(by_size) == 23
    assert by_size[1] == 23  # above 512 bytes, at most 4 KiB


def test_latency_log_includes_drive_time_but_not_path_delay(one: Drive) -> None:
    one.inject_faults("slow=40ms")
    begin = time.monotonic()
    writes(one.device, 5)
    took_s = time.monotonic() - begin
    one.inject_faults("clear", "way=40ms")
    writes(one.device, 7)
    truth = one.read_truth()
    log, slow = read_pages(one)
    # Five commands took at least 40 ms each, and in total less than the wait; seven took little time.
    assert 5 * 40_000 <= log.write.time_us < took_s * 1e6 + 7 * 40_000
    assert log.write.commands == truth["timed_writes"] == 12
    # A busy machine may slow down some of the other commands too.
    cells = [bucket.cells["write"] for bucket in slow.active if bucket.cells["write"].commands]
    assert 5 <= sum(cell.commands for cell in cells) < 12
    assert all(cell.measured_ms and cell.measured_ms >= 30 for cell in cells)
    assert 5 <= sum(slot.count for slot in log.write.slots if slot.low_us >= 24_000) < 12


def test_counters_report_failed_latency_pages(one: Drive) -> None:
    one.inject_faults("log-fail=c3")
    shown = run_opwatch("counters", "--latency", "--dev", one.device, "--json")
    assert shown.returncode == 0
    document = json.loads(shown.stdout)
    assert document["monitor"] is None
    assert document["own"]["write"]["commands"] == 0
    assert document["failures"] == [f"log-c3: {os.strerror(errno.EIO)}"]
    one.inject_faults("log-fail=d0")
    shown = run_opwatch("counters", "--latency", "--dev", one.device)
    assert (shown.returncode, shown.stdout) == (1, "")
    assert f"log-d0: {os.strerror(errno.EIO)}" in shown.stderr


def test_disk_without_latency_page_is_unsupported() -> None:
    with ScratchDisk(16 * MIB) as disk:
        with pytest.raises(Unsupported):
            LatencyReader(Devices().resolve(disk.node))
        shown = run_opwatch("counters", "--latency", "--dev", disk.node)
    assert shown.returncode == 5
    assert "latency" in shown.stderr
