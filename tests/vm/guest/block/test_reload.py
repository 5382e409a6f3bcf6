"""Disks appear and disappear below a watched device: every request is counted or reported as missing."""

from __future__ import annotations

import contextlib
import functools
import itertools
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.kernel.support.load import writes
from tests.vm.guest.support import removal, stacked, sysfs
from tests.vm.guest.support.exact import record_summary
from tests.vm.guest.support.nullblk import NullBlk, create_null_blk
from tests.vm.guest.support.reading_checks import ReadingChecks
from tests.vm.guest.support.shell import run_command, write_attribute
from tests.vm.guest.support.watcher import Document, start_watch
from tests.vm.guest.support.workload import Fio, parse_counts, run_fio

DEVICES = ("nvme-multipath",)
TIERS = ()
TIMEOUT_S = 1800
CPUS = 2
MEMORY = NullBlk(size=96, memory_backed=1)
WRITES = Fio("randwrite", 6_007, iodepth=2, extra=("--rate_iops=600",))
# As fast as possible, so that requests complete between the readings of a disk's files.
FAST_WRITES = Fio("randwrite", 20_011, iodepth=4, extra=("--rate_iops=2000",))
# Writes after the appearance of a disk: a slow guest may attach only after the other writes.
LATER = Fio("randwrite", 211)
DISKS = 70


def bound_unseen_requests(summary: Document, group: str) -> tuple[int, int]:
    """Return (least, most) requests completed before the disk was watched, by the kernel's count. At the end
    the number is exact unless a CPU was descheduled while completing a request. The request was then counted
    late and appears as drift."""
    arrival = summary["arrival"]
    if not arrival:
        return 0, 0
    slacks = arrival["unseen_requests_slack"]
    late = max(summary["trust"]["drift"][group], 0)
    assert late or not any(slacks.values())
    least = int(arrival["unseen_requests"][group])
    return least + late, least + late + int(slacks[group])


def is_accounted(summaries: Sequence[Document], op: str, count: int) -> bool:
    """Return whether `count` requests are counted or reported as missing."""
    counted = sum(
        int(summary["ops"][op]["count"]) + int(summary["trust"]["unmatched"]) for summary in summaries
    )
    least, most = (
        sum(numbers) for numbers in zip(*(bound_unseen_requests(one, op) for one in summaries), strict=True)
    )
    return bool(counted + least <= count <= counted + most)


def collect_intervals(lines: Sequence[Document], disk: str) -> ReadingChecks:
    """Return one disk's intervals since the disk appeared, and their unexplained requests except those from
    before the watch. Lines before the appearance belong to an earlier disk of the same name."""
    own = [line for line in lines if line.get("device") == disk]
    came = [place for place, line in enumerate(own) if line["type"] == "event" and line["event"] == "came"]
    rows = [line for line in own[came[-1] if came else 0 :] if line["type"] == "interval"]
    reasons = [line for row in rows for line in row["unexplained"] if "before it was watched" not in line]
    return ReadingChecks(len(rows), tuple(reasons))


def assert_exact(driver: str, summary: Document, lines: Sequence[Document]) -> None:
    """Check that there is no drift and no loss, overall and per interval, except from before the watch."""
    between = collect_intervals(lines, summary["device"])
    record_summary(driver, summary, between.format_cell())
    assert between.unexplained == ()
    trust = summary["trust"]
    assert trust["unmatched"] <= summary["in_flight_at_start"]
    assert [line for line in summary["unexplained"] if "before it was watched" not in line] == []
    assert set(trust["drift"].values()) == {0}
    assert trust["in_flight"] == 0


