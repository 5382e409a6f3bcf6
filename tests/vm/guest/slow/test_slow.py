"""Slow requests: each is reported with its own issuer or counted as left out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.vm.guest.support.copies import run_opwatch
from tests.vm.guest.support.nullblk import Irq, NullBlk, create_null_blk
from tests.vm.guest.support.shell import ensure_mounted, write_attribute
from tests.vm.guest.support.sysfs import SYS_BLOCK
from tests.vm.guest.support.watcher import start_watch
from tests.vm.guest.support.workload import Fio, hasten_write_back

TIERS = ()
TIMEOUT_S = 1800
CPUS = 2

DELAY_NS = 20_000_000
SLOW_DISK = NullBlk(irqmode=Irq.TIMER, completion_nsec=DELAY_NS, submit_queues=1)
HOOKS = ("auto", pytest.param("raw_tp", marks=pytest.mark.manual))
CGROUPS = Path("/sys/fs/cgroup")
Document = dict[str, Any]


def watch_command(disk: str, *options: str, command: list[str]) -> list[Document]:
    """Run a command under a watch and return all lines that the watch printed."""
    words = ("--json", "--dev", disk, "--waf", "0", "--strict", *options, "--", *command)
    done = run_opwatch(*words)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"schema"')]


def find_summary(lines: list[Document]) -> Document:
    return next(line for line in lines if line["type"] == "summary")


def list_slow_requests(lines: list[Document]) -> list[Document]:
    """Return the slow requests of all intervals, after checking that they add up to the summary."""
    intervals = [line["slow"] for line in lines if line["type"] == "interval"]
    whole = find_summary(lines)["slow"]
    for name in ("count", "noted", "left_out"):
        assert sum(interval[name] for interval in intervals) == whole[name], name
    listed = [request for interval in intervals for request in interval["requests"]]
    assert len(listed) == whole["noted"]
    return listed


@pytest.mark.parametrize("hooks", HOOKS)
def test_every_slow_request_is_reported_with_its_process(hooks: str) -> None:
    job = Fio("randread", 211, iodepth=1, engine="psync")
    with create_null_blk(SLOW_DISK) as disk:
        argv = job.build_argv(f"/dev/{disk}")
        lines = watch_command(
            disk, "--hooks", hooks, "--slow", f"{DELAY_NS // 2_000_000}ms", "0.5", command=argv
        )
    listed = list_slow_requests(lines)
    assert len(listed) == find_summary(lines)["slow"]["count"] == 211
    assert {(one["op"], one["bytes"], one["submitter"], one["name"]) for one in listed} == {
        ("read", 4096, "process", "fio")
    }
    assert len({one["pid"] for one in listed}) == 1
    assert min(one["latency_ns"] for one in listed) > DELAY_NS // 2
    assert all(one["queue_ns"] is not None for one in listed)
    assert [one["end_mono_ns"] for one in listed] == sorted(one["end_mono_ns"] for one in listed)


@pytest.mark.manual
def test_requests_below_the_limit_are_not_reported() -> None:
    job = Fio("randread", 997, iodepth=1, engine="psync")
    with create_null_blk(NullBlk(irqmode=Irq.SOFTIRQ)) as disk:
        lines = watch_command(disk, "--slow", "60s", command=job.build_argv(f"/dev/{disk}"))
    assert find_summary(lines)["ops"]["read"]["count"] == 997
    assert find_summary(lines)["slow"] == {
        "limit_ns": 60 * 10**9,
        "count": 0,
        "noted": 0,
        "left_out": 0,
        "requests": [],
    }


@pytest.mark.parametrize("hooks", HOOKS)
def test_requests_beyond_the_buffer_are_counted_as_left_out(hooks: str) -> None:
    """The single reading comes at the end, and every request is slower than a microsecond."""
    job = Fio("randwrite", 4001, iodepth=32)
    with create_null_blk(NullBlk(irqmode=Irq.TIMER, completion_nsec=100_000)) as disk:
        lines = watch_command(
            disk, "--hooks", hooks, "--slow", "0.001ms", "600", command=job.build_argv(f"/dev/{disk}")
        )
    whole = find_summary(lines)["slow"]
    assert whole["noted"] + whole["left_out"] == whole["count"] == 4001
    assert 100 < whole["noted"] < 4001
    assert len(list_slow_requests(lines)) == whole["noted"]
    assert find_summary(lines)["ops"]["write"]["count"] == 4001


def test_queue_time_is_reported_for_requests_waiting_in_the_scheduler() -> None:
    """The device takes one request at a time; the others wait in the scheduler. A request belongs to the
    issuing process, not to the task that dispatches it."""
    job = Fio("randread", 101, iodepth=4)
    one_at_a_time = NullBlk(irqmode=Irq.TIMER, completion_nsec=DELAY_NS, submit_queues=1, hw_queue_depth=1)
    with create_null_blk(one_at_a_time) as disk:
        write_attribute(SYS_BLOCK / disk / "queue/scheduler", "mq-deadline")
        lines = watch_command(
            disk, "--slow", f"{DELAY_NS // 2_000_000}ms", command=job.build_argv(f"/dev/{disk}")
        )
    listed = list_slow_requests(lines)
    assert len(listed) == 101
    waited = sorted(one["queue_ns"] for one in listed)
    # The scheduler accepts two at a time: one waits while the other is in the device.
    assert waited[len(waited) // 2] > DELAY_NS // 2
    assert {(one["submitter"], one["name"]) for one in listed} == {("process", "fio")}


def test_slow_write_back_is_attributed_to_the_flush_work() -> None:
    disk_of_memory = NullBlk(
        size=64, memory_backed=1, irqmode=Irq.TIMER, completion_nsec=DELAY_NS, submit_queues=1
    )
    with create_null_blk(disk_of_memory) as disk, hasten_write_back():
        descriptor = os.open(f"/dev/{disk}", os.O_WRONLY)
        try:
            with start_watch("--dev", disk, "--waf", "0", "--slow", "1ms", "0.5") as watcher:
                os.write(descriptor, b"x" * (1 << 20))
                watcher.wait_for_line(
                    "write-back", lambda line: bool(line.get("slow") and line["slow"]["count"])
                )
                watcher.interrupt_opwatch()
        finally:
            os.close(descriptor)
    written = [
        one for line in watcher.lines if line["type"] == "interval" for one in line["slow"]["requests"]
    ]
    assert written
    assert {(one["op"], one["submitter"], one["pid"]) for one in written} == {("write", "write-back", None)}
    assert {one["name"].split("-")[0] for one in written} == {"flush"}


def test_slow_request_names_the_control_group() -> None:
    if not (CGROUPS / "cgroup.controllers").exists():
        ensure_mounted("cgroup2", CGROUPS)
    group = CGROUPS / "opw-slow"
    group.mkdir()
    with create_null_blk(SLOW_DISK) as disk:
        script = (
            f"echo $$ > {group}/cgroup.procs; exec dd if=/dev/{disk} of=/dev/null bs=4k count=13 iflag=direct"
        )
        lines = watch_command(disk, "--slow", "1ms", command=["sh", "-c", script])
    number = group.stat().st_ino
    group.rmdir()
    listed = list_slow_requests(lines)
    assert len(listed) == 13
    assert {(one["name"], one["cgroup"], one["cgroup_number"]) for one in listed} == {
        ("dd", "/opw-slow", number)
    }


@pytest.mark.manual
def test_replay_shows_the_same_slow_requests(tmp_path: Path) -> None:
    kept = tmp_path / "run.opw"
    job = Fio("randwrite", 53, iodepth=1, engine="psync")
    with create_null_blk(SLOW_DISK) as disk:
        lines = watch_command(
            disk, "--slow", "1ms", "-o", str(kept), "0.5", command=job.build_argv(f"/dev/{disk}")
        )
    again = run_opwatch("replay", "--json", str(kept))
    assert [json.loads(line) for line in again.stdout.splitlines()] == lines
    assert find_summary(lines)["slow"]["count"] == 53
