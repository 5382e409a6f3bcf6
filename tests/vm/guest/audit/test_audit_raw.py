"""`opwatch trim audit --dev D --watch` on a program that holds a device exclusively and discards unneeded
ranges, like a storage engine without a filesystem. The kernel's count is the oracle."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.vm.guest.support import stacked, sysfs

# Manual runs only: these tests would exceed CI's time limit.
TIERS = ()
DEVICES = ("nvme",)
# A prime number of ranges of several lengths, so that a lost range cannot balance a range counted twice.
RANGES = 997
# Opens the device exclusively, waits for a line before the discards, and for another before the exit.
ENGINE = """
import fcntl, os, random, struct, sys, threading
disk = os.open(sys.argv[1], os.O_RDWR | os.O_EXCL | os.O_DIRECT)
size = os.lseek(disk, 0, os.SEEK_END)
chance = random.Random(int(sys.argv[2]))
ranges = [(chance.randrange(size >> 12) << 12, chance.randint(1, 64) << 12) for _ in range(int(sys.argv[2]))]
ranges = [(start, min(length, size - start)) for start, length in ranges]
def discard(part):
    for start, length in part:
        fcntl.ioctl(disk, 0x1277, struct.pack("=QQ", start, length))
sys.stdout.write("ready\\n"); sys.stdout.flush()
sys.stdin.readline()
threads = [threading.Thread(target=discard, args=(ranges[at::4],)) for at in range(4)]
for one in threads: one.start()
for one in threads: one.join()
sys.stdout.write(f"{sum(length for _, length in ranges)}\\n"); sys.stdout.flush()
sys.stdin.readline()
"""


@contextlib.contextmanager
def provide_device(kind: str) -> Iterator[str]:
    """Yield the disk itself, or a device mapper device on it."""
    disk = sysfs.disk("opw-nvme")
    if kind == "disk":
        yield disk
        return
    with stacked.create_linear(disk) if kind == "linear" else stacked.create_crypt(disk) as top:
        yield top.name


@contextlib.contextmanager
def run_engine(node: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program that starts before the watch and ends after the watch."""
    argv = [sys.executable, "-c", ENGINE, f"/dev/{node}", str(RANGES)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout
        assert one.stdout.readline() == "ready\n"
        try:
            yield one
        finally:
            one.kill()


def start_discards(one: subprocess.Popen[str]) -> int:
    """Start the discards and return their bytes once they are done."""
    assert one.stdin
    assert one.stdout
    one.stdin.write("\n")
    one.stdin.flush()
    return int(one.stdout.readline())


def watch_discards(node: str, one: subprocess.Popen[str]) -> tuple[dict[str, Any], int]:
    """Return (the watch's JSON document, bytes discarded while the watch ran)."""
    argv = [sys.executable, "-m", "opwatch", "trim", "audit", "--watch", "--json", "--dev", f"/dev/{node}"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watch:
        assert watch.stderr
        assert "following discards" in watch.stderr.readline()
        asked = start_discards(one)
        watch.send_signal(2)
        output, said = watch.communicate(timeout=120)
    assert watch.returncode == 0, said
    return json.loads(output), asked


@pytest.mark.parametrize("kind", ["disk", "linear", "crypt"])
def test_program_that_holds_the_device_exclusively(kind: str) -> None:
    disk = sysfs.disk("opw-nvme")
    with provide_device(kind) as node, run_engine(node) as one:
        before = sysfs.read_stat(disk)
        document, asked = watch_discards(node, one)
        counted = (sysfs.read_stat(disk) - before).discard_bytes
    assert document["verdict"] == "ACCEPTED"
    assert (document["filesystem"], document["unexplained_bytes"]) == (None, 0)
    assert document["reached_bytes"] == asked == counted
    # One origin for each device on the path.
    assert {(origin["comm"], origin["bytes"]) for origin in document["origins"]} == {("python", asked)}
    for row in document["ledger"]:
        assert row["bytes_in"] == asked, row
