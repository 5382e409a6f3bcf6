"""Mixed I/O on a file system of its own: what fio says is what the kernel counts, and nothing is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.support.trims import MIB, file_of, loop, mounted
from tests.unit.scenarios.test_untrimmed import problems

COMMAND = (sys.executable, "-m", "opwatch", "sweep", "run", "--scenario", "mixed-io", "-q")


@pytest.fixture
def point() -> Iterator[Path]:
    with file_of(96 * MIB) as image, loop(image) as node, mounted(node, "ext4") as where:
        yield where


def _free(point: Path) -> int:
    space = os.statvfs(point)
    return space.f_bfree * space.f_frsize


def test_members_do_what_the_load_asked_for(point: Path) -> None:
    before = _free(point)
    words = ("--on", f"one={point}", "--set", "run_s=1s", "--set", "threads=4", "--json")
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert problems(document) == []
    [one] = document["configurations"]
    assert one["kind"] == "loop" and len(one["rates"]) == 6
    for rate in one["rates"]:
        [member] = rate["members"]
        # No request is merged or split here; the journal of the file system writes some of its own.
        assert rate["reads"] <= member["reads"] <= rate["reads"] + 64
        assert rate["writes"] <= member["writes"] <= rate["writes"] + 64
        assert member["read_bytes"] >= rate["reads"] * rate["xfersize"]
    ratios = [rate["reads"] / (rate["reads"] + rate["writes"]) for rate in one["rates"]]
    assert ratios == pytest.approx([0.75, 0.25, 0.75, 0.25, 1.0, 0.0], abs=0.05)
    assert sorted(os.listdir(point)) == ["lost+found"] and _free(point) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_one_that_is_ended_leaves_nothing(point: Path, number: int) -> None:
    before = _free(point)
    words = ("--on", f"one={point}", "--set", "run_s=60s")
    with subprocess.Popen([*COMMAND, *words], stderr=subprocess.PIPE, text=True) as running:
        deadline = time.monotonic() + 60
        # The file is there once it takes space.
        while _free(point) > before - 16 * MIB:
            assert time.monotonic() < deadline and running.poll() is None
            time.sleep(0.05)
        running.send_signal(number)
        running.communicate(timeout=60)
    assert running.returncode == (7 if number == signal.SIGINT else -number)
    deadline = time.monotonic() + 20
    while _free(point) != before:
        assert time.monotonic() < deadline, "space is still taken"
        time.sleep(0.1)
    assert sorted(os.listdir(point)) == ["lost+found"]
