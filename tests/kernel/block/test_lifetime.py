"""Attaching, detaching, and disks that disappear."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest

from opwatch.collectors.block.blk import BlockTracer
from opwatch.errors import OpwatchError
from opwatch.host.device import Devices
from opwatch.host.scratch import ScratchDisk
from opwatch.tools.runs.live_watch import choose_leaves
from tests.kernel.support.load import reads
from tests.kernel.support.watching import parse_lines


def list_objects(kind: str) -> list[dict[str, Any]]:
    """Return bpftool's list. bpftool fails if another process's object disappears while it runs, so retry."""
    for _ in range(5):
        done = subprocess.run(["bpftool", kind, "show", "--json"], capture_output=True, check=False)
        if done.returncode == 0:
            break
    listing: list[dict[str, Any]] = json.loads(done.stdout)
    return listing


def count_kernel_objects() -> dict[str, int]:
    """Return how many programs, maps, links and descriptors this process has."""
    own = {"descriptors": len(os.listdir("/proc/self/fd"))}
    for kind in ("prog", "map", "link"):
        listing = list_objects(kind)
        own[kind] = sum(str(os.getpid()) in {str(p["pid"]) for p in x.get("pids", [])} for x in listing)
    return own


def test_repeated_attach_and_detach_leaves_no_kernel_objects(disk: ScratchDisk) -> None:
    leaves, _ = choose_leaves(Devices(), [disk.name])

    def attach_and_detach() -> None:
        tracer = BlockTracer(leaves, queue_time=True)
        tracer.read()
        tracer.list_programs()
        tracer.close()

    attach_and_detach()
    before = count_kernel_objects()
    for _ in range(100):
        attach_and_detach()
    deadline = time.monotonic() + 5
    # The kernel frees programs and maps after a grace period.
    while count_kernel_objects() != before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert count_kernel_objects() == before


def start_watch(disk: ScratchDisk, *arguments: str) -> subprocess.Popen[str]:
    """Start opwatch on a disk, and return after the first line, when it is attached."""
    process = subprocess.Popen(
        [sys.executable, "-m", "opwatch", "--dev", disk.name, "--json", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert json.loads(process.stdout.readline())["type"] == "interval"
    return process


def test_watch_prints_the_summary_when_its_disk_disappears(disk: ScratchDisk) -> None:
    process = start_watch(disk, "0.2", "--return-within", "0")
    reads(disk.node, 101)
    time.sleep(0.5)
    disk.detach()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert re.search(rf"\b{disk.name} .*\bgone\b", err)
    last = parse_lines(out)[-1]
    assert last["type"] == "summary"
    assert last["ops"]["read"]["count"] == 101


def test_no_empty_intervals_follow_a_sigstop(disk: ScratchDisk) -> None:
    process = start_watch(disk, "0.2")
    process.send_signal(signal.SIGSTOP)
    time.sleep(1.5)
    process.send_signal(signal.SIGCONT)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    lengths = [line["interval_s"] for line in parse_lines(out) if line["type"] == "interval"]
    assert max(lengths) > 1.4
    # The first interval after the stop may be short because lines stay on their grid.
    assert sum(length < 0.1 for length in lengths) <= 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_overhead_detaches_its_disk_when_a_signal_ends_the_process(number: signal.Signals) -> None:
    # The test run may ignore signals (nohup), and children inherit that.
    ignored = [f"--default-signal={number.name}"] if number != signal.SIGKILL else []
    command = ["env", *ignored, sys.executable, "-m", "opwatch", "overhead", "--for", "60", "--pairs", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 20
    while not any(process.pid == pid for pid in _find_parents("fio")) and time.monotonic() < deadline:
        time.sleep(0.05)
    [disk] = _find_disks(process.pid)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (-9 if number == signal.SIGKILL else 128 + number, b"")
    # fio has died with opwatch, although its 60 s are not over.
    deadline = time.monotonic() + 10
    while _read_backing(disk[0]) == disk[1] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _read_backing(disk[0]) != disk[1]


def test_overhead_leaves_no_loop_device_when_killed_at_any_moment() -> None:
    rng = random.Random(12)
    for _ in range(12):
        command = [sys.executable, "-m", "opwatch", "overhead", "--for", "0.1", "--pairs", "1"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        disks: set[tuple[str, str | None]] = set()
        end = time.monotonic() + rng.uniform(0.1, 2)
        while time.monotonic() < end and process.poll() is None:
            disks |= set(_find_disks(process.pid))
        process.kill()
        process.wait()
        deadline = time.monotonic() + 10
        while any(_read_backing(name) == life for name, life in disks) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not [name for name, life in disks if _read_backing(name) == life]


def _read_backing(name: str) -> str | None:
    """Return the loop device's backing file, which changes with every new attachment; None if detached."""
    try:
        return (Path("/sys/block") / name / "loop/backing_file").read_text()
    except OSError:
        return None


