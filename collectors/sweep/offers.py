"""Check whether a drive supports a limit or purge method, and whether sweeps use it."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from opwatch.collectors.addresses.highest import probe_highest
from opwatch.collectors.erasing.lockable import probe_erasable, way_refusal
from opwatch.collectors.namespaces.controller import offer_of
from opwatch.collectors.namespaces.sanitizing import sanitize_offer_of
from opwatch.collectors.stack.disks import Identify, ask_nvme
from opwatch.counters.decode.identify import Controller, Namespace
from opwatch.errors import BadInput, OpwatchError, PermissionMissing
from opwatch.foreign import read_text
from opwatch.host.device import BlockDevice
from opwatch.sweep.ata.offers import AtaOffers, decode_offers
from opwatch.sweep.ata.security import security_refusal
from opwatch.sweep.namespace.offer import NamespaceOffer, reasons_against
from opwatch.sweep.namespace.sanitize import reasons_against_sanitize
from opwatch.sweep.purges import SECURE_ERASE, PurgeWay, purge_of

LIBATA = Path("/sys/module/libata")


class _NotOffered(Exception):
    """The reason why a method is not used: unsupported by the drive, or unused by opwatch."""


def method_refusal(
    disk: BlockDevice,
    method: str,
    ask: Identify = ask_nvme,
    look: Callable[[BlockDevice], NamespaceOffer] = offer_of,
) -> str | None:
    """Return the reason why levels of this drive cannot use the method, or None. Read-only."""
    if method == "namespace":
        return _reason(lambda of, by: _namespace(of, by, look), disk, ask)
    return _reason(_METHODS.get(method), disk, ask)


def purge_refusal(disk: BlockDevice, way: str, ask: Identify = ask_nvme) -> str | None:
    """Return the reason why this drive cannot be purged by the method, or None."""
    return _reason(_PURGES.get(way), disk, ask)


def purge_as_told(disk: BlockDevice, name: str) -> PurgeWay:
    """Return the purge method with the drive's own description and time estimate."""
    way = purge_of(name)
    with contextlib.suppress(BadInput):
        if way is SECURE_ERASE and (offers := ata_offers(disk)) and offers.security.is_supported:
            return way._replace(what=offers.security.what, seconds=offers.security.time.seconds)
    return way


def _reason(
    require: Callable[[BlockDevice, Identify], None] | None, disk: BlockDevice, ask: Identify
) -> str | None:
    try:
        if require:
            require(disk, ask)
    except _NotOffered as refusal:
        return str(refusal)
    return None


def _nvme(disk: BlockDevice, ask: Identify, what: str) -> tuple[Controller, Namespace]:
    """Return the Identify data of an NVMe drive for the feature `what`."""
    if not disk.name.startswith("nvme"):
        raise _NotOffered(f"{disk.name} is no NVMe drive, and has no {what}")
    try:
        return ask(disk)
    except OpwatchError as error:
        raise _NotOffered(f"whether {disk.name} offers {what} cannot be asked: {error}") from error


def _require_alone(disk: BlockDevice, namespace: Namespace) -> None:
    if namespace.is_shared:
        raise _NotOffered(f"the namespace of {disk.name} may be attached to several controllers (NMIC)")


def _ata(disk: BlockDevice, what: str) -> AtaOffers:
    """Return the features of an ATA drive for the feature `what`."""
    try:
        offers = ata_offers(disk)
    except BadInput as error:
        raise _NotOffered(f"{disk.name} does not tell whether it has {what}: {error}") from error
    if offers is None:
        raise _NotOffered(
            f"{disk.name} is no ATA drive, or is behind a bridge or controller that does not show it as one"
        )
    return offers


def _namespace(disk: BlockDevice, ask: Identify, look: Callable[[BlockDevice], NamespaceOffer]) -> None:
    controller, namespace = _nvme(disk, ask, "namespace management")
    if not controller.manages_namespaces:
        raise _NotOffered(f"{disk.name} offers no namespace management (OACS bit 3 is 0)")
    _require_alone(disk, namespace)
    try:
        reasons = reasons_against(look(disk))
    except OpwatchError as error:
        raise _NotOffered(f"what namespaces {disk.name} has cannot be asked: {error}") from error
    if reasons:
        raise _NotOffered(f"{disk.name} {'; and it '.join(reasons)}")


