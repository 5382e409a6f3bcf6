"""Persistent reservations on a disk of the kernel's SCSI target, which supports them like an array."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from opwatch.collectors.guard.disk_facts import find_sharers
from opwatch.host.device import Devices
from tests.vm.guest.support import sysfs
from tests.vm.guest.support.scsidebug import load_scsi_debug
from tests.vm.guest.support.shell import ensure_mounted, run_command, write_attribute
from tests.vm.requirements import need_module, need_tool

DEVICES = ("ahci", "virtio-scsi")
TIERS = ()
CONFIG = Path("/sys/kernel/config")
_DISK, _PORT = "core/rd_mcp_0/reserved", "loopback/naa.6001405000000001"
_KEY = 0x123ABC
# The target stores registrations there, and refuses to register without the folder.
_METADATA = Path("/var/target/pr")


def list_sharers(name: str) -> list[str]:
    devices = Devices()
    disk = devices.by_name(name)
    assert disk
    return list(find_sharers(devices, disk))


@contextlib.contextmanager
def create_target_disk() -> Iterator[str]:
    """Yield a 64 MiB RAM disk behind a local LIO target."""
    for module in ("sd_mod", "target_core_mod", "tcm_loop"):
        need_module(module)
    ensure_mounted("configfs", CONFIG)
    _METADATA.mkdir(parents=True, exist_ok=True)
    before = {path.name for path in Path("/sys/block").iterdir()}
    store, port = CONFIG / "target" / _DISK, CONFIG / "target" / _PORT / "tpgt_1"
    store.mkdir(parents=True)
    write_attribute(store / "control", "rd_pages=16384")
    write_attribute(store / "enable", 1)
    port.mkdir(parents=True)
    write_attribute(port / "nexus", "naa.6001405000000002")
    (port / "lun/lun_0").mkdir()
    (port / "lun/lun_0/disk").symlink_to(store)
    try:
        deadline = time.monotonic() + 60
        while not (names := {path.name for path in Path("/sys/block").glob("sd*")} - before):
            assert time.monotonic() < deadline, "the target shows no disk"
            time.sleep(0.1)
        yield names.pop()
    finally:
        (port / "lun/lun_0/disk").unlink()
        for folder in (port / "lun/lun_0", port, port.parent, store):
            folder.rmdir()


def test_registered_keys_and_the_reservation_holder_are_reported() -> None:
    persist = need_tool("sg_persist")
    with create_target_disk() as name:
        assert list_sharers(name) == []
        run_command(persist, "--out", "--register", f"--param-sark={_KEY:x}", f"/dev/{name}")
        [keys] = list_sharers(name)
        assert keys.startswith("it has 1 registered reservation keys (123ABCh)")
        run_command(persist, "--out", "--reserve", f"--param-rk={_KEY:x}", "--prout-type=5", f"/dev/{name}")
        holder, _ = list_sharers(name)
        assert holder == (
            f"it has a persistent reservation (write exclusive, registrants only, key {_KEY:016X}h)"
        )
        run_command(persist, "--out", "--release", f"--param-rk={_KEY:x}", "--prout-type=5", f"/dev/{name}")
        run_command(persist, "--out", "--register", f"--param-rk={_KEY:x}", "--param-sark=0", f"/dev/{name}")
        assert list_sharers(name) == []


def test_disks_without_reservations_have_no_sharers() -> None:
    """libata answers for one disk and QEMU for the other, as disks without the command do."""
    for serial in ("opw-ahci", "opw-virtio-scsi"):
        assert list_sharers(sysfs.disk(serial)) == []
    with load_scsi_debug() as disk:
        assert list_sharers(disk.name) == []
