"""RAID arrays: md, and device-mapper targets that run md's code. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from opwatch.trim.layers import arrays
from opwatch.trim.layers.arrays import PARITY, RAID456, MdFacts, find_array, find_level, is_array
from opwatch.trim.layers.base import LayerKind, LayerTrim, MappedPart, RetentionCause
from opwatch.trim.space.extents import Extents
from opwatch.trim.stack.causes import Reason, make_reason
from opwatch.trim.stack.layers import Layer, Stack
from opwatch.units import format_size

# Values of sync_action while md writes to members.
WRITING_SYNC_ACTIONS = {"resync", "recover", "repair", "reshape"}
# Mirrors with a bitmap use a thread if the sender sleeps before flushing the plug.
_THREADED_LEVELS = ("raid1", "raid10", *RAID456)
_MIRRORED = ("raid1", "raid10")


class ArrayKind(LayerKind):
    """What md and a device-mapper RAID have in common."""

    def find_granule(self, layer: Layer) -> tuple[int, int] | None:
        # For arrays with parity, md reports a power of two and device mapper reports the chunk.
        stripe = arrays.find_stripe_bytes(layer)
        return (stripe, 0) if stripe else layer.limits.find_granule()

    def find_retentions(self, stack: Stack, layer: Layer) -> list[RetentionCause]:
        kept = super().find_retentions(stack, layer)
        stripe, most = arrays.find_stripe_bytes(layer), layer.limits.max_bytes
        if stripe and most and most < stripe:
            words = f"discards of at most {most} B contain no whole stripe of {stripe} B"
            kept.append(RetentionCause("raid456-partial-stripe", layer.device, words))
        return kept

    def find_lower_retentions(self, stack: Stack, layer: Layer) -> Iterator[RetentionCause]:
        # An array handles members without discard support.
        return iter(()) if is_array(layer) else super().find_lower_retentions(stack, layer)

    def find_hints(self, stack: Stack, layer: Layer) -> Iterator[Reason]:
        if find_level(layer) in RAID456 and layer.limits.can_discard:
            facts = layer.facts_as(MdFacts)
            stripe = arrays.stripe_bytes(facts)
            observed = f"stripes of {format_size(stripe)}" if stripe else "its stripe size is unknown"
            if facts.reshape_position not in (None, "none"):
                observed += f", a reshape is at {facts.reshape_position}"
            yield make_reason("raid456-partial-stripe", layer.device, observed)

    def explain_rounding(self, layer: Layer, top: str, observed: str, lost: int) -> Reason:
        if arrays.find_stripe_bytes(layer):
            return make_reason("raid456-partial-stripe", layer.device, observed, lost)
        at = layer.device if is_array(layer) else top
        return make_reason("device-rounds", at, observed, lost, device=top)

    def is_threaded(self, layer: Layer) -> bool:
        return find_level(layer) in _THREADED_LEVELS

    def is_unit_based(self, layer: Layer) -> bool:
        return find_level(layer) in RAID456

    def count_copies(self, layer: Layer, members: int) -> int:
        array = find_array(layer)
        if array and array.level == "raid1":
            return array.raid_disks or members
        return arrays.count_data_copies(array)

    def count_passed_bytes(self, trim: LayerTrim) -> int:
        if not self.is_unit_based(trim.layer):
            return sum(trim.members.values())
        stripes = _count_stripe_bytes(trim)
        return stripes - _count_kept_bytes(trim, stripes) - _count_missed_bytes(trim, stripes)

    def explain_loss(self, trim: LayerTrim, lost: int) -> Iterator[Reason]:
        level = find_level(trim.layer)
        if level in RAID456:
            yield from _explain_stripes(trim, lost)
            return
        for name in _find_unsupported_members(trim):
            share = min(trim.arrived_bytes if level == "raid1" else lost, lost)
            yield _explain_unsupported_member(name, trim, share)
            lost -= share
        # A member may have failed during the trim, for example by another process's write.
        array = find_array(trim.later) or find_array(trim.layer)
        missing = array.degraded if array and level in _MIRRORED else 0
        if array and missing and lost:
            # A missing member holds at most the bytes sent to the array (RAID 1), or the bytes on its
            # mirrors.
            most = trim.arrived_bytes
            if level != "raid1":
                mirrors = arrays.count_mirrors(find_array(trim.layer))
                most = max(trim.members.values(), default=0) * mirrors
            yield _explain_missing_member(trim, min(lost, missing * most))

    def describe_out(self, layer: Layer, copies: int) -> str | None:
        return "out includes parity" if self.is_unit_based(layer) else super().describe_out(layer, copies)


class Md(ArrayKind):
    """An md array."""

    facts = MdFacts

    def find_receivers(self, stack: Stack, layer: Layer) -> list[Layer]:
        lowers = stack.find_lower_layers(layer)
        members = layer.facts_as(MdFacts).members
        # The journal receives none.
        return [lower for lower in lowers if not members or lower.device in members] or lowers

    def map_range(
        self, stack: Stack, layer: Layer, extents: Extents, *, copies: bool
    ) -> Iterator[MappedPart]:
        members = list(_map_to_members(layer, extents)) if copies else []
        words = f"array {layer.device}: any mirror may serve a read, and parity is not visible"
        yield from members or [MappedPart(None, extents, stopped=words)]

    def list_data_starts(self, stack: Stack, layer: Layer) -> list[tuple[Layer, int]] | None:
        array = layer.facts_as(MdFacts)
        places = zip(array.members or (), array.data_offsets or (), strict=False)
        return [(member, offset) for name, offset in places if (member := stack.find_layer(name))]

    def list_arrays(self, stack: Stack, layer: Layer) -> Iterator[tuple[MdFacts, Sequence[str]]]:
        array = layer.facts_as(MdFacts)
        yield array, array.members or ()

    def list_borders(self, layer: Layer) -> Iterator[int]:
        array = layer.facts_as(MdFacts)
        yield array.chunk_bytes or 0
        yield arrays.BARRIER_UNIT if array.level == "raid1" else 0

    def simplify(self, stack: Stack, layer: Layer, copy: int) -> Layer:
        array = layer.facts_as(MdFacts)
        if arrays.count_far_copies(array) > 1:
            return replace(layer, facts=arrays.select_far_copy(array, copy))
        return layer

    def explain_zero_limit(self, stack: Stack, layer: Layer, observed: str) -> Reason:
        if find_level(layer) not in RAID456:
            return super().explain_zero_limit(stack, layer, observed)
        safely = layer.facts_as(MdFacts).handles_discard_safely
        observed += "" if safely is None else f", devices_handle_discard_safely is {'NY'[safely]}"
        return make_reason("raid456-not-safe", layer.device, observed, device=layer.device)


def explain_resync(before: Layer, after: Layer) -> Iterator[Reason]:
    """Yield a reason if an array was resynchronizing before or after the trim and so wrote to its members."""
    states = [find_array(before), find_array(after)]
    doing = {array.sync_action for array in states if array} & WRITING_SYNC_ACTIONS
    if doing:
        observed = f"sync_action of {before.device} is {' and '.join(sorted(filter(None, doing)))}"
        yield make_reason("array-writes", before.device, observed, None, device=before.device)


def _map_to_members(layer: Layer, extents: Extents) -> Iterator[MappedPart]:
    """Yield each member's part of the bytes, for an array without parity. Yield nothing if the layout is
    unknown."""
    array = layer.facts_as(MdFacts)
    names, offsets = array.members or (), array.data_offsets or ()
    for slot, part in arrays.map_by_slot(array, extents):
        if slot < min(len(names), len(offsets)) and names[slot] in layer.below:
            yield MappedPart(names[slot], part.shift_by(offsets[slot]))


# --- losses ---


def _count_stripe_bytes(trim: LayerTrim) -> int:
    """Return the data bytes of the whole stripes discarded on the members of a RAID 4, 5 or 6. Return 0 if
    the members got different amounts, which whole stripes cannot explain."""
    array = find_array(trim.layer)
    disks = (array and array.raid_disks) or 0
    parity = PARITY[find_level(trim.layer) or ""]
    # Spares, failed members and members without discard support get nothing.
    absent = (array.degraded or 0 if array else 0) + len(_find_unsupported_members(trim))
    most = max(trim.members.values(), default=0)
    alike = sum(got == most for got in trim.members.values() if got)
    if not disks - absent - _count_failed_members(trim) <= alike <= disks - absent:
        return 0
    return most * (disks - parity)


def _count_failed_members(trim: LayerTrim) -> int:
    """Return the number of members that failed during the trim. Such members got only the earlier
    discards."""
    states = [array for state in (trim.layer, trim.later) if (array := find_array(state))]
    missing = [array.degraded or 0 for array in states]
    return max(0, missing[-1] - missing[0]) if missing else 0


def _count_kept_bytes(trim: LayerTrim, stripes: int) -> int:
    """Return the data bytes on members without discard support. Every member holds an equal share, because
    parity rotates over the members."""
    array = find_array(trim.layer)
    disks = array.raid_disks if array else None
    return stripes * len(_find_unsupported_members(trim)) // disks if disks else 0


def _count_missed_bytes(trim: LayerTrim, stripes: int) -> int:
    """Return the data bytes not sent to members after they failed during the trim."""
    array = find_array(trim.layer)
    disks = array.raid_disks if array else None
    if not disks or not stripes or not _count_failed_members(trim):
        return 0
    most, without = max(trim.members.values()), _find_unsupported_members(trim)
    missed = sum(most - got for name, got in trim.members.items() if name not in without)
    return stripes * missed // (disks * most)


def _find_unsupported_members(trim: LayerTrim) -> list[str]:
    """Return the members without discard support, which got nothing."""
    known = {name: trim.before.find_layer(name) for name, got in trim.members.items() if not got}
    return [name for name, member in known.items() if member and member.limits.can_discard is False]


def _explain_stripes(trim: LayerTrim, lost: int) -> Iterator[Reason]:
    """Yield why the members of a parity array got fewer bytes than the array."""
    stripes = _count_stripe_bytes(trim)
    if not stripes and any(trim.members.values()):
        return
    without = _find_unsupported_members(trim) if stripes else []
    kept = _count_kept_bytes(trim, stripes)
    for place, name in enumerate(without):
        share = kept * (place + 1) // len(without) - kept * place // len(without)
        yield _explain_unsupported_member(name, trim, share)
    missed = _count_missed_bytes(trim, stripes)
    if missed:
        yield _explain_missing_member(trim, missed)
    if rest := lost - kept - missed:
        observed = f"{rest} B are outside whole stripes"
        yield make_reason("raid456-partial-stripe", trim.layer.device, observed, rest)


def _explain_missing_member(trim: LayerTrim, share: int) -> Reason:
    """Return the reason for missing or failed members, with their share of the loss."""
    array = find_array(trim.later) or find_array(trim.layer)
    filesystem = trim.before.filesystem
    blanks = {"mount": filesystem.point} if filesystem else {}
    observed = f"{array.degraded} of {array.raid_disks} members are missing" if array else ""
    return make_reason("member-missing", trim.layer.device, observed, share, **blanks)


def _explain_unsupported_member(name: str, trim: LayerTrim, share: int) -> Reason:
    """Return the reason for a member without discard support, with its share of the loss."""
    observed = f"{name} accepts no discards and received 0 B of {trim.arrived_bytes} B"
    return make_reason("member-no-discards", name, observed, share, disk=name)