def _max_address(disk: BlockDevice, _: Identify) -> None:
    offers = _ata(disk, "a host protected area")
    if not offers.has_protected_area and not offers.has_accessible_max:
        raise _NotOffered(
            f"{disk.name} has no host protected area (IDENTIFY word 82 bit 10 is 0), and its accessible max "
            "address cannot be configured (word 119 bit 8 is 0)"
        )
    if offers.is_locked:
        raise _NotOffered(f"{disk.name} is locked by a password (IDENTIFY word 128 bit 2)")
    if offers.is_frozen:
        raise _NotOffered(
            f"the security of {disk.name} is frozen until it was without power (IDENTIFY word 128 bit 3): "
            "most BIOSes do that, and a suspend of the machine undoes it"
        )
    if _is_unlocked_by_the_kernel(disk):
        raise _NotOffered(
            f"the kernel takes the limit of {disk.name} away with every reset of its link "
            "(libata.ignore_hpa is 1): echo 0 > /sys/module/libata/parameters/ignore_hpa"
        )
    # Without root the drive cannot be queried, as the plan already reports.
    try:
        with contextlib.suppress(PermissionMissing):
            probe_highest(disk)
    except OpwatchError as error:
        raise _NotOffered(str(error)) from error


def _is_unlocked_by_the_kernel(disk: BlockDevice) -> bool:
    is_of_libata = any(re.fullmatch(r"ata[0-9]+", part) for part in disk.sysfs.resolve().parts)
    return is_of_libata and read_text(LIBATA / "parameters" / "ignore_hpa").strip() == "1"


def _format(disk: BlockDevice, ask: Identify) -> None:
    controller, namespace = _nvme(disk, ask, "Format")
    if not controller.can_format:
        raise _NotOffered(f"{disk.name} offers no Format (OACS bit 1 is 0)")
    _require_alone(disk, namespace)
    if controller.formats_all and controller.most_namespaces != 1:
        raise _NotOffered(
            f"Format on {disk.name} is one of all namespaces of the drive (FNA), of which it may have "
            f"{controller.most_namespaces}"
        )
    if namespace.metadata_bytes or namespace.protection:
        raise _NotOffered(
            f"the blocks of {disk.name} have metadata or protection information, which a format would change"
        )
    if not shutil.which("nvme"):
        raise _NotOffered("nvme-cli is not installed")


def _sanitize(disk: BlockDevice, ask: Identify) -> None:
    _nvme(disk, ask, "Sanitize")
    try:
        reasons = reasons_against_sanitize(sanitize_offer_of(disk))
    except OpwatchError as error:
        raise _NotOffered(f"what {disk.name} says of Sanitize cannot be asked: {error}") from error
    if reasons:
        raise _NotOffered(f"{disk.name} {'; and it '.join(reasons)}")


def _secure_erase(disk: BlockDevice, _: Identify) -> None:
    offers = _ata(disk, "the security feature set")
    refused = way_refusal(disk)
    if not refused and offers.security.is_supported:
        # The kernel's cached data may be outdated, because security can be frozen and thawed later.
        try:
            probe_erasable(disk)
        except PermissionMissing:
            pass
        except OpwatchError as error:
            raise _NotOffered(str(error)) from error
        else:
            return
    if refused := refused or security_refusal(offers.security, disk.name):
        raise _NotOffered(refused)


_METHODS: dict[str, Callable[[BlockDevice, Identify], None]] = {
    "max-address": _max_address,
}
_PURGES: dict[str, Callable[[BlockDevice, Identify], None]] = {
    "format": _format,
    "sanitize": _sanitize,
    "secure-erase": _secure_erase,
}


def ata_offers(disk: BlockDevice) -> AtaOffers | None:
    """Return an ATA drive's features, or None for others. Raise BadInput if the kernel's copy is damaged."""
    try:
        page = (disk.sysfs / "device" / "vpd_pg89").read_bytes()
    except OSError:
        return None
    return decode_offers(page)
