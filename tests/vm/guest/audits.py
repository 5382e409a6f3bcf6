"""Filesystems and audits in a guest, beside the recipes of tests/kernel/trims.py."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from opwatch.trim.audit import Audit, Verdict
from tests.kernel import trims
from tests.kernel.trims import audit, codes, row
from tests.vm.requirements import need_module, need_tool

__all__ = ["Audit", "Verdict", "audit", "codes", "filesystem", "row", "whole"]

# XFS wants 300 MB unless it is told that nobody will complain.
_MKFS = trims.MKFS | {
    "f2fs": ("mkfs.f2fs", "-q", "-f", "-t", "0"),
    "xfs": ("mkfs.xfs", "--unsupported", "-q", "-f", "-K"),
}


@contextlib.contextmanager
def filesystem(node: str, kind: str, *options: str, make: bool = True) -> Iterator[Path]:
    """A filesystem on a device (a name under /dev), new unless told otherwise; its mount point."""
    need_module(kind)
    need_tool(_MKFS[kind][0])
    if make:
        trims.run(*_MKFS[kind], f"/dev/{node}")
    with trims.folder(Path("/tmp")) as point:
        trims.run(
            "mount", "-t", kind, *(("-o", ",".join(options)) if options else ()), f"/dev/{node}", str(point)
        )
        try:
            yield point
        finally:
            trims.run("umount", str(point))


def whole(found: Audit, verdict: Verdict = Verdict.ACCEPTED) -> int:
    """Bytes of an audit in which no layer lost anything: what left the filesystem."""
    assert found.verdict is verdict, found.rows
    assert found.unexplained_bytes == 0
    for each in found.rows:
        assert each.unknown is None
        assert each.bytes_in == each.bytes_out, each
        assert not each.errors
    trace = found.evidence.trace
    assert trace.loss == (0, 0, 0, 0, 0)
    assert trace.misses == 0
    for name, (_, counted) in trace.stats.items():
        assert counted in (0, found.rows[0].bytes_out), name
    sent = found.rows[0].bytes_out
    assert sent
    return sent
