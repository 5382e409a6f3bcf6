"""Model of the layers: where each layer sends a discard, and why a layer may keep a range.

Prediction and audit share the model, so that predicted and observed losses get the same cause. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from opwatch.trim.stack.causes import Reason, make_reason
from opwatch.trim.stack.dmtable import DmTarget, parse_block_bytes
from opwatch.trim.stack.facts import (
    PARITY,
    ArrayFacts,
    DmFacts,
    LoopFacts,
    MdFacts,
    PartitionFacts,
    ThinPoolFacts,
    stripe_bytes,
)
from opwatch.trim.stack.layers import Kind, Layer, Stack

RAID456 = tuple(PARITY)
_SECTOR = 512
# Targets with auxiliary devices: index of the argument with the device to which discards go.
DISCARD_DEVICE_ARGUMENT = {
    "thin-pool": 1,
    "cache": 2,
    "clone": 1,
    "era": 1,
    "writecache": 1,
    "snapshot": 0,
    "log-writes": 0,
}


@dataclass(frozen=True, slots=True)
class RetentionCause:
    """A cause for which a layer does not pass discards on. `words` are the evidence. `whole` is true if the
    layer keeps every byte, `fails` if the discard ends with an error, `varies` if the amount cannot be
    predicted."""

    code: str
    where: str
    words: str
    blanks: Mapping[str, str] = field(default_factory=dict)
    whole: bool = True
    fails: bool = False
    varies: bool = False

    def make_predicted_reason(self) -> Reason:
        """Return the reason to report before a trim."""
        return make_reason(self.code, self.where, self.words, None, **self.blanks)

    def make_observed_reason(self, lost_bytes: int) -> Reason:
        """Return the reason to report after a trim in which the layer kept `lost_bytes`."""
        return make_reason(
            self.code,
            self.where,
            f"{lost_bytes} B were not passed on: {self.words}",
            lost_bytes,
            **self.blanks,
        )


def find_receivers(stack: Stack, layer: Layer) -> list[Layer]:
    """Return the layers that receive `layer`'s discards: a thin pool's data device, a cache's origin, an
    array's members without the journal."""
    lowers = stack.find_lower_layers(layer)
    members = layer.facts_as(MdFacts).members
    if members or any(lower.facts.bcache_discard is not None for lower in lowers):
        # Only a bcache cache device has the attribute.
        return [
            lower
            for lower in lowers
            if (not members or lower.device in members) and lower.facts.bcache_discard is None
        ] or lowers
    place = DISCARD_DEVICE_ARGUMENT.get(layer.target or "")
    if place is None or not layer.table or len(layer.table[0].arguments) <= place:
        return lowers
    dev = layer.table[0].arguments[place]
    return [lower for lower in lowers if lower.dev == dev] or lowers


def find_all_receivers(stack: Stack, layer: Layer) -> Iterator[Layer]:
    """Yield all layers below that receive `layer`'s discards, directly or through other layers."""
    for lower in find_receivers(stack, layer):
        yield lower
        yield from find_all_receivers(stack, lower)


def find_unsupported_layers(stack: Stack, layer: Layer) -> list[Layer]:
    """Return the layers below `layer` on the discard path without support for discards."""
    return [lower for lower in find_receivers(stack, layer) if lower.limits.can_discard is False]


def find_target_disks(stack: Stack) -> list[Layer]:
    """Return the disks at the end of the discard path, without purely auxiliary devices."""
    names: set[str] = set()
    waiting = stack.find_tops()
    while waiting:
        layer = waiting.pop()
        names.add(layer.device)
        waiting += [lower for lower in find_receivers(stack, layer) if lower.device not in names]
    return [leaf for leaf in stack.find_leaves() if leaf.device in names]


def find_lower_operation(layer: Layer) -> str:
    """Return the operation sent down for a discard. A loop device on a block device writes zeroes."""
    return "write_zeroes" if layer.kind is Kind.LOOP else "discard"


