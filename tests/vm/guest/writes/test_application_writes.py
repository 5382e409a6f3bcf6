"""What programs write to files, by every way of writing: exact to the byte."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from opwatch.collectors.writes.application import ApplicationTracer
from opwatch.errors import Unsupported
from opwatch.tools.acting.trim.fitrim import require_mount
from opwatch.writes.application import ApplicationWrites
from tests.vm.guest.support.nullblk import NullBlk, create_null_blk
from tests.vm.guest.support.shell import run_command
from tests.vm.guest.support.trims import MIB, mount_with_files
from tests.vm.requirements import need_feature, need_module, need_tool

# Manual runs only.
TIERS = ()
DISK = NullBlk(size=512, memory_backed=1)
KINDS = ("ext4", "xfs", "btrfs", "f2fs")
ODD = 5003
CHUNK = 64 << 10


@contextmanager
def open_file(path: Path, flags: int = 0) -> Iterator[int]:
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | flags, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def write_buffered(folder: Path) -> int:
    with open_file(folder / "write") as file:
        return sum(os.write(file, os.urandom(ODD)) for _ in range(11))


def write_with_flags(folder: Path) -> int:
    with open_file(folder / "pwritev2") as file:
        return sum(os.pwritev(file, [bytes(ODD), b"tail"], at, os.RWF_DSYNC) for at in (0, 10, 90_000))


def write_directly(folder: Path) -> int:
    with open_file(folder / "direct", os.O_DIRECT) as file, mmap.mmap(-1, CHUNK) as buffer:
        return sum(os.pwritev(file, [buffer], at * CHUNK) for at in range(5))


def splice_from_pipe(folder: Path) -> int:
    source, sink = os.pipe()
    with open_file(folder / "splice") as file:
        written = 0
        for _ in range(7):
            os.write(sink, bytes(ODD))
            written += os.splice(source, file, ODD)
    os.close(source)
    os.close(sink)
    return written


def send_file(folder: Path) -> int:
    with open_file(Path("/run/source")) as source, open_file(folder / "sendfile") as file:
        os.write(source, os.urandom(3 * ODD))
        return os.sendfile(file, source, 0, 3 * ODD)


def copy_range(folder: Path) -> int:
    """Write a source, and copy it within the file system. XFS and btrfs would share its blocks instead."""
    with open_file(folder / "source") as source, open_file(folder / "copy") as file:
        written = os.write(source, os.urandom(3 * ODD))
        return written + os.copy_file_range(source, file, 3 * ODD, offset_src=0)


def run_fio_engine(folder: Path, engine: str, *options: str) -> int:
    need_tool("fio")
    argv = ("fio", "--name=x", f"--filename={folder}/{engine}-{len(options)}", "--rw=randwrite", "--bs=16k")
    shape = ("--size=1M", "--iodepth=8", f"--ioengine={engine}", "--fallocate=none", "--output-format=json")
    (job,) = json.loads(run_command(*argv, *shape, *options))["jobs"]
    return int(job["write"]["io_bytes"])


def write_by_loop_device(folder: Path) -> int:
    need_module("loop")
    path = folder / "image"
    with open_file(path) as file:
        os.ftruncate(file, 4 * MIB)
    node = run_command("losetup", "--find", "--show", str(path)).strip()
    try:
        run_command("dd", "if=/dev/zero", f"of={node}", "bs=64k", "count=16", "oflag=direct")
    finally:
        run_command("losetup", "--detach", node)
    return MIB


def write_by_overlay(folder: Path) -> int:
    need_module("overlay")
    lower, upper, work, point = (Path("/run") / "lower", folder / "upper", folder / "work", folder / "point")
    for path in (lower, upper, work, point):
        path.mkdir()
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    run_command("mount", "-t", "overlay", "-o", options, "overlay", str(point))
    try:
        return write_buffered(point)
    finally:
        run_command("umount", str(point))
        lower.rmdir()


WAYS: Mapping[str, Callable[[Path], int]] = {
    "write": write_buffered,
    "pwritev2": write_with_flags,
    "O_DIRECT": write_directly,
    "splice": splice_from_pipe,
    "sendfile": send_file,
    "AIO direct": lambda folder: run_fio_engine(folder, "libaio", "--direct=1"),
    "io_uring direct": lambda folder: run_fio_engine(folder, "io_uring", "--direct=1", "--end_fsync=1"),
    "io_uring buffered": lambda folder: run_fio_engine(folder, "io_uring"),
    "loop": write_by_loop_device,
    "overlayfs": write_by_overlay,
}

COPYING = ("ext4", "f2fs")


def settle(point: Path) -> None:
    """Write everything back: writes of the loop device's thread and asynchronous ones are complete then."""
    run_command("sync", "-f", str(point))


def open_tracer(kind: str, point: Path) -> ApplicationTracer:
    try:
        tracer = ApplicationTracer(require_mount(str(point)))
    except Unsupported as error:
        need_feature(f"application-{kind}", False, str(error))
        raise
    need_feature(f"application-{kind}", True)
    return tracer


@contextmanager
def trace_new_filesystem(kind: str) -> Iterator[tuple[Path, ApplicationTracer]]:
    """Yield the mount point of a new file system, and its tracer."""
    with (
        create_null_blk(DISK) as disk,
        mount_with_files(kind, disk) as point,
        closing(open_tracer(kind, point)) as tracer,
    ):
        yield point, tracer
        assert (tracer.count_missed_runs(), tracer.read_counts().lost) == (0, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_every_way_of_writing_is_counted_to_the_byte(kind: str) -> None:
    counted, expected = dict[str, int](), dict[str, int]()
    ways = {**WAYS, "copy_file_range": copy_range} if kind in COPYING else WAYS
    with trace_new_filesystem(kind) as (point, tracer):
        before = tracer.read_counts()
        for name, write in ways.items():
            expected[name] = write(point)
            settle(point)
            after = tracer.read_counts()
            counted[name] = after.subtract(before).total_bytes
            before = after
    assert counted == expected


@pytest.mark.parametrize("kind", KINDS)
def test_pages_of_mapped_files_are_a_bound(kind: str) -> None:
    pages = 37
    with trace_new_filesystem(kind) as (point, tracer), open_file(point / "mapped") as file:
        os.ftruncate(file, pages * mmap.PAGESIZE)
        with mmap.mmap(file, pages * mmap.PAGESIZE) as mapping:
            for at in range(pages):
                mapping[at * mmap.PAGESIZE] = 1
                mapping[at * mmap.PAGESIZE + 9] = 2
        assert tracer.read_counts() == ApplicationWrites(0, 0, pages)


def test_other_file_systems_are_not_counted() -> None:
    with trace_new_filesystem("ext4") as (_, tracer):
        write_buffered(Path("/run"))
        assert tracer.read_counts().total_bytes == 0
