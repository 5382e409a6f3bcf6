"""Open NVMe controller, identified by the drive's serial number and model.

Disk names are no identity, because disks appear and disappear with their namespaces.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

from opwatch.closing import Closable
from opwatch.collectors.firmware.transports import KernelTransport
from opwatch.collectors.space.device_handle import open_node
from opwatch.counters.decode import identify, sanitize_log
from opwatch.counters.decode.identify import Controller, Namespace
from opwatch.counters.decode.sanitize_log import SanitizeLog, decode_sanitize_log
from opwatch.errors import OpwatchError, RefusedError
from opwatch.foreign import read_text
from opwatch.guard.identity import DiskIdentity
from opwatch.host.device import BlockDevice, Devices
from opwatch.sweep.namespace.offer import NamespaceOffer
from opwatch.sweep.namespace.restore import ExistingNamespace
from opwatch.sweep.namespace.sanitize import SanitizeOffer
from opwatch.tools.acting.namespaces.commands import rescan_namespaces

_CONTROLLERS = Path("/sys/class/nvme")
_EFFECTS_LOG, _EFFECTS_BYTES = 0x05, 4096
# Maximum time until an attached namespace has a disk and a node.
_PATIENCE_S = 60.0


def find_controller(devices: Devices, disk: BlockDevice) -> str:
    """Return the name of the controller that serves a namespace."""
    below = next(iter(devices.list_paths(disk)), disk)
    return (below.sysfs / "device").resolve().name


def find_drive_controller(identity: DiskIdentity) -> str:
    """Return the name of the controller of this drive. Raise RefusedError if none or several match."""
    alike = [
        folder.name
        for folder in sorted(_CONTROLLERS.glob("nvme*"))
        if (_read_attribute(folder / "serial"), _read_attribute(folder / "model"))
        == (identity.serial, identity.model)
    ]
    if len(alike) != 1:
        which = f"{', '.join(alike)} are all controllers" if alike else "no NVMe controller here matches"
        raise RefusedError(f"{which} of this sweep's drive (serial number {identity.serial})")
    return alike[0]


def _read_attribute(path: Path) -> str | None:
    """Return an attribute without padding."""
    try:
        return " ".join(read_text(path).split()) or None
    except OSError:
        return None


def find_namespace_offer(disk: BlockDevice) -> NamespaceOffer:
    """Return the drive's support for replacing the namespace of a disk. Changes nothing."""
    devices = Devices()
    with HeldController(find_controller(devices, disk)) as controller:
        return controller.read_namespace_offer(devices, disk)


