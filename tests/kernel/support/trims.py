"""Disks, filesystems and audits for tests of `opwatch trim audit`: created, used and removed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from opwatch.host.loop import Binding, attach_loop
from opwatch.host.scratch import MEMORY
from opwatch.host.usage import Mount, read_usage
from opwatch.tools.commands.trim.audit import audit_mount
from opwatch.trim.audit.audit import Asked, Audit, Row, Verdict
from tests.kernel.support.guard import guard_resource

MIB = 1 << 20
# See tests/kernel/support/watching.py: some virtual machines lose events, and the audit then says UNKNOWN.
ATTEMPTS = 5
MKFS = {
    "ext4": ("mkfs.ext4", "-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"),
    "xfs": ("mkfs.xfs", "-q", "-f", "-K"),
    "btrfs": ("mkfs.btrfs", "-q", "-f", "-K"),
}


def run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout


@contextlib.contextmanager
def create_folder(where: Path = MEMORY) -> Iterator[Path]:
    with (
        tempfile.TemporaryDirectory(prefix="opwatch-trim-", dir=where) as name,
        guard_resource("folder", name),
    ):
        yield Path(name)


@contextlib.contextmanager
def create_loop(backing: Path | str) -> Iterator[str]:
    """Yield the node of a loop device on an existing file or device, for exclusive use."""
    file = os.open(backing, os.O_RDWR | os.O_CLOEXEC)
    try:
        device = attach_loop(file, Binding(partscan=False))
    finally:
        os.close(file)
    with device:
        yield device.node
        device.require_same()
        device.detach()


@contextlib.contextmanager
def lower_limit(disk: str, max_bytes: int) -> Iterator[None]:
    """Lower a disk's discard limit for the duration. A loop device's limit outlives its detachment."""
    limit = Path(f"/sys/block/{disk}/queue/discard_max_bytes")
    before = int(limit.read_text())
    limit.write_text(str(max_bytes))
    try:
        yield
    finally:
        # A limit that is not a multiple of the granularity can be read but not written.
        limit.write_text(str(before // 4096 * 4096))


@contextlib.contextmanager
def create_loop_without_discards() -> Iterator[str]:
    """Yield a loop device on a ramfs file, which cannot have holes, as the kernel knows in advance."""
    with create_folder(Path("/tmp")) as home:
        run("mount", "-t", "ramfs", "ramfs", str(home))
        try:
            image = home / "image"
            with image.open("wb") as file:
                file.truncate(64 * MIB)
            with create_loop(image) as node:
                yield node
        finally:
            run("umount", str(home))


@contextlib.contextmanager
def mount_filesystem(node: str, filesystem: str, *options: str, make: bool = True) -> Iterator[Path]:
    """Yield the mount point of a filesystem; `make` formats the device first."""
    if make:
        run(*MKFS[filesystem], node)
    with create_folder(Path("/tmp")) as point:
        run("mount", *(("-o", ",".join(options)) if options else ()), node, str(point))
        assert os.path.ismount(point)
        try:
            yield point
        finally:
            subprocess.run(["umount", str(point)], check=True, capture_output=True)


@contextlib.contextmanager
def create_file(size: int, where: Path = MEMORY) -> Iterator[Path]:
    """Yield a file for a test; once its blocks are allocated, holes show as freed blocks."""
    with create_folder(where) as home:
        path = home / "image"
        with path.open("wb") as file:
            file.truncate(size)
        yield path


def fill_holes(path: Path) -> int:
    """Allocate all blocks of a file and return its allocated bytes."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, size)
    return count_allocated(path)


def count_allocated(path: Path) -> int:
    return path.stat().st_blocks * 512


F_ADD_SEALS, F_SEAL_FUTURE_WRITE = 1033, 0x10


@contextlib.contextmanager
def create_sealable(size: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield a loop device on a file in memory, and a function that makes all later discards fail."""
    # The name is unique because mkfs.btrfs confuses loop devices whose files have the same name, so a device
    # that a killed run left mounted would block all later runs.
    name = f"opwatch-trim-{uuid.uuid4().hex}"
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.truncate(descriptor, size)
        with create_loop(f"/proc/{os.getpid()}/fd/{descriptor}") as node:
            yield node, lambda: _seal_file(descriptor)
    finally:
        os.close(descriptor)


def _seal_file(descriptor: int) -> None:
    fcntl.fcntl(descriptor, F_ADD_SEALS, F_SEAL_FUTURE_WRITE)


def find_mount_at(point: Path) -> Mount:
    [mount] = [candidate for candidate in read_usage().mounts if candidate.point == str(point)]
    return mount


def audit_point(point: Path, minlen: int = 0) -> Audit:
    return audit_mount(find_mount_at(point), Asked(minlen=minlen))


def has_host_losses(result: Audit) -> bool:
    return any(reason.code == "trace-lost" for row in result.rows for reason in row.reasons)


def audit_until_complete(
    disk: Callable[[], contextlib.AbstractContextManager[Path]],
) -> Iterator[tuple[Path, Audit]]:
    """Yield (mount point, audit) of a new filesystem; retry while the host loses events."""
    for attempt in range(ATTEMPTS):
        with disk() as point:
            result = audit_point(point)
            if attempt == ATTEMPTS - 1 or not has_host_losses(result):
                yield point, result
                return


def find_row(result: Audit, layer: str) -> Row:
    [one] = [line for line in result.rows if line.layer == layer]
    return one


def sum_reasons(result: Audit) -> dict[str, int | None]:
    """Return the lost bytes of each reason code, summed."""
    taken: dict[str, int | None] = {}
    for reason in [*(reason_of_row for row in result.rows for reason_of_row in row.reasons), *result.reasons]:
        before = taken.get(reason.code)
        taken[reason.code] = reason.lost_bytes if before is None else before + (reason.lost_bytes or 0)
    return taken


def assert_clean(result: Audit, verdict: Verdict = Verdict.ACCEPTED) -> None:
    """Check that every byte sent by the filesystem reached the device, and that all rows agree."""
    assert result.verdict is verdict, result.rows
    assert result.unexplained_bytes == 0
    for line in result.rows:
        if line.unknown:  # btrfs where fentry and fexit cannot be attached
            assert line.bytes_out is None
            continue
        assert line.bytes_in == line.bytes_out == result.reached_bytes, line
        assert not line.errors
