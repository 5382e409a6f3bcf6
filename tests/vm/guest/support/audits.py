"""Filesystems and audits in a guest, in addition to tests/kernel/support/trims.py. Files in memory behind
loop devices are the oracle: their allocated blocks show each discard exactly."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from opwatch.trim.audit.audit import Audit, Row, Verdict
from tests.kernel.support import trims
from tests.kernel.support.trims import audit_point, find_row, sum_reasons
from tests.vm.guest.support import stacked, sysfs
from tests.vm.guest.support.shell import run_command
from tests.vm.requirements import need_module, need_tool

__all__ = [
    "MIB",
    "MKFS",
    "Audit",
    "Verdict",
    "audit_point",
    "audit_new_filesystem",
    "sum_reasons",
    "mount_filesystem",
    "fragment_free_space",
    "count_freed_bytes",
    "full_loop",
    "find_image",
    "find_leaf_row",
    "load_free_space",
    "find_row",
    "check_lossless",
]
MIB = 1 << 20

# mkfs.xfs needs 300 MB unless it gets --unsupported.
MKFS = trims.MKFS | {
    "f2fs": ("mkfs.f2fs", "-q", "-f", "-t", "0"),
    "xfs": ("mkfs.xfs", "--unsupported", "-q", "-f", "-K"),
}


@contextlib.contextmanager
def mount_filesystem(node: str, kind: str, *options: str, make: bool = True) -> Iterator[Path]:
    """Yield the mount point of a filesystem on a device (a name under /dev); `make` formats first."""
    need_module(kind)
    need_tool(MKFS[kind][0])
    if make:
        trims.run(*MKFS[kind], f"/dev/{node}")
    with trims.create_folder(Path("/tmp")) as point:
        trims.run(
            "mount", "-t", kind, *(("-o", ",".join(options)) if options else ()), f"/dev/{node}", str(point)
        )
        try:
            yield point
        finally:
            trims.run("umount", str(point))


def check_lossless(result: Audit, verdict: Verdict = Verdict.ACCEPTED) -> int:
    """Check that no layer lost anything, and return the bytes sent by the filesystem."""
    assert result.verdict is verdict, result.rows
    assert result.unexplained_bytes == 0
    for line in result.rows:
        assert line.unknown is None
        assert line.bytes_in == line.bytes_out, line
        assert line.bytes_ok in (None, line.bytes_in), line
        assert not line.errors
    trace = result.evidence.trace
    assert trace.loss == (0, 0, 0, 0, 0)
    assert trace.misses == 0
    for name, (_, counted) in trace.stats.items():
        assert counted in (0, result.rows[0].bytes_out), name
    sent = result.rows[0].bytes_out
    assert sent
    return sent


def find_image(loop: str) -> Path:
    """Return the file behind a loop device."""
    return Path((sysfs.SYS_BLOCK / loop / "loop/backing_file").read_text().strip())


def count_freed_bytes(loop: str) -> int:
    """Return the unallocated bytes of the file behind a loop device."""
    path = find_image(loop)
    return path.stat().st_size - trims.count_allocated(path)


def full_loop(size: int = 256 * MIB) -> contextlib.AbstractContextManager[str]:
    """Yield a loop device; `audited` later allocates all blocks of its file."""
    return stacked.create_loop(size)


def audit_new_filesystem(top: str, kind: str, *loops: str) -> Audit:
    """Audit a new filesystem after allocating all blocks of the files below it."""
    with mount_filesystem(top, kind) as point:
        os.sync()
        for loop in loops:
            trims.fill_holes(find_image(loop))
        return audit_point(point)


def fragment_free_space(point: Path, sizes: Sequence[int], every: int = 2) -> None:
    """Create files of these sizes and delete every second or n-th, which leaves as many free extents."""
    files = [point / f"part{number}" for number in range(len(sizes))]
    for file, size in zip(files, sizes, strict=True):
        file.write_bytes(b"x" * size)
    run_command("sync", "-f", str(point))
    for file in files[::every]:
        file.unlink()
    run_command("sync", "-f", str(point))


def find_leaf_row(result: Audit, device: str) -> Row:
    """Return the row with the bytes sent to a device."""
    [one] = [line for line in result.rows if line.device == device and line.layer != "granules"]
    return one


def load_free_space(point: Path) -> None:
    """Make ext4 load its free space metadata without trimming, because no extent is as long as a group."""
    trims.run("fstrim", "-m", "128M", str(point))
