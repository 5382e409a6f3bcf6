"""iostat(1) next to opwatch: the same requests, and the same await, %util and queue size within our printed
errors and iostat's rounding."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from opwatch.host.scratch import ScratchDisk
from tests.kernel.support.drives import MIB, create_drive
from tests.kernel.support.load import discards, flushes
from tests.kernel.support.watching import ATTEMPTS, parse_lines
from tests.requirements import require_drive, skip_or_fail

Document = dict[str, Any]

SECONDS = 6
READS, WRITES = 1009, 503
# iostat prints two decimals, of rates and sums per second, of milliseconds and of per cent.
ROUNDED = 0.005
LETTERS = {"read": "r", "write": "w", "discard": "d", "flush": "f"}


@contextlib.contextmanager
def create_loop() -> Iterator[str]:
    with ScratchDisk(256 * MIB) as disk:
        yield disk.node


@contextlib.contextmanager
def create_simulated() -> Iterator[str]:
    """Yield a simulated drive with the latency of a real drive."""
    require_drive()
    with create_drive(words=("timing",)) as one:
        yield one.device


def issue_load(node: str) -> None:
    """Issue requests of every kind, with pauses so that the disk is idle in between."""
    for rw, count in (("randread", READS), ("randwrite", WRITES)):
        subprocess.run(
            [
                *("fio", "--name=x", f"--filename={node}", f"--rw={rw}", "--bs=4k", "--direct=1"),
                *("--ioengine=libaio", "--iodepth=16", f"--number_ios={count}", "--size=32m"),
                *("--output=/dev/null",),
            ],
            check=True,
            timeout=60,
        )
        time.sleep(0.2)
    discards(node, 7)
    flushes(node, 11)


@contextlib.contextmanager
def run_program(*argv: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program in the C locale and kill it at the end."""
    language = os.environ | {"LC_ALL": "C"}
    with subprocess.Popen(argv, env=language, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def measure_both(node: str) -> tuple[Document, Document] | None:
    """Return our summary and iostat's row for an interval that covers the whole load; None if the load took
    longer than iostat's interval."""
    watch = (sys.executable, "-m", "opwatch", "--json", "--by", "none", "--waf", "0", "--dev", node, "0.2")
    iostat = ("iostat", "-d", "-x", "-y", "-o", "JSON", node, str(SECONDS), "1")
    with run_program(*watch) as ours:
        assert ours.stdout
        first = ours.stdout.readline()
        with run_program(*iostat) as theirs:
            # iostat takes its first reading, which is not printed, before the load starts.
            time.sleep(0.5)
            begun = time.monotonic()
            issue_load(node)
            if time.monotonic() - begun > SECONDS - 1:
                return None
            out, _ = theirs.communicate(timeout=60)
        ours.send_signal(signal.SIGINT)
        rest, _ = ours.communicate(timeout=60)
    [report] = json.loads(out)["sysstat"]["hosts"][0]["statistics"]
    [row] = report["disk"]
    return parse_lines(first + rest)[-1], row


def measure_covered_load(node: str) -> tuple[Document, Document]:
    """Return both results for a load that lies within both intervals and that our programs saw completely."""
    for _ in range(ATTEMPTS):
        pair = measure_both(node)
        if pair and pair[0]["ops"]["read"]["count"] == READS:
            return pair
    raise AssertionError(f"no load of {READS} reads was seen by both: {pair}")


@pytest.mark.parametrize("made", [create_loop, create_simulated])
def test_opwatch_and_iostat_agree(made: Callable[[], contextlib.AbstractContextManager[str]]) -> None:
    if not shutil.which("iostat"):
        skip_or_fail("kernel", "iostat is not installed: apt-get install sysstat")
    with made() as node:
        ours, theirs = measure_covered_load(node)
    # iostat's interval length is only known from the known number of requests.
    elapsed_s = READS / theirs["r/s"]
    assert SECONDS * 0.95 < elapsed_s < SECONDS * 1.5
    times = ours["kernel_times"]
    assert times["await_ns"].keys() >= {"read", "write", "discard"}
    for group, awaited in times["await_ns"].items():
        off_ms = abs(awaited["mean"] / 1e6 - theirs[f"{LETTERS[group]}_await"])
        assert off_ms <= awaited["error"] / 1e6 + ROUNDED, (group, awaited, theirs)
    for name, value, error, scale in (
        ("util", times["busy_ratio"], times["busy_error"], 100),
        ("aqu-sz", times["queue_size"], 0.001 / ours["interval_s"], 1),
    ):
        off_s = abs(value * ours["interval_s"] - theirs[name] / scale * elapsed_s)
        assert off_s <= error * ours["interval_s"] + ROUNDED / scale * elapsed_s, (name, times, theirs)
    assert times["busy_ratio"] < 1
    # A fast loop device completes requests between two kernel clock ticks, and is then never busy at a tick.
    assert times["busy_ratio"] > 0 or made is create_loop
