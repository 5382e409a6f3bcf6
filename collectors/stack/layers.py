"""Read the layers below a mount or device, with the discard support of each.

Reads sysfs and device-mapper tables, and changes nothing. opwatch.trim.stack.layers.changes compares two
readings of a stack.
"""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from opwatch.collectors.firmware.drive_folder import find_drive_folder
from opwatch.collectors.stack.discard_limits import read_queue_limits
from opwatch.collectors.stack.disks import Identify, identify_nvme, read_disk
from opwatch.collectors.stack.filesystem import read_filesystem
from opwatch.collectors.stack.mapper import Mapper
from opwatch.errors import OpwatchError
from opwatch.host.device import SECTOR, BlockDevice, Devices
from opwatch.host.usage import Mount, Usage, find_mount, read_usage
from opwatch.trim.layers.arrays import DmRaidFacts, MdFacts
from opwatch.trim.layers.crypt import CryptFacts
from opwatch.trim.layers.loop import LoopFacts
from opwatch.trim.layers.partition import PartitionFacts
from opwatch.trim.layers.thin import ThinFacts, ThinPoolFacts
from opwatch.trim.stack import dmtable
from opwatch.trim.stack.dmtable import DmTarget
from opwatch.trim.stack.facts import DmFacts, LayerFacts, Unread
from opwatch.trim.stack.layers import Kind, Layer, Stack

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


class _Reading:
    """Facts about one layer during reading, and the reasons for unknown facts."""

    def __init__(
        self,
        kind: Kind,
        below: tuple[str, ...],
        facts: LayerFacts | None = None,
        unknown: dict[Unread, str] | None = None,
    ) -> None:
        self.kind, self.below = kind, below
        self.facts = facts or LayerFacts()
        self.target: str | None = None
        self.table: list[DmTarget] = []
        self.unknown = unknown or {}


