"""A guest is a usable Linux: BTF, the trace file system, and all modules and programs for recipes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opwatch.collectors.block.contexts import watch_switches
from opwatch.trace.contexts import SwitchCounts
from tests.vm.guest.support.shell import run_command
from tests.vm.requirements import IN_GUEST, need_module, need_tool

MODULES = (
    *("null_blk", "scsi_debug", "loop", "zram", "brd"),
    *("dm_crypt", "dm_thin_pool", "dm_delay", "dm_flakey", "dm_snapshot"),
    *("raid0", "raid1", "raid10", "raid456"),
    *("ext4", "xfs", "btrfs", "f2fs", "overlay"),
    *("sd_mod", "virtio_scsi", "ahci", "usb_storage", "uas", "xhci_pci"),
)
PROGRAMS = (
    *("mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "mkfs.f2fs"),
    *("cryptsetup", "lvm", "dmsetup", "thin_check", "mdadm"),
    *("sg_unmap", "sg_get_lba_status", "sg_readcap", "nvme"),
    *("fio", "fstrim", "blkdiscard", "losetup"),
)


def test_guest_runs_the_requested_kernel() -> None:
    assert os.uname().release.startswith(os.environ[IN_GUEST] + ".")


def test_kernel_has_btf() -> None:
    assert Path("/sys/kernel/btf/vmlinux").read_bytes()[:2] == b"\x9f\xeb"


def test_block_events_exist() -> None:
    events = {path.name for path in Path("/sys/kernel/tracing/events/block").iterdir()}
    assert {"block_rq_issue", "block_rq_complete", "block_rq_requeue"} <= events


@pytest.mark.manual
@pytest.mark.parametrize("module", MODULES)
def test_module_loads(module: str) -> None:
    need_module(module)


@pytest.mark.manual
@pytest.mark.parametrize("program", PROGRAMS)
def test_program_is_installed(program: str) -> None:
    need_tool(program)


def test_bpf_program_runs() -> None:
    program = 'BEGIN { printf("ran %d\\n", 6 * 7); exit(); }'
    assert "ran 42" in run_command(need_tool("bpftrace"), "-e", program)


def test_kernel_log_has_no_critical_messages() -> None:
    log = subprocess.run(["dmesg", "--level=emerg,alert,crit"], capture_output=True, text=True)
    assert log.stdout == ""


def test_a_stock_kernel_runs_programs_while_pid_1_is_current() -> None:
    """A development kernel that skips programs is distinguished from a stock kernel."""
    switches = watch_switches(300)
    assert isinstance(switches, SwitchCounts), switches
    assert switches.is_skipping is False, switches


def test_start_uses_the_compiled_bytecode() -> None:
    """`make build` compiled all files. Guests write no bytecode; each start would compile a missing file."""
    argv = [sys.executable, "-v", "-m", "opwatch", "trim", "check", "/"]
    said = subprocess.run(argv, capture_output=True, text=True, check=False).stderr
    sources = [line for line in said.splitlines() if line.startswith("# code object from ")]
    assert any("/opwatch/trim/" in line for line in sources)
    assert [line for line in sources if line.endswith(".py")] == []
