"""An NVMe controller that is open: known by the drive's serial number and model, and by no name of a disk,
for disks go and come with their namespaces.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

from opwatch.closing import Closing
from opwatch.collectors.firmware.transports import KernelTransport
from opwatch.collectors.namespaces.commands import rescan
from opwatch.collectors.space.device_handle import open_node
from opwatch.counters.decode import identify, sanitize_log
from opwatch.counters.decode.identify import Controller, Namespace
from opwatch.counters.decode.sanitize_log import SanitizeLog, decode_sanitize_log
from opwatch.errors import OpwatchError, RefusedError
from opwatch.foreign import read_text
from opwatch.guard.identity import DiskIdentity
from opwatch.host.device import BlockDevice, Devices
from opwatch.sweep.namespace.back import SeenNamespace
from opwatch.sweep.namespace.offer import NamespaceOffer
from opwatch.sweep.namespace.sanitize import SanitizeOffer

_CONTROLLERS = Path("/sys/class/nvme")
_EFFECTS_LOG, _EFFECTS_BYTES = 0x05, 4096
# How long the kernel and udev take until a namespace that was attached is a disk with a node.
_PATIENCE_S = 60.0


def controller_of(devices: Devices, disk: BlockDevice) -> str:
    """The name of the controller that a namespace has its requests from."""
    below = next(iter(devices.paths(disk)), disk)
    return (below.sysfs / "device").resolve().name


def controller_like(identity: DiskIdentity) -> str:
    """The name of the controller of the drive that this was; RefusedError when it is not there, or more than
    one is."""
    alike = [
        folder.name
        for folder in sorted(_CONTROLLERS.glob("nvme*"))
        if (_word(folder / "serial"), _word(folder / "model")) == (identity.serial, identity.model)
    ]
    if len(alike) != 1:
        which = f"{', '.join(alike)} all are controllers" if alike else "no NVMe controller here is one"
        raise RefusedError(f"{which} of the drive of this sweep (serial number {identity.serial})")
    return alike[0]


def _word(path: Path) -> str | None:
    """An attribute without its padding."""
    try:
        return " ".join(read_text(path).split()) or None
    except OSError:
        return None


def offer_of(disk: BlockDevice) -> NamespaceOffer:
    """What the drive of this disk says of replacing its namespace. Nothing is changed."""
    devices = Devices()
    with HeldController(controller_of(devices, disk)) as controller:
        return controller.offer(devices, disk)


class HeldController(Closing):
    """A controller that is open until close(). What it answers is of this very drive, whatever has its name
    by then."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._descriptor = _opened(name)
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

    def require(self, identity: DiskIdentity) -> None:
        """RefusedError unless it is the controller of this drive."""
        answer = self._read_controller()
        if (answer.serial, answer.model) != (identity.serial, identity.model):
            raise RefusedError(f"{self.name} is the controller of another drive ({answer.serial})")

    def _read_controller(self) -> Controller:
        return identify.decode_controller(self._transport.identify(identify.CONTROLLER, 0))

    def namespace(self, nsid: int) -> Namespace:
        """What is allocated under this number, whether a controller has it or not."""
        return identify.decode_namespace(self._transport.identify(identify.ALLOCATED_NAMESPACE, nsid))

    def namespaces(self) -> list[SeenNamespace]:
        """All namespaces of the drive."""
        attached = self._list(identify.ATTACHED_LIST)
        there = []
        for nsid in self._list(identify.ALLOCATED_LIST):
            answer = self.namespace(nsid)
            there.append(SeenNamespace(nsid, answer.size_lbas or 0, answer.lba_format, nsid in attached))
        return there

    def _list(self, which: int) -> tuple[int, ...]:
        return identify.namespace_list(self._transport.identify(which, 0))

    def offer(self, devices: Devices, disk: BlockDevice) -> NamespaceOffer:
        """What it says of replacing the namespace of this disk."""
        nsid = disk.number("nsid") or 0
        controller, namespace = self.identified, self.namespace(nsid)
        paths = devices.paths(disk) or [disk]
        steps = (1, 1)
        if controller.has_granularity:
            raw = self._transport.identify(identify.GRANULARITY_LIST, 0)
            steps = identify.granularity(raw, namespace.lba_format)
        return NamespaceOffer(
            controller=controller,
            namespace=namespace,
            nsid=nsid,
            controllers=identify.controller_list(self._transport.identify(identify.CONTROLLER_LIST, 0)),
            allocated=self._list(identify.ALLOCATED_LIST),
            granularity=steps,
            effects=self._transport.get_log(_EFFECTS_LOG, _EFFECTS_BYTES)
            if controller.has_effects_log
            else None,
            is_zoned=any(path.attribute("queue/zoned") not in (None, "none") for path in paths),
        )

    def sanitize_log(self) -> SanitizeLog:
        """How far a sanitize is, or how the last one ended."""
        return decode_sanitize_log(self._transport.get_log(sanitize_log.LID, sanitize_log.LENGTH))

    def sanitize_offer(self, disk: BlockDevice) -> SanitizeOffer:
        """What the drive says of sanitizing it; `disk` is the one of its namespaces that is to be purged."""
        nsid, controller = disk.number("nsid") or 0, self.identified
        there: tuple[int, ...] = (nsid,)
        if controller.manages_namespaces:
            there = self._list(identify.ALLOCATED_LIST)
        elif controller.most_namespaces != 1:
            there = self._list(identify.ATTACHED_LIST)
        return SanitizeOffer(
            controller=controller,
            namespace=identify.decode_namespace(self._transport.identify(identify.NAMESPACE, nsid)),
            nsid=nsid,
            namespaces=there,
            log=self.sanitize_log() if controller.can_sanitize else None,
        )

    def disk_of(self, devices: Devices, nsid: int, size_bytes: int) -> BlockDevice:
        """The disk that the kernel makes of a namespace; OpwatchError where none comes."""
        until = time.monotonic() + _PATIENCE_S
        rescan(self.fileno())
        while True:
            for disk in self.disks(devices):
                has_node = (Path("/dev") / disk.name).exists()
                if disk.number("nsid") == nsid and disk.size_bytes == size_bytes and has_node:
                    return disk
            if time.monotonic() > until:
                raise OpwatchError(
                    f"{self.name}: namespace {nsid} is attached, and the kernel shows no disk of "
                    f"{size_bytes} bytes after {_PATIENCE_S:g} s: look at the kernel's log (dmesg)"
                )
            time.sleep(0.05)

    def wait_until_gone(self, devices: Devices) -> None:
        """Return when the kernel shows no disk of this drive any more."""
        until = time.monotonic() + _PATIENCE_S
        rescan(self.fileno())
        while self.disks(devices):
            if time.monotonic() > until:
                raise OpwatchError(
                    f"{self.name}: its namespace was deleted, and the kernel shows its disk after "
                    f"{_PATIENCE_S:g} s: look at the kernel's log (dmesg)"
                )
            time.sleep(0.05)

    def disks(self, devices: Devices) -> list[BlockDevice]:
        """The disks of this controller that have nodes."""
        return [
            disk
            for disk in devices.disks()
            if disk.name.startswith("nvme")
            and not disk.is_hidden
            and controller_of(devices, disk) == self.name
        ]


def _opened(name: str) -> int:
    """A descriptor of the controller of this name, by the number that the kernel has for it."""
    node = Path("/dev") / name
    descriptor = open_node(node, os.O_NOFOLLOW)
    status = os.fstat(descriptor)
    number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    if stat.S_ISCHR(status.st_mode) and number == _word(_CONTROLLERS / name / "dev"):
        return descriptor
    os.close(descriptor)
    raise RefusedError(f"{node} leads to another device than the controller {name}")
