"""`opwatch trim audit` with tracepoints alone, where fentry and fexit cannot be attached."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opwatch import _native
from tests.kernel.support import trims
from tests.vm.guest.support import stacked, sysfs
from tests.vm.guest.support.audits import (
    MIB,
    Verdict,
    audit_new_filesystem,
    audit_point,
    check_lossless,
    count_freed_bytes,
    find_image,
    find_leaf_row,
    find_row,
    full_loop,
    mount_filesystem,
    sum_reasons,
)
from tests.vm.guest.support.scsidebug import load_scsi_debug
from tests.vm.guest.support.shell import run_command, write_attribute
from tests.vm.guest.support.sysfs import SYS_BLOCK
from tests.vm.requirements import need_module

DEVICES = ("nvme",)
# Two audits in one process, which has read the kernel's types before the module is loaded.
_TWO_AUDITS = """
from opwatch import _native
from tests.vm.guest.support.audits import audit_new_filesystem, check_lossless, find_row, full_loop
_native.can_attach_to_functions = lambda: False
for kind in ("ext4", "xfs"):
    with full_loop() as loop:
        result = audit_new_filesystem(loop, kind, loop)
    print(kind, find_row(result, "filesystem").bytes_out == check_lossless(result) == result.reached_bytes)
"""


@pytest.fixture(autouse=True)
def _no_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behave as on a kernel without BPF trampolines."""
    monkeypatch.setattr(_native, "can_attach_to_functions", lambda: False)


@pytest.mark.parametrize("kind", ["ext4", pytest.param("xfs", marks=pytest.mark.manual)])
def test_ext4_and_xfs_audits_are_lossless_with_tracepoints_alone(kind: str) -> None:
    with full_loop() as loop, stacked.create_linear(loop) as top:
        result = audit_new_filesystem(top.name, kind, loop)
        assert check_lossless(result) == result.reached_bytes == count_freed_bytes(loop)
    assert {"discard_asked", "discard_submitted"} <= result.evidence.trace.absent


@pytest.mark.manual
def test_f2fs_reached_bytes_are_exact_with_tracepoints_alone() -> None:
    with full_loop() as loop, mount_filesystem(loop, "f2fs", "nodiscard") as point:
        os.sync()
        trims.fill_holes(find_image(loop))
        result = audit_point(point)
        assert (
            result.reached_bytes
            == count_freed_bytes(loop)
            == result.claimed_bytes
            == find_row(result, "filesystem").bytes_out
        )
    assert (result.verdict, result.unexplained_bytes) == (Verdict.ACCEPTED, 0)


@pytest.mark.manual
def test_module_loaded_after_the_types_were_read_is_traced() -> None:
    need_module("xfs")
    run_command("modprobe", "-r", "xfs")
    assert not Path("/sys/module/xfs").exists()
    argv = [sys.executable, "-c", _TWO_AUDITS]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["ext4 True", "xfs True"], done.stderr


def test_each_range_of_an_nvme_command_is_counted() -> None:
    """The ranges are in the request's bios, which the tracepoint passes to the program."""
    disk = sysfs.disk("opw-nvme")
    with mount_filesystem(disk, "xfs") as point:
        before = sysfs.read_stat(disk)
        result = audit_point(point)
        counted = sysfs.read_stat(disk) - before
    assert check_lossless(result) == result.reached_bytes == counted.discard_bytes
    assert find_row(result, "disk").requests == counted.discards


@pytest.mark.manual
def test_dropped_discards_are_found_by_the_filesystems_extents() -> None:
    with load_scsi_debug(lbpu=1, lbpws=0, dev_size_mb=384) as device:
        [mode] = (SYS_BLOCK / device.name / "device/scsi_disk").glob("*/provisioning_mode")
        with mount_filesystem(device.name, "ext4") as point:
            write_attribute(mode, "writesame_16")
            result = audit_point(point)
    sent = find_row(result, "filesystem").bytes_out
    assert sent
    assert (result.verdict, result.reached_bytes, result.unexplained_bytes) == (Verdict.REJECTED, 0, 0)
    assert sum_reasons(result) == {"scsi-disabled": sent}


@pytest.mark.manual
def test_btrfs_output_is_unknown_with_a_reason() -> None:
    """Bytes that reached the disk are exact; for btrfs's output the audit gives a reason and no figure."""
    with full_loop() as loop:
        result = audit_new_filesystem(loop, "btrfs", loop)
        # btrfs trims a block at the device's end twice, see test_audit_stacks.
        assert result.reached_bytes - count_freed_bytes(loop) in (0, 4096)
    top = find_row(result, "filesystem")
    assert (top.bytes_in, top.bytes_out, top.requests) == (None, None, None)
    assert top.unknown is not None
    assert "btrfs has no tracepoints for its extents" in top.unknown
    assert result.reached_bytes == find_leaf_row(result, loop).bytes_ok == result.claimed_bytes
    assert result.reached_bytes > 128 * MIB
    assert (result.verdict, result.unexplained_bytes) == (Verdict.ACCEPTED, 0)
