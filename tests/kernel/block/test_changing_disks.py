"""Disks that appear, disappear and change while watched. Guest tests cover the exact counts."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from opwatch.host.scratch import ScratchDisk
from tests.kernel.support.load import reads
from tests.kernel.support.loops import create_private_loop

PATIENCE_S = 60


class Watch:
    """`opwatch --json` in the background, with its lines read one by one."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "opwatch", "--json", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[dict[str, Any]] = []

    def read_until(self, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Read up to and including the first line that matches, and return the line."""
        assert self.process.stdout
        for text in self.process.stdout:
            self.lines.append(json.loads(text))
            if is_it(self.lines[-1]):
                return self.lines[-1]
        raise AssertionError(f"it ended before that: {self.lines[-3:]}")

    def wait_for_event(self, kind: str, device: str) -> dict[str, Any]:
        return self.read_until(lambda line: (line.get("event"), line["device"]) == (kind, device))

    def interrupt_opwatch(self) -> str:
        """Interrupt opwatch, read the remaining output and return stderr."""
        self.process.send_signal(signal.SIGINT)
        return self.wait_for_end()

    def wait_for_end(self) -> str:
        """Read until opwatch ends by itself, and return stderr."""
        assert self.process.stdout and self.process.stderr
        self.lines += [json.loads(line) for line in self.process.stdout]
        said = self.process.stderr.read()
        self.process.wait(PATIENCE_S)
        return said

    def list_summaries(self, device: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if (line["type"], line["device"]) == ("summary", device)]


@contextlib.contextmanager
def start_watch(*arguments: str) -> Iterator[Watch]:
    """Yield an opwatch after the first interval, when it is attached."""
    watch = Watch(*arguments)
    try:
        watch.read_until(lambda line: line["type"] == "interval")
        yield watch
    finally:
        watch.process.kill()
        watch.process.wait()


def _count_known_reads(summary: dict[str, Any]) -> int:
    """Return the reads that are counted or reported missing: some virtual machines skip BPF programs
    silently."""
    drift = summary["trust"]["drift"].get("read", 0)
    unseen = summary["arrival"]["unseen_requests"]["read"] if summary["arrival"] else 0
    return int(summary["ops"]["read"]["count"] + drift + unseen)


def test_watch_follows_loop_devices_when_no_disk_is_named(disk: ScratchDisk) -> None:
    with start_watch("0.2") as watch:
        with ScratchDisk(16 << 20) as late:
            name = late.name
            watch.wait_for_event("came", name)
            reads(late.node, 101)
            time.sleep(0.5)
        watch.wait_for_event("left", name)
        # opwatch continues with the other disks.
        watch.read_until(lambda line: (line["type"], line["device"]) == ("interval", disk.name))
        err = watch.interrupt_opwatch()
    assert watch.process.returncode == 0, err
    # Another process's loop device may have used the number earlier.
    summaries = watch.list_summaries(name)
    assert "gone" in [summary["leaving"]["why"] for summary in summaries if summary["leaving"]]
    assert sum(_count_known_reads(summary) for summary in summaries) >= 101
    assert re.search(rf"\b{name} appeared\b", err)
    assert re.search(rf"\b{name} .*\bgone\b", err)
    assert watch.list_summaries(disk.name)[0]["leaving"] is None


def test_resized_partition_has_a_summary_per_range(disk: ScratchDisk) -> None:
    """Resize by ioctl, as parted does: the partition is not removed in between."""
    partition = f"{disk.name}p1"
    subprocess.run(["addpart", disk.node, "1", "2048", "65536"], check=True)
    try:
        with start_watch("--dev", partition, "0.2") as watch:
            subprocess.run(["resizepart", disk.node, "1", "131072"], check=True)
            watch.wait_for_event("came", partition)
            reads(f"/dev/{partition}", 101)
            watch.interrupt_opwatch()
    finally:
        subprocess.run(["delpart", disk.node, "1"], check=True)
    first, second = watch.list_summaries(partition)
    assert (first["leaving"]["why"], second["leaving"]) == ("resized", None)
    assert first["arrival"] is None
    assert second["arrival"]["unseen_requests"]["read"] >= 0
    assert watch.process.returncode == 0


def test_watch_ends_when_another_disk_takes_the_loop_device() -> None:
    """The statistics continue as if nothing had happened; only a message reports the replacement."""
    with (
        create_private_loop(1 << 20) as loop,
        start_watch("--dev", loop.node, "1", "--no-discards", "--return-within", "0") as watch,
    ):
        # opwatch is stopped, so it only sees the final state.
        watch.process.send_signal(signal.SIGSTOP)
        loop.detach()
        loop.attach(loop.second)
        watch.process.send_signal(signal.SIGCONT)
        err = watch.wait_for_end()
    assert watch.process.returncode == 1
    assert re.search(rf"\b{loop.name} .*\bgone\b", err)
    [summary] = watch.list_summaries(loop.name)
    assert summary["leaving"]["why"] == "replaced"
    assert [line for line in summary["unexplained"] if "another" in line]


def test_returning_disk_is_watched_again_but_a_replacement_is_not() -> None:
    with (
        create_private_loop(1 << 20) as loop,
        start_watch("--dev", loop.node, "0.2", "--no-discards") as watch,
    ):
        reads(loop.node, 101)
        loop.detach()
        watch.wait_for_event("left", loop.name)
        loop.attach(loop.second)
        watch.wait_for_event("not_watched", loop.name)
        reads(loop.node, 53)
        loop.detach()
        loop.attach(loop.first)
        watch.wait_for_event("came", loop.name)
        reads(loop.node, 67)
        time.sleep(0.5)
        err = watch.interrupt_opwatch()
    assert watch.process.returncode == 0, err
    first, second = watch.list_summaries(loop.name)
    assert (first["leaving"]["why"], second["leaving"]) == ("gone", None)
    assert _count_known_reads(first) >= 101
    # Nothing of the other file is counted; udev may read new disks.
    assert second["ops"]["read"]["count"] >= 67
    assert re.search(r"\banother\b", err) and re.search(r"\bback\b.*\bsame\b", err)