@pytest.mark.parametrize("is_announced", [False, pytest.param(True, marks=pytest.mark.manual)])
def test_reloaded_table_under_load_loses_no_request(is_announced: bool) -> None:
    """`is_announced`: the table is loaded some time before its use, as LVM does."""
    with (
        create_null_blk(MEMORY) as first,
        create_null_blk(MEMORY) as second,
        stacked.create_linear(first) as top,
        start_watch("--dev", top.name, "0.2") as watcher,
    ):
        table = f"0 {stacked.count_sectors(second)} linear /dev/{second} 0"
        job = subprocess.Popen(WRITES.build_argv(f"/dev/{top.name}"), stdout=subprocess.PIPE, text=True)
        sysfs.wait_for("writes", lambda: sysfs.read_stat(first).writes > 300)
        if is_announced:
            run_command("dmsetup", "load", top.label, "--table", table)
            watcher.wait_for_event("came", second)
            run_command("dmsetup", "suspend", "--noudevsync", "--nolockfs", top.label)
            run_command("dmsetup", "resume", "--noudevsync", top.label)
        else:
            stacked.reload_table(top.label, table)
        watcher.wait_for_event("left", first)
        written = parse_counts(job.communicate(timeout=600)[0]).writes
        written += run_fio(top.name, LATER).writes
        assert watcher.interrupt_opwatch() == 0, watcher.words
    summaries = watcher.read_summaries()
    assert set(summaries) == {first, second}
    assert summaries[first]["leaving"]["why"] == "unused"
    assert summaries[second]["ops"]["write"]["count"] > 0
    name = "dm-linear reload" + (", announced" if is_announced else "")
    for disk in (first, second):
        assert summaries[disk]["origin"] == top.name
        assert_exact(f"{name}, {'old' if disk == first else 'new'}", summaries[disk], watcher.lines)
    assert written == WRITES.count + LATER.count
    assert is_accounted(list(summaries.values()), "write", written)
    if is_announced:
        assert bound_unseen_requests(summaries[second], "write") == (0, 0)
    assert f"{second} now carries I/O of {top.name}" in watcher.words
    assert f"{first} no longer carries I/O of {top.name}" in watcher.words


@pytest.mark.manual
def test_repeatedly_reloaded_tables_lose_no_request() -> None:
    """Each time a disk appears, requests complete during its first reading."""
    with (
        create_null_blk(MEMORY) as first,
        create_null_blk(MEMORY) as second,
        stacked.create_linear(first) as top,
        start_watch("--dev", top.name, "0.2") as watcher,
    ):
        job = subprocess.Popen(FAST_WRITES.build_argv(f"/dev/{top.name}"), stdout=subprocess.PIPE, text=True)
        sysfs.wait_for("writes", lambda: sysfs.read_stat(first).writes > 300)
        comings = 0
        for disk in itertools.cycle((second, first)):
            stacked.reload_table(top.label, f"0 {stacked.count_sectors(disk)} linear /dev/{disk} 0")
            comings += 1
            sysfs.wait_for("the disk", functools.partial(has_appeared_and_left, watcher.lines, comings))
            if comings > 1 and job.poll() is not None:
                break
        written = parse_counts(job.communicate(timeout=600)[0]).writes
        assert watcher.interrupt_opwatch() == 0, watcher.words
    summaries = [line for line in watcher.lines if line["type"] == "summary"]
    assert len(summaries) == comings + 1
    assert written == FAST_WRITES.count
    assert is_accounted(summaries, "write", written)


def has_appeared_and_left(lines: Sequence[Document], times: int) -> bool:
    """Return whether this many disks have appeared, and as many have left."""
    events = [line["event"] for line in lines if line["type"] == "event"]
    return events.count("came") >= times and events.count("left") >= times


