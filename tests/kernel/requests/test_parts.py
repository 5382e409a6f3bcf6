"""Requests completed in two parts by their driver, and failed flush sequences, count once."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from opwatch.host import loop
from tests.kernel.support.load import BLOCK, allocate_aligned, open_direct, reads
from tests.kernel.support.watching import find_losses, parse_lines, run_opwatch, watch_disks

SOURCE = Path(__file__).parents[1] / "support" / "slow_file.c"
# Values from slow_file.c.
SLOW_AT = 8 << 20
PAUSE_NS = 2_000_000_000
FAIL_AT = 12 << 20
SIZE = 16 * BLOCK


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("slow") / "slow_file"
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True, text=True, check=True
    ).stdout.split()
    subprocess.run([os.environ.get("CC", "cc"), "-o", program, SOURCE, *flags], check=True)
    return program


@contextmanager
def create_slow_disk(server: Path, mount: Path) -> Iterator[str]:
    """Yield the node of a loop device. The first read at SLOW_AT returns half the bytes after PAUSE_NS."""
    mount.mkdir()
    with subprocess.Popen([server, mount]) as running:
        try:
            while not (mount / "file").exists():
                assert running.poll() is None
            descriptor = os.open(mount / "file", os.O_RDWR)
            try:
                device = loop.attach_loop(descriptor, loop.Binding())
                try:
                    yield device.node
                finally:
                    device.detach()
            finally:
                os.close(descriptor)
        finally:
            subprocess.run(["umount", mount], check=True)
            running.wait()


def test_latency_spans_the_first_issue_to_the_last_completion(server: Path, tmp_path: Path) -> None:
    with create_slow_disk(server, tmp_path / "mnt") as node:
        [watched] = watch_disks(
            [Path(node).name], lambda: reads(node, 1, size=SIZE, start=SLOW_AT), attempts=1
        )
    read = watched.interval.ops["read"]
    assert (watched.trust.partial, watched.trust.requeued) == (1, 1)
    assert (read.count, read.bytes, read.issued) == (1, SIZE, 1)
    assert read.latency.mean is not None
    assert PAUSE_NS < read.latency.mean < 1.5 * PAUSE_NS
    assert read.latency.max == read.latency.mean
    assert read.median_size() == SIZE
    assert watched.trust.in_flight == 0


def test_slow_request_has_the_size_and_latency_of_all_parts(server: Path, tmp_path: Path) -> None:
    with create_slow_disk(server, tmp_path / "mnt") as node:
        argv = ["dd", f"if={node}", "of=/dev/null", f"bs={SIZE}", "iflag=direct", "count=1", "status=none"]
        argv.append(f"skip={SLOW_AT // SIZE}")
        done = run_opwatch("--json", "--slow", "1s", "--dev", Path(node).name, "--", *argv)
    slow = parse_lines(done.stdout)[-1]["slow"]
    assert slow["count"] == 1
    [request] = slow["requests"]
    assert (request["sector"], request["bytes"]) == (SLOW_AT // 512, SIZE)
    assert PAUSE_NS < request["latency_ns"] < 1.5 * PAUSE_NS


def test_failed_write_of_a_flush_sequence_counts_as_a_single_error(server: Path, tmp_path: Path) -> None:
    """The data write fails, and then the sequence ends with the same error."""

    def run_workload() -> None:
        with open_direct(node, os.O_DSYNC) as disk:
            for index in range(11):
                with pytest.raises(OSError, match=os.strerror(errno.EIO)):
                    os.pwritev(disk, [allocate_aligned(BLOCK)], FAIL_AT + index * BLOCK)

    with create_slow_disk(server, tmp_path / "mnt") as node:
        [watched] = watch_disks([Path(node).name], run_workload)
    write = watched.interval.ops["write"]
    assert (write.count, write.errors, write.statuses) == (11, 11, {"I/O": 11})
    assert write.error_bytes == 11 * BLOCK
    assert watched.trust.flush_tails >= 11
    assert find_losses(watched.trust) == []
