"""Check whether a drive supports a limit or purge method, and whether sweeps use it."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from opwatch.collectors.stack.disks import Identify, identify_nvme
from opwatch.counters.decode.identify import Controller, Namespace
from opwatch.errors import BadInput, OpwatchError, PermissionMissing
from opwatch.foreign import read_text
from opwatch.host.device import BlockDevice
from opwatch.sweep.ata.offers import AtaFeatures, decode_features
from opwatch.sweep.ata.security import find_security_refusal
from opwatch.sweep.namespace.offer import NamespaceOffer, list_objections
from opwatch.sweep.namespace.sanitize import list_sanitize_objections
from opwatch.sweep.purges import SECURE_ERASE, PurgeMethod, find_purge
from opwatch.tools.acting.addresses.highest import probe_highest
from opwatch.tools.acting.erasing.lockable import find_bridge_refusal, probe_erasable
from opwatch.tools.acting.namespaces.controller import find_namespace_offer
from opwatch.tools.acting.namespaces.sanitizing import find_sanitize_offer

LIBATA = Path("/sys/module/libata")


class _Unavailable(Exception):
    """The reason why a method is not used: unsupported by the drive, or unused by opwatch."""


def find_method_refusal(
    disk: BlockDevice,
    method: str,
    ask: Identify = identify_nvme,
    look: Callable[[BlockDevice], NamespaceOffer] = find_namespace_offer,
) -> str | None:
    """Return the reason why levels of this drive cannot use the method, or None. Read-only."""
    if method == "namespace":
        return _find_reason(lambda of, by: _require_namespaces(of, by, look), disk, ask)
    return _find_reason(_METHODS.get(method), disk, ask)


def find_purge_refusal(disk: BlockDevice, way: str, ask: Identify = identify_nvme) -> str | None:
    """Return the reason why this drive cannot be purged by the method, or None."""
    return _find_reason(_PURGES.get(way), disk, ask)


def describe_purge(disk: BlockDevice, name: str) -> PurgeMethod:
    """Return the purge method with the drive's own description and time estimate."""
    way = find_purge(name)
    with contextlib.suppress(BadInput):
        if way is SECURE_ERASE and (offers := read_ata_offers(disk)) and offers.security.is_supported:
            return way._replace(
                what=offers.security.erase_description, seconds=offers.security.erase_time.seconds
            )
    return way


def _find_reason(
    require: Callable[[BlockDevice, Identify], None] | None, disk: BlockDevice, ask: Identify
) -> str | None:
    try:
        if require:
            require(disk, ask)
    except _Unavailable as refusal:
        return str(refusal)
    return None


def _identify_nvme(disk: BlockDevice, ask: Identify, what: str) -> tuple[Controller, Namespace]:
    """Return the Identify data of an NVMe drive for the feature `what`."""
    if not disk.name.startswith("nvme"):
        raise _Unavailable(f"{disk.name} is not an NVMe drive and has no {what}")
    try:
        return ask(disk)
    except OpwatchError as error:
        raise _Unavailable(f"cannot query whether {disk.name} supports {what}: {error}") from error


def _require_alone(disk: BlockDevice, namespace: Namespace) -> None:
    if namespace.is_shared:
        raise _Unavailable(f"the namespace of {disk.name} may be attached to several controllers (NMIC)")


def _read_ata_features(disk: BlockDevice, what: str) -> AtaFeatures:
    """Return the features of an ATA drive for the feature `what`."""
    try:
        offers = read_ata_offers(disk)
    except BadInput as error:
        raise _Unavailable(f"{disk.name} does not report whether it has {what}: {error}") from error
    if offers is None:
        raise _Unavailable(
            f"{disk.name} is not an ATA drive, or is behind a bridge or controller that hides it"
        )
    return offers


def _require_no_objections(disk: BlockDevice, queried: str, list_reasons: Callable[[], list[str]]) -> None:
    """Raise _Unavailable with the objections of a query, or because the query fails."""
    try:
        reasons = list_reasons()
    except OpwatchError as error:
        raise _Unavailable(f"cannot query {queried} {disk.name}: {error}") from error
    if reasons:
        raise _Unavailable(f"{disk.name} {'; and it '.join(reasons)}")