@pytest.mark.manual
def test_intervals_add_up_to_the_summaries_when_disks_come_and_go() -> None:
    with (
        create_null_blk(MEMORY) as first,
        create_null_blk(MEMORY) as second,
        stacked.create_linear(first) as top,
        start_watch("--dev", top.name, "0.3") as watcher,
    ):
        for disk in (second, first, second):
            run_fio(top.name, Fio("randwrite", 211))
            stacked.reload_table(top.label, f"0 {stacked.count_sectors(disk)} linear /dev/{disk} 0")
            wait_for_members(watcher.lines, disk)
        run_fio(top.name, Fio("randwrite", 211))
        assert watcher.interrupt_opwatch() == 0, watcher.words
    rows = [line for line in watcher.lines if line["type"] == "interval"]
    summaries = [line for line in watcher.lines if line["type"] == "summary"]
    assert len(summaries) == 4
    for key in ("count", "bytes"):
        parts = sum(row["ops"]["write"][key] for row in rows)
        assert parts == sum(row["ops"]["write"][key] for row in summaries)
    assert is_accounted(summaries, "write", 4 * 211)
    for row in rows:
        assert row["interval_s"] > 0
        assert set(row["trust"]["drift"].values()) == {0}


def wait_for_members(lines: list[Document], disk: str) -> None:
    """Wait until `disk` has appeared last, and the other disk has left."""

    def is_alone() -> bool:
        events = [(line["event"], line["device"]) for line in lines if line["type"] == "event"]
        return len(events) >= 2 and ("came", disk) in events[-2:] and events[-1][0] != events[-2][0]

    sysfs.wait_for(f"{disk} alone", is_alone)


def test_multipath_path_is_watched_again_after_its_return() -> None:
    head = sysfs.disk("opw-nvme-multipath")
    for policy in Path("/sys/class/nvme-subsystem").glob("*/iopolicy"):
        write_attribute(policy, "round-robin")
    first, second = sysfs.list_paths(head)
    reads = Fio("randread", 1009, iodepth=4)
    before = sysfs.read_stat(first).reads + sysfs.read_stat(second).reads
    assert before >= 0
    with start_watch("--dev", head, "--waf", "0", "0.3") as watcher:
        run_fio(head, reads)
        removal.remove_from_pci(second)
        left = watcher.wait_for_event("left", second)
        assert left["leaving"]["why"] == "gone"
        run_fio(head, reads)
        write_attribute(Path("/sys/bus/pci/rescan"), 1)
        came = watcher.wait_for_line("a path that comes", lambda line: line.get("event") == "came")
        run_fio(head, reads)
        assert watcher.is_running()
        assert watcher.interrupt_opwatch() == 0, watcher.words
    summaries = [line for line in watcher.lines if line["type"] == "summary"]
    assert len(summaries) == 3
    assert {row["origin"] for row in summaries} == {head}
    # Each row has some of the reads, all rows together have every read.
    assert all(row["ops"]["read"]["count"] > 100 for row in summaries)
    assert is_accounted(summaries, "read", 3 * reads.count)
    assert came["arrival"]["unseen_requests"] == {**came["arrival"]["unseen_requests"], "read": 0}
    for row in summaries:
        if row["leaving"] is None:
            assert_exact("nvme multipath, a path gone and back", row, watcher.lines)


@contextlib.contextmanager
def poll_stats(disk: str) -> Iterator[list[tuple[int, sysfs.DiskStat]]]:
    """Yield a growing list of (time before the reading, kernel's counts of a disk), until the end."""
    stats = [(time.monotonic_ns(), sysfs.read_stat(disk))]
    over = threading.Event()

    def append_stats() -> None:
        while not over.wait(0.005):
            stats.append((time.monotonic_ns(), sysfs.read_stat(disk)))

    reader = threading.Thread(target=append_stats)
    reader.start()
    try:
        yield stats
    finally:
        over.set()
        reader.join()
        stats.append((time.monotonic_ns(), sysfs.read_stat(disk)))


