"""Device-mapper devices: tables of targets. Targets with behavior of their own have a file each. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from opwatch.trim.layers import arrays
from opwatch.trim.layers.arrays import MdFacts
from opwatch.trim.layers.base import LayerKind, MappedPart, RetentionCause
from opwatch.trim.space.extents import Extents
from opwatch.trim.stack.causes import Reason, make_reason
from opwatch.trim.stack.dmtable import (
    DmTarget,
    Raid,
    TargetLayout,
    parse_areas,
    parse_mirror,
    parse_raid,
    parse_stripes,
)
from opwatch.trim.stack.facts import DmFacts, LayerFacts, Unread
from opwatch.trim.stack.layers import Layer, Stack

_SECTOR = 512
# Targets with auxiliary devices: index of the argument with the device to which discards go.
_DISCARD_ARGUMENTS = {
    "thin-pool": 1,
    "cache": 2,
    "clone": 1,
    "era": 1,
    "writecache": 1,
    "snapshot": 0,
    "log-writes": 0,
}
# Targets that keep data at the same offset on the main device, next to auxiliary devices.
_SAME_OFFSET_TARGETS = ("cache", "era", "writecache", "log-writes")
# Targets that submit in the sender's context; any other target may have threads.
_DIRECT_TARGETS = (
    *("linear", "striped", "unstriped", "switch", "crypt", "flakey", "log-writes", "multipath"),
    *("snapshot", "snapshot-origin", "snapshot-merge", "zero", "error", "verity"),
)
# Name of a target whose arguments are the fields of dmtable.Areas. The kernel has no target with this name.
AREAS_TARGET = "in areas"


class Dm(LayerKind):
    """A device-mapper device. `targets` are the targets of which its table consists."""

    facts: ClassVar[type[LayerFacts]] = DmFacts
    targets: ClassVar[tuple[str, ...]] = ()
    zero_cause: ClassVar[str] = "target-no-discards"
    # Why a range cannot be traced through the device; {0} is the device, {1} the target.
    stop_words: ClassVar[str] = "{0} ({1}) maps sectors dynamically: opwatch does not read the disks below"

    def find_receivers(self, stack: Stack, layer: Layer) -> list[Layer]:
        lowers = stack.find_lower_layers(layer)
        place = _DISCARD_ARGUMENTS.get(layer.target or "")
        if place is None or not layer.table or len(layer.table[0].arguments) <= place:
            return lowers
        dev = layer.table[0].arguments[place]
        return [lower for lower in lowers if lower.dev == dev] or lowers

    def map_range(
        self, stack: Stack, layer: Layer, extents: Extents, *, copies: bool
    ) -> Iterator[MappedPart]:
        if not layer.table:
            words = self.stop_words.format(layer.device, layer.target or "unknown target")
            yield MappedPart(None, extents, stopped=words)
        by_number = {other.dev: other.device for other in stack.layers}
        for target in layer.table:
            first = target.first * _SECTOR
            part = extents.clip(first, first + target.sectors * _SECTOR)
            pieces = list(_map_to_devices(target, part, copies=copies))
            if pieces and all(dev in by_number for dev, _ in pieces):
                for dev, moved in pieces:
                    yield MappedPart(by_number[dev], moved, encrypted=target.kind == "crypt")
            elif part:
                words = self.stop_words.format(layer.device, target.kind)
                yield MappedPart(None, part, stopped=words)

    def list_data_starts(self, stack: Stack, layer: Layer) -> list[tuple[Layer, int]] | None:
        if not layer.table:
            return None
        by_number, places = {other.dev: other for other in stack.layers}, []
        for target in layer.table:
            if described := parse_raid(target):
                places += [(dev, 0) for dev in described.data]
            elif mapped := target.mapped_device:
                places.append(mapped)
        return [(by_number[dev], sector * _SECTOR) for dev, sector in places if dev in by_number]

    def list_arrays(self, stack: Stack, layer: Layer) -> Iterator[tuple[MdFacts, Sequence[str]]]:
        by_number = {other.dev: other.device for other in stack.layers}
        for target in layer.table:
            if array := parse_raid(target):
                names = [by_number[dev] for dev in array.data if dev in by_number]
                yield arrays.convert_to_md(array), names

    def list_borders(self, layer: Layer) -> Iterator[int]:
        for target in layer.table:
            places = parse_stripes(target)
            yield from (
                sectors * _SECTOR for sectors in (target.first, places.chunk_sectors if places else 0)
            )
            if target.kind == AREAS_TARGET:
                yield int(target.arguments[2]) * _SECTOR
            if (array := parse_raid(target)) and array.level == "raid1":
                yield arrays.BARRIER_UNIT

    def simplify(self, stack: Stack, layer: Layer, copy: int) -> Layer:
        # dm-integrity's journal is ignored, because discards bypass it.
        if layer.table and (places := parse_areas(layer.table[0])):
            words = (places.device, *map(str, places[1:]))
            return replace(layer, table=(replace(layer.table[0], kind=AREAS_TARGET, arguments=words),))
        return layer

    def explain_zero_limit(self, stack: Stack, layer: Layer, observed: str) -> Reason:
        observed += f", target {layer.target}" if layer.target else " above devices that accept them"
        names = {"label": layer.label or layer.device, "device": layer.device}
        return make_reason(self.zero_cause, layer.device, observed, **names)

    def find_retentions(self, stack: Stack, layer: Layer) -> list[RetentionCause]:
        return [
            *self.find_target_retentions(stack, layer),
            *_find_failing_targets(layer),
            *self.find_lower_retentions(stack, layer),
        ]

    def find_target_retentions(self, stack: Stack, layer: Layer) -> Iterator[RetentionCause]:
        """Yield the causes of its own target."""
        return iter(())

    def find_doubts(self, layer: Layer) -> Iterator[str]:
        if layer.target is None and layer.limits.can_discard:
            why = layer.unknown.get(Unread.TABLE, "its table could not be read")
            yield f"what {layer.label or layer.device} does with discards: {why}"

    def is_threaded(self, layer: Layer) -> bool:
        return not set((layer.target or "").split("+")) <= set(_DIRECT_TARGETS)


class Linear(Dm):
    """A plain mapping."""

    targets = ("linear",)
    has_lower_granules = True


class Vdo(Dm):
    """VDO, which deduplicates and frees blocks by itself."""

    targets = ("vdo",)

    def find_target_retentions(self, stack: Stack, layer: Layer) -> Iterator[RetentionCause]:
        blanks = {"label": layer.label or layer.device}
        yield RetentionCause("vdo-keeps", layer.device, "target vdo", blanks)


class Integrity(Dm):
    """A layer of dm-integrity: a journal and checksums beside the data."""

    targets = ("integrity",)
    zero_cause = "integrity-no-discards"


class Verity(Dm):
    """A layer of dm-verity, which is read-only."""

    targets = ("verity",)
    zero_cause = "verity-read-only"


def _find_failing_targets(layer: Layer) -> Iterator[RetentionCause]:
    """Yield targets in the table that deliberately fail or drop requests."""
    parts = [(target, words) for target in layer.table if (words := _describe_failing_target(target))]
    if parts:
        total = sum(target.sectors for target in layer.table)
        sectors = sum(target.sectors for target, _ in parts)
        part = "" if sectors == total else f" for {sectors} of its {total} sectors"
        whole = all(target.kind == "error" for target in layer.table)
        blanks = {"label": layer.label or layer.device}
        words = f"its table has {', '.join(dict.fromkeys(words for _, words in parts))}{part}"
        code = "target-error" if whole else "target-fails"
        yield RetentionCause(code, layer.device, words, blanks, whole, fails=True)


def _describe_failing_target(target: DmTarget) -> str | None:
    """Return the words of a target that fails requests deliberately; None for other targets."""
    if target.kind == "flakey" and len(target.arguments) > 3:
        return None if target.arguments[3] == "0" else f"flakey, {target.arguments[3]} s failure interval"
    return target.kind if target.kind in ("error", "dust") else None


# --- where a target stores its bytes ---


def _map_to_devices(target: DmTarget, part: Extents, *, copies: bool) -> Iterator[tuple[str, Extents]]:
    """Yield (major:minor, extents there) for a target's part of the device; nothing if the mapping is not
    exact. A mirror has a copy on each leg. Behind a cache or next to a log, the copy is at the same
    offset."""
    first = target.first * _SECTOR
    if places := parse_stripes(target):
        yield from _map_to_stripes(places, part.shift_by(-first))
    elif target.kind == AREAS_TARGET:
        yield target.arguments[0], _map_to_areas(target, part.shift_by(-first))
    elif copies and (places := parse_mirror(target)):
        yield from ((dev, part.shift_by(sector * _SECTOR - first)) for dev, sector in places.begins)
    elif copies and (array := parse_raid(target)) and array.is_near and array.data:
        yield from _map_to_data_devices(array, part.shift_by(-first))
    elif (
        copies
        and target.kind in _SAME_OFFSET_TARGETS
        and len(target.arguments) > _DISCARD_ARGUMENTS[target.kind]
    ):
        yield target.arguments[_DISCARD_ARGUMENTS[target.kind]], part
    elif below := target.mapped_device:
        yield below[0], part.shift_by(below[1] * _SECTOR - first)


def _map_to_areas(target: DmTarget, part: Extents) -> Extents:
    begins, area, gap = (int(word) * _SECTOR for word in target.arguments[1:])
    return Extents.from_pairs(
        (
            begins + number * gap + max(start, number * area),
            begins + number * gap + min(end, (number + 1) * area),
        )
        for start, end in part
        for number in range(start // area, -(-end // area))
    )


def _map_to_data_devices(array: Raid, part: Extents) -> Iterator[tuple[str, Extents]]:
    """Yield each member's part in a device-mapper RAID: as in md, with data from the start of the member."""
    for slot, piece in arrays.map_by_slot(arrays.convert_to_md(array), part):
        if array.data[slot] != "-":
            yield array.data[slot], piece


def _map_to_stripes(places: TargetLayout, part: Extents) -> Iterator[tuple[str, Extents]]:
    """Yield each stripe's part: chunks rotate over the devices, as in RAID 0."""
    array = MdFacts(level="raid0", raid_disks=len(places.begins), chunk_bytes=places.chunk_sectors * _SECTOR)
    for slot, piece in arrays.map_by_slot(array, part):
        dev, sector = places.begins[slot]
        yield dev, piece.shift_by(sector * _SECTOR)