def _require_namespaces(
    disk: BlockDevice, ask: Identify, look: Callable[[BlockDevice], NamespaceOffer]
) -> None:
    controller, namespace = _identify_nvme(disk, ask, "namespace management")
    if not controller.manages_namespaces:
        raise _Unavailable(f"{disk.name} does not support namespace management (OACS bit 3 is 0)")
    _require_alone(disk, namespace)
    _require_no_objections(disk, "the namespaces of", lambda: list_objections(look(disk)))


def _require_max_address(disk: BlockDevice, _: Identify) -> None:
    offers = _read_ata_features(disk, "a host protected area")
    if not offers.has_protected_area and not offers.has_accessible_max:
        raise _Unavailable(
            f"{disk.name} has no host protected area (IDENTIFY word 82 bit 10 is 0), and its accessible max "
            "address cannot be configured (word 119 bit 8 is 0)"
        )
    if offers.is_locked:
        raise _Unavailable(f"{disk.name} is locked with a password (IDENTIFY word 128 bit 2)")
    if offers.is_frozen:
        raise _Unavailable(
            f"the security of {disk.name} is frozen until a power cycle (IDENTIFY word 128 bit 3): most "
            "BIOSes freeze it; suspend and wake the machine"
        )
    if _is_unlocked_by_kernel(disk):
        raise _Unavailable(
            f"the kernel removes the limit of {disk.name} at every reset of its link (libata.ignore_hpa "
            "is 1): echo 0 > /sys/module/libata/parameters/ignore_hpa"
        )
    # Without root the drive cannot be queried, as the plan already reports.
    try:
        with contextlib.suppress(PermissionMissing):
            probe_highest(disk)
    except OpwatchError as error:
        raise _Unavailable(str(error)) from error


def _is_unlocked_by_kernel(disk: BlockDevice) -> bool:
    is_of_libata = any(re.fullmatch(r"ata[0-9]+", part) for part in disk.sysfs.resolve().parts)
    return is_of_libata and read_text(LIBATA / "parameters" / "ignore_hpa").strip() == "1"


def _require_format(disk: BlockDevice, ask: Identify) -> None:
    controller, namespace = _identify_nvme(disk, ask, "Format")
    if not controller.can_format:
        raise _Unavailable(f"{disk.name} does not support Format (OACS bit 1 is 0)")
    _require_alone(disk, namespace)
    if controller.formats_all and controller.most_namespaces != 1:
        raise _Unavailable(
            f"Format on {disk.name} formats all namespaces of the drive (FNA), of which it may have "
            f"{controller.most_namespaces}"
        )
    if namespace.metadata_bytes or namespace.protection:
        raise _Unavailable(
            f"the blocks of {disk.name} have metadata or protection information, which a format would change"
        )
    if not shutil.which("nvme"):
        raise _Unavailable("nvme-cli is not installed")


def _require_sanitize(disk: BlockDevice, ask: Identify) -> None:
    _identify_nvme(disk, ask, "Sanitize")
    _require_no_objections(disk, "Sanitize on", lambda: list_sanitize_objections(find_sanitize_offer(disk)))


def _require_secure_erase(disk: BlockDevice, _: Identify) -> None:
    offers = _read_ata_features(disk, "the security feature set")
    refused = find_bridge_refusal(disk)
    if not refused and offers.security.is_supported:
        # The kernel's cached data may be outdated, because security can be frozen and thawed later.
        try:
            probe_erasable(disk)
        except PermissionMissing:
            pass
        except OpwatchError as error:
            raise _Unavailable(str(error)) from error
        else:
            return
    if refused := refused or find_security_refusal(offers.security, disk.name):
        raise _Unavailable(refused)


_METHODS: dict[str, Callable[[BlockDevice, Identify], None]] = {
    "max-address": _require_max_address,
}
_PURGES: dict[str, Callable[[BlockDevice, Identify], None]] = {
    "format": _require_format,
    "sanitize": _require_sanitize,
    "secure-erase": _require_secure_erase,
}


def read_ata_offers(disk: BlockDevice) -> AtaFeatures | None:
    """Return an ATA drive's features, or None for others. Raise BadInput if the kernel's copy is damaged."""
    try:
        page = (disk.sysfs / "device" / "vpd_pg89").read_bytes()
    except OSError:
        return None
    return decode_features(page)
