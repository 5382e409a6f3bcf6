"""FITRIM calls of other processes, with and without fexit: claimed bytes next to reached bytes."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from opwatch.collectors.audit.discards import DiscardTracer
from opwatch.collectors.stack.layers import LayerReader
from opwatch.tools.acting.trim.fitrim import FITRIM
from opwatch.tools.runs import trimming
from opwatch.trim.audit import ledger
from opwatch.trim.audit.audit import Audit, Verdict
from opwatch.trim.audit.flow import Stage
from opwatch.trim.audit.programs import ProgramOptions
from tests.kernel.support.trims import find_mount_at
from tests.kernel.trim.test_claims import CALL
from tests.vm.guest.support import sysfs
from tests.vm.guest.support.audits import mount_filesystem
from tests.vm.guest.support.nullblk import NullBlk, create_null_blk
from tests.vm.guest.support.scsidebug import load_scsi_debug

# Manual runs only: these tests would exceed CI's time limit.
TIERS = ()
DEVICES = ("ahci",)


def call_fitrim(point: Path, times: int) -> None:
    """Call FITRIM from another process."""
    subprocess.run([sys.executable, "-c", CALL, str(point), str(times)], check=True, timeout=60)


def watch_trim(point: Path) -> Audit:
    """Return the audit of a watch during another process's trim."""
    mount = find_mount_at(point)
    stack = LayerReader().read_mount(mount)
    evidence = trimming.trace_other_trims(
        stack, mount, lambda: call_fitrim(point, 1), 30.0, 1.0, is_early=ledger.is_contradicted
    )
    return ledger.build_audit(evidence, str(point))


@pytest.mark.parametrize("functions", [True, False], ids=["fexit", "sys_exit"])
def test_each_fitrim_call_is_counted_once(functions: bool) -> None:
    """A prime number of FITRIM calls among other ioctls: the calls and the claimed bytes are exact."""
    with load_scsi_debug() as device, mount_filesystem(device.name, "ext4") as point:
        tracer = DiscardTracer([], following=ProgramOptions(functions=functions, claims=True))
        with tracer:
            names = {name for name, *_ in tracer.list_programs()}
            call_fitrim(point, 7)
            with pytest.raises(OSError, match="Inappropriate ioctl"):
                fcntl.ioctl(sys.stdout.fileno(), FITRIM, bytearray(24))
            trace = tracer.read_trace()
            (at,) = {os.stat(point).st_dev}
    assert ("discard_fitrim" in names, "discard_fitrim_any" in names) == (functions, not functions)
    assert trace.claims_seen
    assert trace.misses == 0
    dev = f"{os.major(at)}:{os.minor(at)}"
    ours = list(trace.select(Stage.FITRIM, devs=[dev]))
    [flow] = ours
    assert (flow.status, flow.amount.count) == (0, 7)
    sent = sum(flow.amount.bytes for flow in trace.select(Stage.FS_EXTENT, devs=[dev]))
    assert flow.amount.bytes == sent > 0
    others = [flow for flow in trace.select(Stage.FITRIM) if flow.dev != dev]
    assert [(flow.status, flow.amount.bytes, flow.amount.count) for flow in others] == [(25, 0, 1)]


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "f2fs"])
def test_claimed_bytes_are_shown_next_to_reached_bytes(kind: str) -> None:
    """Each filesystem on a SATA disk, trimmed by another process."""
    disk = sysfs.disk("opw-ahci")
    options = ("nodiscard",) if kind == "f2fs" else ()
    with mount_filesystem(disk, kind, *options) as point:
        result = watch_trim(point)
    assert result.verdict is Verdict.ACCEPTED, result.rows
    [claim] = result.claims
    assert claim.calls == 1
    assert claim.claimed_bytes == result.claimed_bytes
    assert result.claimed_bytes
    assert result.claimed_bytes >= result.reached_bytes > 0
    assert "by python" in result.claim


def test_failed_fitrim_call_has_no_claimed_bytes() -> None:
    """null_blk without discards: the call fails, and the watch reports the error."""
    with create_null_blk(NullBlk(size=384, memory_backed=1)) as disk, mount_filesystem(disk, "ext4") as point:
        mount = find_mount_at(point)
        stack = LayerReader().read_mount(mount)

        def run_rejected_fitrim() -> None:
            argv = [sys.executable, "-c", CALL, str(point), "1"]
            assert subprocess.run(argv, capture_output=True, timeout=60, check=False).returncode == 1

        evidence = trimming.trace_other_trims(
            stack, mount, run_rejected_fitrim, 30.0, is_early=ledger.is_contradicted
        )
        result = ledger.build_audit(evidence, str(point))
    [claim] = result.claims
    assert (claim.claimed_bytes, claim.error) == (None, "ENOTSUP")
    assert result.reached_bytes == 0
