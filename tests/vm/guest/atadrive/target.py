"""Attach the drive as a local disk: a user-space backstore of the kernel's SCSI target, looped back."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

from tests.vm.guest.atadrive.ata import DriveConfig
from tests.vm.guest.atadrive.serve import serve_disk
from tests.vm.guest.support.copies import run_server, send_signal
from tests.vm.guest.support.shell import ensure_mounted, write_attribute
from tests.vm.guest.support.sysfs import SYS_BLOCK, wait_for
from tests.vm.requirements import need_module

_TARGET = Path("/sys/kernel/config/target")
_NAMES = ("6001405000000011", "6001405000000012")


@dataclass(frozen=True)
class AtaDisk:
    """The disk in the kernel, and the log that the drive itself writes."""

    name: str
    log: Path
    server: ForkProcess

    @property
    def node(self) -> str:
        return f"/dev/{self.name}"

    @property
    def sector_count(self) -> int:
        return int((SYS_BLOCK / self.name / "size").read_text())

    def read_entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def list_set_sectors(self) -> list[int]:
        """Return the sector counts that were set, in order."""
        return [
            entry["sectors"] for entry in self.read_entries() if entry["what"] in ("set", "set accessible")
        ]

    def lose_power(self) -> None:
        count = len(self.read_entries())
        send_signal(self.server, signal.SIGUSR1)
        write_attribute(SYS_BLOCK / self.name / "device/rescan", 1)
        wait_for("a loss of power", lambda: len(self.read_entries()) > count)
        write_attribute(SYS_BLOCK / self.name / "device/rescan", 1)


@contextlib.contextmanager
def connect_ata_disk(folder: Path, wishes: DriveConfig) -> Iterator[AtaDisk]:
    """Yield the drive as a local disk."""
    for module in ("sd_mod", "target_core_user", "tcm_loop"):
        need_module(module)
    ensure_mounted("configfs", Path("/sys/kernel/config"))
    store = _TARGET / "core" / "user_7" / "drive"
    port = _TARGET / "loopback" / f"naa.{_NAMES[0]}" / "tpgt_1"
    with contextlib.ExitStack() as stack:
        _create_folder(stack, store)
        write_attribute(
            store / "control", f"dev_config=opwatch/{wishes.serial},dev_size={wishes.sectors * 512}"
        )
        write_attribute(store / "enable", 1)
        uio = _find_uio(f"tcm-user/7/drive/opwatch/{wishes.serial}")
        log = folder / "drive.log"
        server = stack.enter_context(run_server(serve_disk, uio, folder / "content", log, wishes))
        wait_for("the drive", log.exists)
        before = {path.name for path in SYS_BLOCK.glob("sd*")}
        _create_folder(stack, port.parent)
        _create_folder(stack, port)
        write_attribute(port / "nexus", f"naa.{_NAMES[1]}")
        _create_folder(stack, port / "lun/lun_0")
        (port / "lun/lun_0/drive").symlink_to(store)
        stack.callback(os.unlink, port / "lun/lun_0/drive")
        wait_for("a disk", lambda: bool(_list_added(before)))
        yield AtaDisk(_list_added(before)[0], log, server)


def _list_added(before: set[str]) -> list[str]:
    names = sorted({path.name for path in SYS_BLOCK.glob("sd*")} - before)
    return [name for name in names if (SYS_BLOCK / name / "size").read_text().strip() != "0"]


def _create_folder(stack: contextlib.ExitStack, path: Path) -> None:
    path.mkdir(parents=True)
    stack.callback(path.rmdir)


def _find_uio(name: str) -> str:
    [uio] = [
        path.parent.name for path in Path("/sys/class/uio").glob("*/name") if path.read_text().strip() == name
    ]
    return uio
