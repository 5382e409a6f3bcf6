"""Workloads of exactly known size, and fio's own counts."""

from __future__ import annotations

import contextlib
import errno
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.vm.guest.support.shell import run_command, write_attribute
from tests.vm.requirements import need_tool


@dataclass(frozen=True)
class FioCounts:
    """fio's counts of requests and bytes, and the number of failed requests."""

    reads: int
    read_bytes: int
    writes: int
    write_bytes: int
    trims: int
    trim_bytes: int
    errors: int


@dataclass(frozen=True)
class Fio:
    """Jobs of `count` requests each; a prime count cannot result from rounding.

    The size ends the job instead of fio's number_ios, which only counts successful requests. With
    `goes_on` a failed request is counted and the job continues.
    """

    rw: str
    count: int
    block_bytes: int = 4096
    iodepth: int = 16
    jobs: int = 1
    engine: str = "libaio"
    goes_on: bool = False
    extra: tuple[str, ...] = ()

    def _format_error_options(self) -> list[str]:
        # By default fio continues after EIO only; a medium error is ENODATA, a path's error is ENOLINK.
        codes = ":".join(str(c) for c in (errno.EIO, errno.ENODATA, errno.ENOLINK, errno.ETIMEDOUT))
        return ["--continue_on_error=all", f"--ignore_error={codes},{codes}"]

    def build_argv(self, device: str) -> list[str]:
        """Return fio's command line for a device (a path)."""
        return [
            *("fio", "--name=opw", f"--filename={device}", f"--rw={self.rw}", "--direct=1"),
            *(f"--bs={self.block_bytes}", f"--iodepth={self.iodepth}", f"--numjobs={self.jobs}"),
            *(f"--ioengine={self.engine}", f"--io_size={self.count * self.block_bytes}"),
            *(
                "--norandommap=1",
                "--thread=1",
                "--group_reporting=1",
                "--output-format=json",
                "--randrepeat=1",
            ),
            *("--invalidate=0", *self.extra, *(self._format_error_options() if self.goes_on else [])),
        ]


def parse_counts(text: str) -> FioCounts:
    """Return the totals of all jobs in fio's JSON."""
    jobs = json.loads(text[text.index("{") :])["jobs"]

    def sum_field(op: str, field: str) -> int:
        return sum(int(job[op][field]) for job in jobs)

    return FioCounts(
        reads=sum_field("read", "total_ios"),
        read_bytes=sum_field("read", "io_bytes"),
        writes=sum_field("write", "total_ios"),
        write_bytes=sum_field("write", "io_bytes"),
        trims=sum_field("trim", "total_ios"),
        trim_bytes=sum_field("trim", "io_bytes"),
        errors=sum(int(job.get("total_err", 0)) for job in jobs),
    )


def run_fio(device: str, job: Fio, timeout_s: float = 600.0) -> FioCounts:
    """Run the job on a device (a name under /dev) and return fio's counts.

    Failed requests appear in the counts; only a fio that could not start raises an error.
    """
    need_tool("fio")
    argv = job.build_argv(f"/dev/{device}")
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)
    if "{" not in done.stdout:
        raise RuntimeError(f"fio ended with {done.returncode}: {done.stderr.strip()}")
    counts = parse_counts(done.stdout)
    if done.returncode and not counts.errors:
        raise RuntimeError(f"fio ended with {done.returncode}: {done.stderr.strip()}")
    return counts


def discard_range(device: str, offset_bytes: int, length_bytes: int) -> None:
    """Discard a range of a device (a name under /dev)."""
    run_command("blkdiscard", "-f", "-o", str(offset_bytes), "-l", str(length_bytes), f"/dev/{device}")


def flush_cache(device: str) -> None:
    """Flush a device's cache, like fsync."""
    run_command("sync", f"/dev/{device}")


@contextlib.contextmanager
def hasten_write_back() -> Iterator[None]:
    """Make the kernel write dirty pages soon, without any process asking for it."""
    knobs = {
        Path("/proc/sys/vm") / name: 10 for name in ("dirty_writeback_centisecs", "dirty_expire_centisecs")
    }
    before = {knob: knob.read_text().strip() for knob in knobs}
    for knob, value in knobs.items():
        write_attribute(knob, value)
    try:
        yield
    finally:
        for knob, text in before.items():
            write_attribute(knob, text)
