"""`opwatch trim audit` where nothing can be attached to functions: tracepoints alone."""

from __future__ import annotations

import functools
import os

import pytest

from opwatch.collectors.audit import discard_programs
from tests.kernel.support import trims
from tests.vm.guest.support import stacked, sysfs
from tests.vm.guest.support.audits import (
    MIB,
    Verdict,
    audit,
    audited,
    codes,
    filesystem,
    freed,
    full_loop,
    image,
    leaf,
    row,
    whole,
)
from tests.vm.guest.support.scsidebug import scsi_debug
from tests.vm.guest.support.shell import put
from tests.vm.guest.support.sysfs import SYS_BLOCK

DEVICES = ("nvme",)


@pytest.fixture(autouse=True)
def _no_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a kernel without BPF trampolines."""
    without = functools.partial(discard_programs.loader, functions=False)
    monkeypatch.setattr(discard_programs, "loader", without)


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_filesystems_that_tell_their_extents_lose_nothing(kind: str) -> None:
    with full_loop() as loop, stacked.linear(loop) as top:
        found = audited(top.name, kind, loop)
        assert whole(found) == found.reached_bytes == freed(loop)
    assert {"discard_asked", "discard_submitted"} <= found.evidence.trace.absent


def test_f2fs() -> None:
    with full_loop() as loop, filesystem(loop, "f2fs", "nodiscard") as point:
        os.sync()
        trims.fill_holes(image(loop))
        found = audit(point)
        assert found.reached_bytes == freed(loop) == found.claimed_bytes == row(found, "filesystem").bytes_out
    assert (found.verdict, found.unexplained_bytes) == (Verdict.ACCEPTED, 0)


def test_several_ranges_in_a_command() -> None:
    """They are in the bios of the request, which its tracepoint hands over."""
    disk = sysfs.disk("opw-nvme")
    with filesystem(disk, "xfs") as point:
        before = sysfs.stat(disk)
        found = audit(point)
        counted = sysfs.stat(disk) - before
    assert whole(found) == found.reached_bytes == counted.discard_bytes
    assert row(found, "disk").requests == counted.discards


def test_what_vanishes_is_missed_by_the_filesystem_that_told_it() -> None:
    with scsi_debug(lbpu=1, lbpws=0, dev_size_mb=384) as device:
        [mode] = (SYS_BLOCK / device.name / "device/scsi_disk").glob("*/provisioning_mode")
        with filesystem(device.name, "ext4") as point:
            put(mode, "writesame_16")
            found = audit(point)
    sent = row(found, "filesystem").bytes_out
    assert sent
    assert (found.verdict, found.reached_bytes, found.unexplained_bytes) == (Verdict.REJECTED, 0, 0)
    assert codes(found) == {"scsi-disabled": sent}


def test_btrfs_tells_nobody() -> None:
    """What reached the disk is exact; what btrfs gave away is refused, in words."""
    with full_loop() as loop:
        found = audited(loop, "btrfs", loop)
        # See test_audit_stacks: a block of the end is trimmed twice.
        assert found.reached_bytes - freed(loop) in (0, 4096)
    top = row(found, "filesystem")
    assert (top.bytes_in, top.bytes_out, top.requests) == (None, None, None)
    assert top.unknown is not None
    assert "btrfs has no events for its extents" in top.unknown
    assert found.reached_bytes == leaf(found, loop).bytes_ok == found.claimed_bytes
    assert found.reached_bytes > 128 * MIB
    assert (found.verdict, found.unexplained_bytes) == (Verdict.ACCEPTED, 0)
