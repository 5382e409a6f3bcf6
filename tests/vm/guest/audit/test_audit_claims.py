"""FITRIM calls of other processes, with and without fexit: claimed bytes next to reached bytes."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from opwatch.collectors.audit import trimming
from opwatch.collectors.audit.discards import DiscardTracer
from opwatch.collectors.space.fitrim import FITRIM
from opwatch.collectors.stack.layers import LayerReader
from opwatch.trim.audit import ledger
from opwatch.trim.audit.audit import Audit, Verdict
from opwatch.trim.audit.flow import Stage
from opwatch.trim.audit.programs import Following
from tests.kernel.support.trims import mount_at
from tests.kernel.trim.test_claims import CALL
from tests.vm.guest.support import sysfs
from tests.vm.guest.support.audits import filesystem
from tests.vm.guest.support.nullblk import NullBlk, null_blk
from tests.vm.guest.support.scsidebug import scsi_debug

# Manual runs only: these tests would exceed CI's time limit.
TIERS = ()
DEVICES = ("ahci",)


def call(point: Path, times: int) -> None:
    """Call FITRIM from another process."""
    subprocess.run([sys.executable, "-c", CALL, str(point), str(times)], check=True, timeout=60)


def watch(point: Path) -> Audit:
    """Return the audit of a watch during another process's trim."""
    mount = mount_at(point)
    stack = LayerReader().mount(mount)
    evidence = trimming.observe(stack, mount, lambda: call(point, 1), 30.0, 1.0, is_early=ledger.contradicted)
    return ledger.audit(evidence, str(point))


@pytest.mark.parametrize("functions", [True, False], ids=["fexit", "sys_exit"])
def test_each_call_counts_once(functions: bool) -> None:
    """A prime number of FITRIM calls among other ioctls: the calls and the claimed bytes are exact."""
    with scsi_debug() as device, filesystem(device.name, "ext4") as point:
        tracer = DiscardTracer([], following=Following(functions=functions, claims=True))
        with tracer:
            names = {name for name, *_ in tracer.programs()}
            call(point, 7)
            with pytest.raises(OSError, match="Inappropriate ioctl"):
                fcntl.ioctl(sys.stdout.fileno(), FITRIM, bytearray(24))
            trace = tracer.read()
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
def test_claimed_beside_reached(kind: str) -> None:
    """Each filesystem on a SATA disk, trimmed by another process."""
    disk = sysfs.disk("opw-ahci")
    options = ("nodiscard",) if kind == "f2fs" else ()
    with filesystem(disk, kind, *options) as point:
        result = watch(point)
    assert result.verdict is Verdict.ACCEPTED, result.rows
    [claim] = result.claims
    assert claim.calls == 1
    assert claim.claimed_bytes == result.claimed_bytes
    assert result.claimed_bytes
    assert result.claimed_bytes >= result.reached_bytes > 0
    assert "by python" in result.claim


def test_a_claim_of_what_was_rejected() -> None:
    """null_blk without discards: the call fails, and the watch reports the error."""
    with null_blk(NullBlk(size=384, memory_backed=1)) as disk, filesystem(disk, "ext4") as point:
        mount = mount_at(point)
        stack = LayerReader().mount(mount)

        def wait() -> None:
            argv = [sys.executable, "-c", CALL, str(point), "1"]
            assert subprocess.run(argv, capture_output=True, timeout=60, check=False).returncode == 1

        evidence = trimming.observe(stack, mount, wait, 30.0, is_early=ledger.contradicted)
        result = ledger.audit(evidence, str(point))
    [claim] = result.claims
    assert (claim.claimed_bytes, claim.error) == (None, "ENOTSUP")
    assert result.reached_bytes == 0
