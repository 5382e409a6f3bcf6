"""Whether a drive offers a way to set a level, or to purge it; and whether a sweep goes that way."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from opwatch.collectors.stack.disks import Identify, ask_nvme
from opwatch.errors import BadInput, OpwatchError
from opwatch.host.device import BlockDevice
from opwatch.sweep.ata import AtaOffers, decode_offers

_UNUSED = "opwatch does not use it yet"


def method_refusal(disk: BlockDevice, method: str, ask: Identify = ask_nvme) -> str | None:
    """Why no level of this drive is set in this way; None where it is."""
    refuse = _METHODS.get(method)
    return refuse(disk, ask) if refuse else None


def _namespace(disk: BlockDevice, ask: Identify) -> str:
    if not disk.name.startswith("nvme"):
        return f"{disk.name} is no NVMe drive, and has no namespaces"
    try:
        controller, namespace = ask(disk)
    except OpwatchError as error:
        return f"whether {disk.name} offers namespace management cannot be asked: {error}"
    if not controller.manages_namespaces:
        return f"{disk.name} offers no namespace management (OACS bit 3 is 0)"
    if namespace.is_shared:
        return f"the namespace of {disk.name} may be attached to several controllers (NMIC)"
    # QEMU sets the bit and knows neither command: what such a drive answered would come after the deletion.
    return f"{disk.name} says that it offers namespace management (OACS bit 3), and {_UNUSED}"


def _max_address(disk: BlockDevice, _: Identify) -> str:
    try:
        offers = ata_offers(disk)
    except BadInput as error:
        return f"{disk.name} does not tell whether it has a host protected area: {error}"
    if offers is None:
        return f"{disk.name} is no ATA drive"
    if not offers.has_protected_area:
        return f"{disk.name} has no host protected area (IDENTIFY word 82 bit 10 is 0)"
    return f"{disk.name} has a host protected area, and {_UNUSED}"


def _on_a_filesystem(disk: BlockDevice, _: Identify) -> str:
    return f"levels of a filesystem on {disk.name} are not measured yet"


_METHODS: dict[str, Callable[[BlockDevice, Identify], str]] = {
    "namespace": _namespace,
    "max-address": _max_address,
    "file": _on_a_filesystem,
    "fill": _on_a_filesystem,
}


def purge_refusal(disk: BlockDevice, way: str, ask: Identify = ask_nvme) -> str | None:
    """Why this drive is not purged in this way; None where it is."""
    refuse = _PURGES.get(way)
    return refuse(disk, ask) if refuse else None


def _format(disk: BlockDevice, ask: Identify) -> str | None:
    if not disk.name.startswith("nvme"):
        return f"{disk.name} is no NVMe drive, and has no Format"
    try:
        controller, namespace = ask(disk)
    except OpwatchError as error:
        return f"whether {disk.name} offers Format cannot be asked: {error}"
    if not controller.can_format:
        return f"{disk.name} offers no Format (OACS bit 1 is 0)"
    if namespace.is_shared:
        return f"the namespace of {disk.name} may be attached to several controllers (NMIC)"
    if controller.formats_all and controller.most_namespaces != 1:
        return (
            f"Format on {disk.name} is one of all namespaces of the drive (FNA), of which it may have "
            f"{controller.most_namespaces}"
        )
    if namespace.metadata_bytes or namespace.protection:
        return (
            f"the blocks of {disk.name} have metadata or protection information, which a format would change"
        )
    if not shutil.which("nvme"):
        return "nvme-cli is not installed"
    return None


def _sanitize(disk: BlockDevice, ask: Identify) -> str:
    if not disk.name.startswith("nvme"):
        return f"{disk.name} is no NVMe drive, and has no Sanitize"
    try:
        controller, _ = ask(disk)
    except OpwatchError as error:
        return f"whether {disk.name} offers Sanitize cannot be asked: {error}"
    if not controller.can_sanitize:
        return f"{disk.name} offers no Sanitize (SANICAP is 0)"
    return f"{disk.name} offers Sanitize, which is one of all of its namespaces, and {_UNUSED}"


def _secure_erase(disk: BlockDevice, _: Identify) -> str:
    try:
        offers = ata_offers(disk)
    except BadInput as error:
        return f"{disk.name} does not tell whether it has the security feature set: {error}"
    if offers is None:
        return f"{disk.name} is no ATA drive"
    if not offers.has_security:
        return f"{disk.name} has no security feature set (IDENTIFY word 82 bit 1 is 0)"
    if offers.is_frozen:
        return f"the security of {disk.name} is frozen until it was without power (IDENTIFY word 128 bit 3)"
    return f"{disk.name} has the security feature set, and {_UNUSED}"


_PURGES: dict[str, Callable[[BlockDevice, Identify], str | None]] = {
    "format": _format,
    "sanitize": _sanitize,
    "secure-erase": _secure_erase,
}


def ata_offers(disk: BlockDevice) -> AtaOffers | None:
    """What an ATA drive offers, None for every other. BadInput where what the kernel keeps is damaged."""
    try:
        page = (disk.sysfs / "device" / "vpd_pg89").read_bytes()
    except OSError:
        return None
    return decode_offers(page)