def test_replaced_raid_member_is_counted_exactly() -> None:
    """A mirror loses a member and gets a new one, to which md copies everything."""
    with contextlib.ExitStack() as stack:
        below = [stack.enter_context(create_null_blk(MEMORY)) for _ in range(3)]
        array = stack.enter_context(stacked.create_md(1, below[:2]))
        watcher = stack.enter_context(start_watch("--dev", array, "0.3"))
        with poll_stats(below[2]) as stats:
            run_fio(array, Fio("randwrite", 307))
            run_command("mdadm", f"/dev/{array}", "--fail", f"/dev/{below[0]}")
            run_command("mdadm", f"/dev/{array}", "--remove", f"/dev/{below[0]}")
            watcher.wait_for_event("left", below[0])
            # mdadm writes to the disk before adding it to the array; the writes are not the array's I/O.
            run_command("mdadm", f"/dev/{array}", "--add", f"/dev/{below[2]}")
            watcher.wait_for_event("came", below[2])
        run_fio(array, Fio("randwrite", 307))
        sysfs.wait_for("the copy", lambda: sysfs.read_attribute(array, "md/sync_action") == "idle")
        time.sleep(1)
        assert watcher.interrupt_opwatch() == 0, watcher.words
        after = sysfs.read_stat(below[2])
    new = watcher.read_summaries()[below[2]]
    for row in watcher.read_summaries().values():
        assert_exact("md raid1, a member replaced", row, watcher.lines)
    since_ns = new["arrival"]["unseen_since_mono_ns"]
    # The last reading in this list may have been taken after since_ns, the previous reading was not.
    most = after - [stat for at_ns, stat in stats if at_ns <= since_ns][-2]
    # opwatch counts from some moment between since_ns and its first reading of the disk.
    least = after - next(stat for at_ns, stat in stats if at_ns >= new["arrival"]["mono_ns"])
    flushes = int(new["ops"]["flush"]["count"])
    written = new["ops"]["write"]["bytes"] + new["arrival"]["unseen_bytes"]["write"]
    assert least.writes >= 307
    counted = new["ops"]["write"]["count"] + new["trust"]["unmatched"]
    fewest, highest = bound_unseen_requests(new, "write")
    assert least.writes - flushes <= counted + highest
    assert counted + fewest <= most.writes
    assert least.write_bytes <= written <= most.write_bytes


@pytest.mark.manual
def test_watch_continues_when_a_loop_device_disappears() -> None:
    """Without --dev, new disks are watched as they appear, and a leaving disk does not affect the others."""
    with create_null_blk(MEMORY) as other, start_watch("0.2") as watcher:
        with stacked.create_loop(64 << 20) as name:
            watcher.wait_for_event("came", name)
            run_fio(name, Fio("randwrite", 211))
        watcher.wait_for_event("left", name)
        run_fio(other, Fio("randwrite", 223))
        assert watcher.is_running()
        assert watcher.interrupt_opwatch() == 0, watcher.words
    summaries = watcher.read_summaries()
    assert summaries[name]["ops"]["write"]["count"] == 211
    assert summaries[name]["leaving"]["why"] == "gone"
    assert summaries[other]["ops"]["write"]["count"] == 223
    assert_exact("loop that goes", summaries[name], watcher.lines)


@pytest.mark.manual
def test_watch_of_more_disks_than_a_tracer_holds_is_exact() -> None:
    small = NullBlk(size=16, submit_queues=1, hw_queue_depth=16)
    with contextlib.ExitStack() as stack:
        disks = [stack.enter_context(create_null_blk(small)) for _ in range(DISKS)]
        names = [word for disk in disks for word in ("--dev", disk)]
        watcher = stack.enter_context(start_watch(*names, "--no-discards", "2"))
        for number, disk in enumerate(disks, 1):
            writes(f"/dev/{disk}", number)
        assert watcher.interrupt_opwatch() == 0, watcher.words
    summaries = watcher.read_summaries()
    assert list(summaries) == disks
    for number, disk in enumerate(disks, 1):
        assert summaries[disk]["ops"]["write"]["count"] == number
        assert summaries[disk]["unexplained"] == []
    record_summary(f"null_blk, the last of {DISKS}", summaries[disks[-1]])