class LayerReader:
    """Reads stacks of this machine, or of a directory tree with the same layout."""

    def __init__(
        self,
        devices: Devices | None = None,
        usage: Usage | None = None,
        dm: DmSource | None = None,
        nvme: Identify = identify_nvme,
        sys: Path = Path("/sys"),
    ) -> None:
        self._devices = devices or Devices()
        self._usage = usage or read_usage()
        self._dm = dm or Mapper()
        self._nvme = nvme
        self._sys = sys

    def read_mount(self, mount: Mount) -> Stack:
        """Return the filesystem of a mount and all layers below."""
        filesystem = read_filesystem(self._devices, self._usage, mount, self._sys)
        return Stack(filesystem, self._walk_layers(filesystem.devices))

    def read_device(self, device: BlockDevice) -> Stack:
        """Return a device and all layers below."""
        return Stack(None, self._walk_layers((device.name,)))

    def _walk_layers(self, names: tuple[str, ...]) -> tuple[Layer, ...]:
        """Walk breadth first, so that a layer follows all layers above it where possible."""
        layers: dict[str, Layer] = {}
        waiting = list(names)
        while waiting:
            name = waiting.pop(0)
            device = self._devices.by_name(name)
            if device is None:
                continue  # Removed since the listing
            # A layer that was reached earlier moves down.
            layers.pop(name, None)
            layers[name] = self._read_layer(device)
            waiting += layers[name].below
        return tuple(layers.values())

    def _read_layer(self, device: BlockDevice) -> Layer:
        layer = self._read_facts(device)
        if (discards := device.read_number("bcache/discard")) is not None:
            layer.facts = replace(layer.facts, bcache_discard=discards == 1)
        return Layer(
            device.name,
            f"{device.dev[0]}:{device.dev[1]}",
            layer.kind,
            device.size_bytes,
            read_queue_limits(device),
            read_only=None if (only := device.read_number("ro")) is None else only != 0,
            target=layer.target,
            label=device.read_attribute("dm/name"),
            below=layer.below,
            table=tuple(layer.table),
            facts=layer.facts,
            unknown=layer.unknown,
        )

    def _read_facts(self, device: BlockDevice) -> _Reading:
        """Return the kind and facts of a device."""
        kind, below = device.read_kind(), tuple(device.list_lower_devices())
        if device.is_partition:
            start = PartitionFacts(start_bytes=device.sector_range[0] * SECTOR)
            return _Reading(Kind.PARTITION, (device.disk.name,), start)
        if kind.startswith("dm"):
            return self._read_dm(device, kind, below)
        if kind.startswith("md"):
            return self._read_md(device, below)
        if kind == "loop":
            return self._read_loop(device)
        paths = tuple(path.name for path in self._devices.list_paths(device))
        facts, unknown = read_disk(self._devices, device, self._nvme)
        if paths:
            return _Reading(Kind.MULTIPATH, paths, facts, unknown=unknown)
        return _Reading(Kind.DISK, below, facts, unknown=unknown)

    def _read_dm(self, device: BlockDevice, kind: str, below: tuple[str, ...]) -> _Reading:
        """Return the kind and facts of a dm device. Several targets are joined by a plus."""
        layer = _Reading(Kind.DM, below)
        try:
            layer.table = self._dm.read_table(device.dev)
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

    def _set_dm_facts(self, device: BlockDevice, layer: _Reading) -> None:
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
        self, device: BlockDevice, layer: _Reading, flags: tuple[str, ...] | None
    ) -> ThinFacts:
        status = self._read_dm_status(device, layer, Unread.STATUS)
        mapped = dmtable.parse_mapped_sectors(status) if status else None
        if status and mapped is None:
            layer.unknown[Unread.MAPPED_BYTES] = "its status does not report it"
        return ThinFacts(flags=flags, mapped_bytes=None if mapped is None else mapped * SECTOR)

    def _read_pool_facts(
        self, device: BlockDevice, layer: _Reading, flags: tuple[str, ...] | None
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

    def _read_dm_status(self, device: BlockDevice, layer: _Reading, fact: Unread) -> DmTarget | None:
        """Return the only status line of a device, or None after recording the reason for `fact`."""
        try:
            [status] = self._dm.read_status(device.dev)
        except (OpwatchError, ValueError) as error:
            layer.unknown[fact] = str(error)
            return None
        return status

    def _read_raid_facts(
        self, device: BlockDevice, layer: _Reading, flags: tuple[str, ...] | None
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

    def _read_md(self, device: BlockDevice, below: tuple[str, ...]) -> _Reading:
        facts = MdFacts(
            level=device.read_attribute("md/level") or None,
            array_state=device.read_attribute("md/array_state") or None,
            sync_action=device.read_attribute("md/sync_action") or None,
            reshape_position=device.read_attribute("md/reshape_position") or None,
            chunk_bytes=device.read_number("md/chunk_size"),
            layout=device.read_number("md/layout"),
            degraded=device.read_number("md/degraded"),
            raid_disks=device.read_number("md/raid_disks"),
            **_read_md_members(device),
        )
        layer = _Reading(Kind.MD, below, facts)
        if facts.level in ("raid4", "raid5", "raid6"):
            path = self._sys / "module/raid456/parameters/devices_handle_discard_safely"
            try:
                layer.facts = replace(facts, handles_discard_safely=path.read_text().strip() == "Y")
            except OSError as error:
                layer.unknown[Unread.HANDLES_DISCARD_SAFELY] = f"{path}: {error.strerror}"
        return layer

    def _read_loop(self, device: BlockDevice) -> _Reading:
        """Return the backing file's facts. A backing block device becomes the lower layer."""
        file = device.read_attribute("loop/backing_file")
        if not file:
            # For a file without a name, the kernel reports an empty name.
            layer = _Reading(Kind.LOOP, (), LoopFacts(backing_file=file))
            if file is None:
                layer.unknown[Unread.BACKING_FILE] = "no file is attached"
            return layer
        facts = LoopFacts(
            backing_file=file,
            simulated_drive=True if find_drive_folder(device) else None,
            offset_bytes=device.read_number("loop/offset") or None,
        )
        layer = _Reading(Kind.LOOP, (), facts)
        try:
            status = Path(file).stat()
        except OSError as error:
            layer.unknown[Unread.BACKING_FILESYSTEM] = f"{file}: {error.strerror}"
            return layer
        if stat.S_ISBLK(status.st_mode):
            layer.facts = replace(facts, backing_is_device=True)
            layer.below = (self._devices.resolve(file).name,)
        elif mount := find_mount(os.path.realpath(file), self._usage.mounts):
            layer.facts = replace(facts, backing_filesystem=mount.filesystem, backing_mount=mount.point)
        return layer


def _read_md_members(device: BlockDevice) -> dict[str, Any]:
    """Return the members of an array by slot, with their data offsets."""
    places = {}
    for folder in (device.sysfs / "md").glob("dev-*"):
        slot, offset = (device.read_number(f"md/{folder.name}/{name}") for name in ("slot", "offset"))
        if slot is not None and offset is not None:  # A spare has no slot
            places[slot] = (folder.name.removeprefix("dev-"), offset * SECTOR)
    slots = [places.get(slot, ("-", 0)) for slot in range(max(places, default=-1) + 1)]
    return {"members": tuple(name for name, _ in slots), "data_offsets": tuple(at for _, at in slots)}