class HeldController(Closable):
    """Controller that is open until close(). Answers come from this drive even if its name is reused."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._descriptor = _open_controller(name)
        self._transport = KernelTransport(os.dup(self._descriptor))
        try:
            self.identified = self._read_controller()
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        self._transport.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def require_drive(self, identity: DiskIdentity) -> None:
        """Raise RefusedError unless this is the controller of the drive."""
        answer = self._read_controller()
        if (answer.serial, answer.model) != (identity.serial, identity.model):
            raise RefusedError(f"{self.name} is the controller of another drive ({answer.serial})")

    def _read_controller(self) -> Controller:
        return identify.decode_controller(self._transport.identify(identify.CONTROLLER, 0))

    def find_namespace(self, nsid: int) -> Namespace:
        """Return the namespace allocated under this id, attached or not."""
        return identify.decode_namespace(self._transport.identify(identify.ALLOCATED_NAMESPACE, nsid))

    def list_namespaces(self) -> list[ExistingNamespace]:
        """Return all namespaces of the drive."""
        attached = self._read_list(identify.ATTACHED_LIST)
        there = []
        for nsid in self._read_list(identify.ALLOCATED_LIST):
            answer = self.find_namespace(nsid)
            there.append(ExistingNamespace(nsid, answer.size_lbas or 0, answer.lba_format, nsid in attached))
        return there

    def _read_list(self, which: int) -> tuple[int, ...]:
        return identify.decode_namespace_list(self._transport.identify(which, 0))

    def read_namespace_offer(self, devices: Devices, disk: BlockDevice) -> NamespaceOffer:
        """Return the support for replacing the namespace of this disk."""
        nsid = disk.read_number("nsid") or 0
        controller, namespace = self.identified, self.find_namespace(nsid)
        paths = devices.list_paths(disk) or [disk]
        steps = (1, 1)
        if controller.has_granularity:
            raw = self._transport.identify(identify.GRANULARITY_LIST, 0)
            steps = identify.decode_granularity(raw, namespace.lba_format)
        return NamespaceOffer(
            controller=controller,
            namespace=namespace,
            nsid=nsid,
            controllers=identify.decode_controller_list(
                self._transport.identify(identify.CONTROLLER_LIST, 0)
            ),
            allocated=self._read_list(identify.ALLOCATED_LIST),
            granularity=steps,
            effects=self._transport.get_log(_EFFECTS_LOG, _EFFECTS_BYTES)
            if controller.has_effects_log
            else None,
            is_zoned=any(path.read_attribute("queue/zoned") not in (None, "none") for path in paths),
        )

    def read_sanitize_log(self) -> SanitizeLog:
        """Return the progress of a running sanitize, or the result of the last one."""
        return decode_sanitize_log(self._transport.get_log(sanitize_log.LID, sanitize_log.LENGTH))

    def read_sanitize_offer(self, disk: BlockDevice) -> SanitizeOffer:
        """Return the drive's support for sanitize. `disk` is the namespace to purge."""
        nsid, controller = disk.read_number("nsid") or 0, self.identified
        there: tuple[int, ...] = (nsid,)
        if controller.manages_namespaces:
            there = self._read_list(identify.ALLOCATED_LIST)
        elif controller.most_namespaces != 1:
            there = self._read_list(identify.ATTACHED_LIST)
        return SanitizeOffer(
            controller=controller,
            namespace=identify.decode_namespace(self._transport.identify(identify.NAMESPACE, nsid)),
            nsid=nsid,
            namespaces=there,
            log=self.read_sanitize_log() if controller.can_sanitize else None,
        )

    def wait_for_disk(self, devices: Devices, nsid: int, size_bytes: int) -> BlockDevice:
        """Return the kernel's disk for a namespace, or raise OpwatchError if none appears."""
        until = time.monotonic() + _PATIENCE_S
        rescan_namespaces(self.fileno())
        while True:
            for disk in self.find_disks(devices):
                has_node = (Path("/dev") / disk.name).exists()
                if disk.read_number("nsid") == nsid and disk.size_bytes == size_bytes and has_node:
                    return disk
            if time.monotonic() > until:
                raise OpwatchError(
                    f"{self.name}: namespace {nsid} is attached, but the kernel shows no disk of "
                    f"{size_bytes} bytes after {_PATIENCE_S:g} s: see dmesg"
                )
            time.sleep(0.05)

    def wait_until_gone(self, devices: Devices) -> None:
        """Wait until the kernel shows no disk of this drive."""
        until = time.monotonic() + _PATIENCE_S
        rescan_namespaces(self.fileno())
        while self.find_disks(devices):
            if time.monotonic() > until:
                raise OpwatchError(
                    f"{self.name}: its namespace was deleted, but the kernel still shows its disk after "
                    f"{_PATIENCE_S:g} s: see dmesg"
                )
            time.sleep(0.05)

    def find_disks(self, devices: Devices) -> list[BlockDevice]:
        """Return the disks of this controller that have nodes."""
        return [
            disk
            for disk in devices.iter_disks()
            if disk.name.startswith("nvme")
            and not disk.is_hidden
            and find_controller(devices, disk) == self.name
        ]


def _open_controller(name: str) -> int:
    """Return a descriptor of the controller, after checking its device number."""
    node = Path("/dev") / name
    descriptor = open_node(node, os.O_NOFOLLOW)
    status = os.fstat(descriptor)
    number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    if stat.S_ISCHR(status.st_mode) and number == _read_attribute(_CONTROLLERS / name / "dev"):
        return descriptor
    os.close(descriptor)
    raise RefusedError(f"{node} is not the device of controller {name}")