def is_zeroing(layer: Layer) -> bool:
    """Return True if the layer sends zero writes down, which may or may not free space."""
    return layer.facts_as(LoopFacts).backing_is_device is True


def count_copies(layer: Layer, members: int) -> int:
    """Return the number of devices that hold each byte of a complete array."""
    array = layer.array
    if array and array.level == "raid1":
        return array.raid_disks or members
    if array and array.level == "raid10":
        near, far = _count_near_and_far(array)
        return near * far
    return 1


def count_mirrors(layer: Layer) -> int:
    """Return how many RAID 10 members together can mirror a single member: 1 if near copies fill the members
    evenly, else as many as there are copies."""
    array = layer.array
    if array is None:
        return 1
    near, far = _count_near_and_far(array)
    return 1 if far == 1 and not (array.raid_disks or near) % near else near * far


def _count_near_and_far(array: ArrayFacts) -> tuple[int, int]:
    layout = array.layout
    return (2, 1) if not layout else (layout & 0xFF or 1, layout >> 8 & 0xFF or 1)


def find_retentions(stack: Stack, layer: Layer) -> list[RetentionCause]:
    """Return every cause for which the layer keeps discards, as far as its table and status show."""
    if layer.kind is Kind.THIN:
        # A discard that fails below the pool did pass the pool.
        return [
            kept
            for lower in stack.find_lower_layers(layer)
            for kept in find_retentions(stack, lower)
            if not kept.fails
        ]
    if layer.kind is Kind.THIN_POOL:
        return list(_find_pool_retentions(stack, layer))
    if layer.kind is Kind.LOOP and is_zeroing(layer):
        file = layer.facts_as(LoopFacts).backing_file or layer.device
        words = f"it uses {file}, which receives zero writes instead of discards"
        return [RetentionCause("loop-on-device", layer.device, words, {"file": file})]
    return [
        *_find_target_retentions(layer),
        *_find_failing_targets(layer),
        *_find_lower_retentions(stack, layer),
        *_find_path_retentions(stack, layer),
        *_find_block_retentions(stack, layer),
        *_find_stripe_retentions(layer),
    ]


def _find_pool_retentions(stack: Stack, layer: Layer) -> Iterator[RetentionCause]:
    facts, blanks = layer.facts_as(ThinPoolFacts), {"pool": layer.label or layer.device}
    if (facts.mode and not facts.mode.is_writable) or facts.needs_check:
        words = f"its status is {facts.mode}" + (" needs_check" if facts.needs_check else "")
        yield RetentionCause("thin-pool-read-only", layer.device, words, blanks)
    for word, code in (
        ("no_discard_passdown", "thin-no-passdown"),
        ("ignore_discard", "thin-ignores-discard"),
    ):
        if facts.has_word(word):
            yield RetentionCause(code, layer.device, f"its table or status has {word}", blanks)
    # The pool read the data device's limit when loading its table, and still sends discards, which now fail.
    for lower in find_unsupported_layers(stack, layer):
        words = f"discard_max_bytes is 0 on {lower.device} and not on {layer.device}"
        yield RetentionCause("thin-no-passdown", layer.device, words, blanks, fails=True)


def _find_target_retentions(layer: Layer) -> Iterator[RetentionCause]:
    target, facts = layer.target or "", layer.facts_as(DmFacts)
    blanks = {"label": layer.label or layer.device}
    if facts.has_flag("no_discard_passdown"):
        yield RetentionCause(
            "cache-no-passdown", layer.device, "its table or status has no_discard_passdown", blanks
        )
    if target.startswith("snapshot") and not facts.has_flag("discard_passdown_origin"):
        yield RetentionCause("snapshot-swallows", layer.device, f"target {target}", blanks)
    if target == "vdo":
        yield RetentionCause("vdo-keeps", layer.device, "target vdo", blanks)


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


