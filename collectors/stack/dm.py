"""Read device-mapper devices: their tables and status lines."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from opwatch.collectors.stack.discard_limits import read_queue_limits
from opwatch.collectors.stack.reading import LayerReading
from opwatch.errors import OpwatchError
from opwatch.host.device import SECTOR, BlockDevice, Devices
from opwatch.trim.layers.arrays import DmRaidFacts
from opwatch.trim.layers.crypt import CryptFacts
from opwatch.trim.layers.thin import ThinFacts, ThinPoolFacts
from opwatch.trim.stack import dmtable
from opwatch.trim.stack.dmtable import DmTarget
from opwatch.trim.stack.facts import DmFacts, Unread
from opwatch.trim.stack.layers import Kind

# Target of a dm device by uuid prefix, for use without the table.
_BY_UUID = {"dm-crypt": "crypt", "dm-verity": "verity", "dm-integrity": "integrity", "dm-mpath": "multipath"}
# These targets may disable passdown at creation if the lower device's discard limit is too small. Only the
# status shows that.
_PASSING_DOWN = ("cache", "clone")
_KINDS = {"crypt": Kind.CRYPT, "thin": Kind.THIN, "thin-pool": Kind.THIN_POOL}


class DmSource(Protocol):
    """Source of tables and status lines. Raises OpwatchError if they are not readable."""

    def read_table(self, dev: tuple[int, int]) -> list[DmTarget]: ...
    def read_status(self, dev: tuple[int, int]) -> list[DmTarget]: ...


class DmReader:
    """Reads the kind and facts of device-mapper devices."""

    def __init__(self, devices: Devices, source: DmSource) -> None:
        self._devices, self._source = devices, source

    def read_layer(self, device: BlockDevice, kind: str, below: tuple[str, ...]) -> LayerReading:
        """Return the kind and facts of a dm device. Several targets are joined by a plus."""
        layer = LayerReading(Kind.DM, below)
        try:
            layer.table = self._source.read_table(device.dev)
            layer.target = "+".join(dict.fromkeys(target.kind for target in layer.table)) or None
        except OpwatchError as error:
            layer.unknown[Unread.TABLE] = str(error)
            layer.target = self._guess_target(device, kind)
        layer.kind = _KINDS.get(layer.target or "", Kind.DM)
        self._set_dm_facts(device, layer)
        return layer

    def _guess_target(self, device: BlockDevice, kind: str) -> str | None:
        """Return the target by cryptsetup's and LVM's naming, or None."""
        if kind != "dm-lvm":
            return _BY_UUID.get(kind)
        uuid = device.read_attribute("dm/uuid") or ""
        if uuid.endswith("-tpool"):
            return "thin-pool"
        lowers = [
            lower_device
            for name in device.list_lower_devices()
            if (lower_device := self._devices.by_name(name))
        ]
        pools = [(lower.read_attribute("dm/uuid") or "").endswith("-tpool") for lower in lowers]
        return "thin" if any(pools) and not uuid.endswith("-pool") else None

    def _set_dm_facts(self, device: BlockDevice, layer: LayerReading) -> None:
        """Set the facts in table and status, by target kind."""
        words = {flag for target in layer.table for flag in target.flags}
        flags = tuple(sorted(words)) or None
        if layer.kind is Kind.CRYPT:
            # The discard limit is not 0 exactly if the table has the flag.
            allowed = "allow_discards" in words if layer.table else read_queue_limits(device).can_discard
            layer.facts = CryptFacts(allow_discards=allowed)
        elif layer.kind is Kind.THIN:
            layer.facts = self._read_thin_facts(device, layer, flags)
        elif layer.kind is Kind.THIN_POOL:
            layer.facts = self._read_pool_facts(device, layer, flags)
        elif len(layer.table) == 1 and layer.table[0].kind == "raid":
            layer.facts = self._read_raid_facts(device, layer, flags)
        elif layer.target in _PASSING_DOWN:
            status = self._read_dm_status(device, layer, Unread.STATUS)
            words |= set(status.flags if status else ())
            layer.facts = DmFacts(flags=tuple(sorted(words)) or None)
        else:
            layer.facts = DmFacts(flags=flags)

    def _read_thin_facts(
        self, device: BlockDevice, layer: LayerReading, flags: tuple[str, ...] | None
    ) -> ThinFacts:
        status = self._read_dm_status(device, layer, Unread.STATUS)
        mapped = dmtable.parse_mapped_sectors(status) if status else None
        if status and mapped is None:
            layer.unknown[Unread.MAPPED_BYTES] = "its status does not report it"
        return ThinFacts(flags=flags, mapped_bytes=None if mapped is None else mapped * SECTOR)

    def _read_pool_facts(
        self, device: BlockDevice, layer: LayerReading, flags: tuple[str, ...] | None
    ) -> ThinPoolFacts:
        facts = ThinPoolFacts(flags=flags)
        if (status := self._read_dm_status(device, layer, Unread.STATUS)) is None:
            return facts
        facts = replace(facts, chunk_bytes=dmtable.parse_chunk_bytes(layer.table[0]) if layer.table else None)
        pool = dmtable.parse_pool_status(status)
        if pool is None:
            layer.unknown[Unread.MODE] = "the pool's status has an unknown format"
            return facts
        return replace(
            facts,
            mode=pool.mode,
            used_chunks=pool.used_chunks,
            total_chunks=pool.total_chunks,
            discards=pool.discards,
            needs_check=pool.needs_check,
        )

    def _read_dm_status(self, device: BlockDevice, layer: LayerReading, fact: Unread) -> DmTarget | None:
        """Return the only status line of a device, or None after recording the reason for `fact`."""
        try:
            [status] = self._source.read_status(device.dev)
        except (OpwatchError, ValueError) as error:
            layer.unknown[fact] = str(error)
            return None
        return status

    def _read_raid_facts(
        self, device: BlockDevice, layer: LayerReading, flags: tuple[str, ...] | None
    ) -> DmFacts:
        """Return the facts of a dm-raid under the names used for md arrays."""
        array = dmtable.parse_raid(layer.table[0])
        if array is None:
            layer.unknown[Unread.LEVEL] = "its table has an unknown format"
            return DmFacts(flags=flags)
        status = self._read_dm_status(device, layer, Unread.DEGRADED)
        degraded = dmtable.count_missing_members(status) if status else None
        if status and degraded is None:
            layer.unknown[Unread.DEGRADED] = "its status does not report it"
        layout = array.copies | 1 << 8 if array.level == "raid10" else None
        return DmRaidFacts(
            flags=flags,
            level=array.level,
            raid_disks=array.disks,
            layout=layout,
            degraded=degraded,
            chunk_bytes=array.chunk_bytes,
            sync_action=dmtable.parse_sync_action(status) if status else None,
        )