def _find_disks(pid: int) -> list[tuple[str, str | None]]:
    """Return (name, backing file) of the loop devices that a process holds open."""
    names = set()
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        with contextlib.suppress(OSError):
            target = Path(os.readlink(link))
            if target.parent == Path("/dev") and re.fullmatch(r"loop\d+", target.name):
                names.add(target.name)
    return [(name, life) for name in names if (life := _read_backing(name))]


def _find_parents(name: str) -> list[int]:
    """Return the parents of all processes with this name. Reads /proc because a small system has no ps."""
    parents = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            before, _, behind = stat.read_text().rpartition(") ")
            if before.partition(" (")[2] == name:
                parents.append(int(behind.split()[1]))
    return parents


def test_interrupt_ends_with_the_summary_and_success(disk: ScratchDisk) -> None:
    process = start_watch(disk, "0.2")
    reads(disk.node, 103)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    last = parse_lines(out)[-1]
    assert last["type"] == "summary"
    assert last["ops"]["read"]["count"] == 103


def test_watch_ends_silently_when_the_pipe_is_closed(disk: ScratchDisk) -> None:
    process = start_watch(disk, "0.1")
    assert process.stdout
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert process.stderr
    assert process.stderr.read() == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("as_json", [True, False])
def test_watch_ends_on_a_signal_while_the_output_pipe_is_full(
    disk: ScratchDisk, number: signal.Signals, as_json: bool
) -> None:
    """The pipe is full when the signal comes: it holds one page, and 100 lines arrive per second."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    command = [sys.executable, "-m", "opwatch", "--dev", disk.name, *(["--json"] * as_json), "0.01"]
    command += ["--", "sleep", "1000"]
    process = subprocess.Popen(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    _wait_until_full(reading)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    os.close(reading)
    assert process.returncode == 1
    assert err.startswith("opwatch: ") and "unread" in err and err.count("\n") == 1
    assert not [pid for pid in _find_parents("sleep") if pid == process.pid]


def _wait_until_full(descriptor: int) -> None:
    """Wait until the pipe has data and none arrives any more."""
    deadline, before = time.monotonic() + 60, 0
    while not before or _count_unread(descriptor) > before:
        before = _count_unread(descriptor)
        assert time.monotonic() < deadline
        time.sleep(1)


def _count_unread(descriptor: int) -> int:
    waiting = fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4)
    return int.from_bytes(waiting, sys.byteorder)


def test_hangup_ends_the_watch_like_a_termination(disk: ScratchDisk) -> None:
    command = ["env", "--default-signal=HUP", sys.executable, "-m", "opwatch", "--dev", disk.name, "--json"]
    process = subprocess.Popen([*command, "0.2", "--", "sleep", "1000"], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert json.loads(process.stdout.readline())["type"] == "interval"
    process.send_signal(signal.SIGHUP)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert parse_lines(out)[-1]["type"] == "summary"


def test_third_interrupt_kills_a_command_that_ignores_signals(disk: ScratchDisk) -> None:
    process = start_watch(disk, "0.2", "--", "sh", "-c", "trap '' INT TERM; while :; do sleep 0.1; done")
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGKILL
    assert parse_lines(out)[-1]["type"] == "summary"


def test_attach_leaks_no_descriptor_at_any_failure(disk: ScratchDisk) -> None:
    """Attach with an increasing descriptor limit, so that attaching fails at each descriptor once."""
    leaves, _ = choose_leaves(Devices(), [disk.name])
    BlockTracer(leaves).close()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    before_any = os.listdir("/proc/self/fd")
    failures = 0
    for allowed in range(3, 300):
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, limits[1]))
        try:
            BlockTracer(leaves).close()
            break
        except (OpwatchError, OSError):
            failures += 1
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert os.listdir("/proc/self/fd") == before_any
    assert failures > 10
    assert os.listdir("/proc/self/fd") == before_any