def _find_lower_retentions(stack: Stack, layer: Layer) -> Iterator[RetentionCause]:
    """Yield devices below without discard support, although the layer still offers discards. The kernel ends
    such discards before any event: with an error in 6.1, silently in 6.12. Arrays handle the case."""
    if layer.is_array or layer.kind in (Kind.PARTITION, Kind.THIN_POOL) or not layer.limits.can_discard:
        return
    without = [lower.device for lower in find_unsupported_layers(stack, layer)]
    for name in without:
        words = f"discard_max_bytes is 0 on {name} and not on {layer.device}"
        if len(without) == len(find_receivers(stack, layer)):
            yield RetentionCause("limit-zero", name, words, {"device": name}, fails=True)
        else:
            yield RetentionCause("member-no-discards", name, words, {"disk": name}, whole=False, fails=True)


def find_short_paths(stack: Stack) -> Iterator[RetentionCause]:
    """Yield multipath paths that the first long discard fails."""
    for layer in stack.layers:
        yield from _find_path_retentions(stack, layer)


def _find_path_retentions(stack: Stack, layer: Layer) -> Iterator[RetentionCause]:
    """Yield paths whose discard limit is below multipath's. Multipath clones requests, and no code splits a
    clone: the first discard above the limit fails the path."""
    most = layer.limits.max_bytes
    if layer.target != "multipath" or not layer.table or "bio" in layer.table[0].arguments or not most:
        return
    for lower in find_receivers(stack, layer):
        if lower.limits.max_bytes and lower.limits.max_bytes < most:
            short = lower.limits.max_bytes
            words = f"discard_max_bytes is {short} on {lower.device} and {most} on {layer.device}"
            yield RetentionCause(
                "limit-shorter",
                lower.device,
                words,
                {"device": lower.device},
                whole=False,
                fails=True,
                varies=True,
            )


def _find_block_retentions(stack: Stack, layer: Layer) -> Iterator[RetentionCause]:
    """Yield a target that rejects requests not aligned to its blocks, if granules below start within a block:
    the kernel splits long discards there (bio_split_discard)."""
    block = max(map(parse_block_bytes, layer.table), default=1)
    place = _describe_misaligned(stack, layer, block) if block > _SECTOR else None
    if place and layer.limits.can_discard:
        words = f"its block size is {block} B, and {place}"
        blanks = {"label": layer.label or layer.device}
        yield RetentionCause("block-cut", layer.device, words, blanks, whole=False, fails=True, varies=True)


def _describe_misaligned(stack: Stack, layer: Layer, block: int) -> str | None:
    """Describe a lower layer with larger granules and a start within a block, in the kernel's offsets; None
    if all are aligned."""
    for lower in find_receivers(stack, layer):
        begins = [place[1] * _SECTOR for target in lower.table if (place := target.mapped_device)]
        begins.append(lower.facts_as(PartitionFacts).start_bytes or 0)
        is_coarse = any((below.limits.granularity or 0) > _SECTOR for below in find_receivers(stack, lower))
        if is_coarse and (odd := next((begin for begin in begins if begin % block), None)):
            return f"{lower.device} starts at {odd} B of the device below it"
        if odd_below := _describe_misaligned(stack, lower, block):
            return odd_below
    return None


def _find_stripe_retentions(layer: Layer) -> Iterator[RetentionCause]:
    """Yield a device-mapper RAID whose members limit discards to less than a stripe: no discard covers a
    whole stripe."""
    stripe = stripe_bytes(layer.array) if layer.array else None
    most = layer.limits.max_bytes
    if stripe and most and most < stripe:
        words = f"discards of at most {most} B contain no whole stripe of {stripe} B"
        yield RetentionCause("raid456-partial-stripe", layer.device, words)


def _describe_failing_target(target: DmTarget) -> str | None:
    """Return the words of a target that fails requests deliberately; None for other targets."""
    if target.kind == "flakey" and len(target.arguments) > 3:
        return None if target.arguments[3] == "0" else f"flakey, {target.arguments[3]} s failure interval"
    return target.kind if target.kind in ("error", "dust") else None
