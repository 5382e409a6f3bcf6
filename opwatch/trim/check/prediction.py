"""Predict the result of a filesystem trim or a device discard: how far it gets, how many bytes are freed,
which layer stops it, and what remains unknown. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from opwatch.trim.check.dry_run import DevicePrediction, predict_devices
from opwatch.trim.check.filesystem_rules import find_filesystem_reasons, find_refusal
from opwatch.trim.check.freed_bytes import SECTOR, FreedByteCounter
from opwatch.trim.check.rules import find_reasons
from opwatch.trim.check.shared import SharedBlocks, find_shared_blocks
from opwatch.trim.filesystems.kinds import find_filesystem
from opwatch.trim.layers.arrays import find_array, find_stripe_bytes
from opwatch.trim.layers.discard_path import find_all_receivers, find_receivers, find_retentions
from opwatch.trim.layers.disk import DiskFacts
from opwatch.trim.layers.kinds import find_granule, find_kind
from opwatch.trim.space.extents import Extents
from opwatch.trim.stack.causes import Effect, Reason
from opwatch.trim.stack.causes import make_reason as because
from opwatch.trim.stack.layers import Layer, Stack
from opwatch.units import format_size


class Outlook(enum.StrEnum):
    """Predicted result: all, a part or nothing reaches the disks."""

    REACHES = "reaches"
    PART = "part"
    NOTHING = "nothing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FreeExtents:
    """Free extents by major:minor, or None with the reason in `why_not`. `notes` describe space missing from
    the extents. `free_bytes` is statfs's count. `cuts` is (size, offset) of borders that no discard crosses.
    `deleted` is (bytes, words) of deleted files still held open. `shared` are extents of loop devices in
    blocks shared with other files, by device."""

    extents: Mapping[str, Extents] | None = None
    why_not: str | None = None
    notes: tuple[str, ...] = ()
    free_bytes: int | None = None
    cuts: tuple[int, int] | None = None
    deleted: tuple[int, str] | None = None
    shared: Mapping[str, Extents] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prediction:
    """Prediction of a trim. `accepted` is True if FITRIM or the discard will return success, None if unknown.
    `runs` is the dry run, empty if `why_no_runs` is set."""

    outlook: Outlook
    accepted: bool | None
    reasons: tuple[Reason, ...]
    unknowable: tuple[str, ...]
    runs: tuple[DevicePrediction, ...] = ()
    why_no_runs: str | None = None
    free_bytes: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def stopped_at(self) -> str | None:
        """The device or mount where the trim stops, or None."""
        return next((reason.where for reason in self.reasons if reason.cause.effect is Effect.STOPS), None)

    @property
    def expected_bytes(self) -> int | None:
        """The bytes to be freed on the drive; 0 if nothing arrives, None without a dry run."""
        if self.outlook is Outlook.NOTHING:
            return 0
        return sum(run.expected_bytes for run in self.runs) if self.runs else None

    @property
    def is_upper_bound(self) -> bool:
        """True if fewer bytes than expected may be freed, because of the unknowns."""
        return bool(self.unknowable)

    def to_document(self) -> dict[str, Any]:
        """The document for --json."""
        return {
            "outlook": self.outlook.value,
            "accepted": self.accepted,
            "stopped_at": self.stopped_at,
            "expected_bytes": self.expected_bytes,
            "expected_is_upper_bound": self.is_upper_bound if self.expected_bytes is not None else None,
            "free_bytes": self.free_bytes,
            "dry_run": [asdict(run) | {"sent_bytes": run.sent_bytes} for run in self.runs] or None,
            "dry_run_reason": self.why_no_runs,
            "notes": list(self.notes),
            "reasons": [reason.to_document() for reason in self.reasons],
            "unknowable": list(self.unknowable),
        }


class _StackWalk:
    """Computes how far discards get below each layer, once per layer."""

    def __init__(self, stack: Stack, space: FreeExtents | None) -> None:
        self._stack = stack
        self.reasons = {layer.device: find_reasons(stack, layer) for layer in stack.layers}
        self.broken_units = tuple(_find_broken_chunks(stack))
        self.stray_cuts = tuple(_find_harmful_cuts(stack, space))
        self.scattered: list[str] = []
        self._reach: dict[str, Outlook] = {}

    def find_outlook(self, layer: Layer) -> Outlook:
        if layer.device not in self._reach:
            outlook = self._compute_outlook(layer)
            scattered = find_kind(layer).describe_scatter(layer)
            if outlook is Outlook.PART and scattered:
                self.scattered.append(scattered)
                outlook = Outlook.UNKNOWN
            self._reach[layer.device] = outlook
        return self._reach[layer.device]

    def list_doubts(self) -> list[str]:
        """Return the unknowns of the layers walked so far."""
        return [*self.broken_units, *self.stray_cuts, *self.scattered]

    def _compute_outlook(self, layer: Layer) -> Outlook:
        if any(reason.cause.effect is Effect.STOPS for reason in self.reasons[layer.device]):
            return Outlook.NOTHING
        if find_kind(layer).is_zeroing(layer):
            return Outlook.UNKNOWN
        kept = find_retentions(self._stack, layer)
        if any(one.whole for one in kept):
            return Outlook.NOTHING
        below = [self.find_outlook(lower) for lower in find_receivers(self._stack, layer)]
        if layer.limits.can_discard is False:
            return Outlook.NOTHING
        if layer.limits.can_discard is None and not below:
            return Outlook.UNKNOWN
        if any(one.varies for one in kept):
            return Outlook.UNKNOWN
        if kept:
            return combine_outlooks([*below, Outlook.NOTHING])
        return combine_outlooks(below) if below else Outlook.REACHES


def combine_outlooks(outlooks: Sequence[Outlook]) -> Outlook:
    """Combine the outlooks of devices at the same level."""
    kinds = set(outlooks)
    if len(kinds) == 1:
        return kinds.pop()
    if kinds & {Outlook.NOTHING, Outlook.PART}:
        return Outlook.PART
    return Outlook.UNKNOWN


def _device_losses(stack: Stack, runs: Sequence[DevicePrediction]) -> list[Reason]:
    """Return the losses in a dry run, with their bytes."""
    losses = []
    for run in runs:
        if run.below_minimum_bytes:
            observed = (
                f"{format_size(run.below_minimum_bytes)} in extents shorter than "
                f"{format_size(run.minimum_bytes)}"
            )
            losses.append(because("below-minimum", run.device, observed, run.below_minimum_bytes))
        if run.rounded_bytes:
            observed = (
                f"{format_size(run.rounded_bytes)} at the ends of ranges, in units of "
                f"{format_size(run.granule_bytes)}"
            )
            bottom = _find_rounding_layer(stack, run.device)
            kind = find_kind(bottom)
            losses.append(kind.explain_rounding(bottom, run.device, observed, run.rounded_bytes))
    return losses


def _find_rounding_layer(stack: Stack, device: str) -> Layer:
    """Return the layer that determines a device's granularity: the first below partitions, dm-crypt and
    linear mappings."""
    layer = stack.find_layer(device)
    assert layer
    while find_kind(layer).has_lower_granules:
        below = stack.find_lower_layers(layer)
        if len(below) != 1:
            break
        [layer] = below
    return layer


def _find_open_deleted(stack: Stack, space: FreeExtents | None) -> list[Reason]:
    """Return a reason for deleted files whose space stays allocated while a process holds them open."""
    if not stack.filesystem or not space or not space.deleted:
        return []
    lost, words = space.deleted
    return [because("not-free-yet", stack.filesystem.point, words, lost)]


def _find_unpartitioned(stack: Stack) -> list[Reason]:
    """Return a reason for unpartitioned space on each leaf disk."""
    reasons = []
    for leaf in stack.find_leaves():
        bare = leaf.facts_as(DiskFacts).unpartitioned_bytes
        # Alignment and the partition table itself take a few MiB.
        if bare is not None and bare > 16 << 20:
            observed = f"{format_size(bare)} of {leaf.device} is in no partition"
            reasons.append(because("outside-filesystems", leaf.device, observed, bare, disk=leaf.device))
    return reasons


def _list_permanent_doubts(stack: Stack) -> list[str]:
    """Return the unknowns that only a trace or a sample of the drive can settle, whatever the layers
    report."""
    filesystem = stack.filesystem
    if not filesystem:
        return []
    doubts = find_filesystem(filesystem.kind).find_doubts(filesystem)
    if granules := _find_unmapped_granule(stack):
        of_kind = f"the free space of {filesystem.kind}"
        doubts.append(f"how much of {of_kind} is outside whole granules of {format_size(granules)}")
    return doubts


def _find_unmapped_granule(stack: Stack) -> int | None:
    """Return the largest granule below a filesystem without a free-space map, where the freed bytes cannot be
    predicted. None for other filesystems and for single-sector granules."""
    if not stack.filesystem or not find_filesystem(stack.filesystem.kind).is_unmapped:
        return None
    largest = max((FreedByteCounter(stack, top).granule_bytes for top in stack.find_tops()), default=0)
    return largest if largest > SECTOR else None


def _find_broken_chunks(stack: Stack) -> Iterator[str]:
    """Yield doubts about thin pools whose chunks, if scattered, contain no whole granule of a lower layer."""
    for pool in stack.layers:
        chunk = find_kind(pool).find_chunk_bytes(pool)
        for lower in find_all_receivers(stack, pool) if chunk else ():
            whole = find_granule(lower) if find_array(lower) or not lower.below else None
            unit = whole[0] if whole else 0
            if chunk and unit and chunk % unit and chunk < 2 * unit:
                chunks = f"which adjacent chunks of {format_size(chunk)} {pool.device} frees"
                yield f"{chunks}: a single one contains no whole {format_size(unit)} of {lower.device}"


def _find_harmful_cuts(stack: Stack, space: FreeExtents | None) -> Iterator[str]:
    """Yield doubts about layers that may cut free extents within a disk's granules."""
    extents = (space and space.extents) or {}
    if any(find_stripe_bytes(layer) for layer in stack.layers):
        return  # FreedByteCounter computes the cuts of striped arrays
    for top in stack.find_tops():
        longest = max((end - start for start, end in extents.get(top.dev, ())), default=0)
        for layer in (top, *find_all_receivers(stack, top)):
            most = layer.limits.max_bytes or longest
            if most < longest and FreedByteCounter(stack, layer).can_split_granules():
                cuts = f"{layer.device} splits discards longer than {format_size(most)}"
                yield f"how much of long discards is freed: {cuts} inside its disk's granules"


def _is_accepted(stack: Stack) -> bool | None:
    """Return True if FITRIM, or the device discard, will succeed; None if unknown."""
    if stack.filesystem and find_refusal(stack):
        return False
    offers = [top.limits.can_discard for top in stack.find_tops()]
    if all(offer is False for offer in offers):
        return False
    return None if None in offers else True


def _find_stack_outlook(stack: Stack, walk: _StackWalk, first: Sequence[Reason]) -> Outlook:
    if any(why.cause.effect is Effect.STOPS for why in first):
        return Outlook.NOTHING
    tops = stack.find_tops()
    if not tops:
        return Outlook.UNKNOWN
    outlook = combine_outlooks([walk.find_outlook(top) for top in tops])
    in_doubt = stack.filesystem and (
        find_filesystem(stack.filesystem.kind).is_user_space or _find_unmapped_granule(stack)
    )
    is_doubtful = bool(in_doubt or walk.broken_units or walk.stray_cuts)
    return Outlook.UNKNOWN if outlook is Outlook.REACHES and is_doubtful else outlook


def _is_all_too_short(stack: Stack, walk: _StackWalk, runs: Sequence[DevicePrediction]) -> bool:
    """Return True if all free extents are below the minimum. The success of the call is then unknown, because
    ext4 and XFS refuse a minimum above their group size."""
    arriving = {top.device for top in stack.find_tops() if walk.find_outlook(top) in _ARRIVES}
    sent = {run.device: run.sent_bytes for run in runs if run.device in arriving}
    return sent.keys() == arriving and not any(sent.values()) and any(run.below_minimum_bytes for run in runs)


def _sort_reasons(reasons: Sequence[Reason]) -> tuple[Reason, ...]:
    """Return the reasons without duplicates, worst first, then in the order of the discard's path."""
    by_place: dict[tuple[str, str], Reason] = {}
    for why in reasons:
        by_place.setdefault((why.code, why.where), why)
    ranks = list(Effect)
    return tuple(sorted(by_place.values(), key=lambda why: ranks.index(why.cause.effect)))


def _can_be_unmapped(stack: Stack, layer: Layer, expected_bytes: int) -> bool:
    """Return True if every path leads through a thin volume on which the freed range may be unmapped. The
    discard then ends in that volume."""
    mapped = find_kind(layer).find_mapped_bytes(layer)
    if mapped is not None and mapped <= layer.size_bytes - expected_bytes:
        return True
    below = find_receivers(stack, layer)
    return bool(below) and all(_can_be_unmapped(stack, lower, expected_bytes) for lower in below)


def _correct_outlook(stack: Stack, outlook: Outlook, shared: SharedBlocks) -> Outlook:
    """Return the outlook corrected for ends of ranges and for blocks shared with other files.

    Discards of these complete without freeing space, and an audit then reports PARTIAL. An audit does not
    report PARTIAL if nothing arrives at the disks."""
    if outlook not in (Outlook.REACHES, Outlook.PART):
        return outlook
    if shared.lost_bytes and shared.lost_bytes == shared.arriving_bytes:
        return Outlook.NOTHING
    if any(run.rounded_bytes for run in shared.runs) and not any(run.expected_bytes for run in shared.runs):
        # The cuts of arrays and dm-integrity are modeled closely, but not exactly to the byte.
        return Outlook.UNKNOWN
    if outlook is Outlook.PART or shared.lost_bytes or any(run.rounded_bytes for run in shared.runs):
        expected = sum(run.expected_bytes for run in shared.runs)
        is_unmapped = all(_can_be_unmapped(stack, top, expected) for top in stack.find_tops())
        return Outlook.UNKNOWN if is_unmapped else Outlook.PART
    return Outlook.UNKNOWN if shared.lost_bytes is None and outlook is Outlook.REACHES else outlook


def predict_trim(
    stack: Stack,
    space: FreeExtents | None = None,
    *,
    minimum_bytes: int = 0,
    fstab_options: Sequence[str] = (),
) -> Prediction:
    """Predict FITRIM with this minimum length on the stack's filesystem or, without a filesystem, a discard
    of the whole device. `fstab_options` are the mount's options in fstab."""
    walk = _StackWalk(stack, space)
    first = find_filesystem_reasons(stack, fstab_options)
    outlook = _find_stack_outlook(stack, walk, first)
    runs: list[DevicePrediction] = []
    why = "there is no filesystem" if not stack.filesystem else None
    if space and space.extents is not None and stack.filesystem:
        runs = predict_devices(stack, space.extents, minimum_bytes, space.cuts)
    elif stack.filesystem:
        why = space.why_not if space else "its free space was not read"
    arriving = [
        run for run in runs if (top := stack.find_layer(run.device)) and walk.find_outlook(top) in _ARRIVES
    ]
    shared = find_shared_blocks(
        stack, arriving, (space and space.extents) or {}, space.shared if space else {}
    )
    below = [reason for layer in stack.layers for reason in walk.reasons[layer.device]]
    # Losses with known bytes come first, because _sort_reasons() keeps the first duplicate.
    reasons = [
        *first,
        *_device_losses(stack, arriving),
        *below,
        *_find_open_deleted(stack, space),
        *_find_unpartitioned(stack),
    ]
    reasons += shared.reasons
    doubts = [
        *walk.list_doubts(),
        *(doubt for layer in stack.layers for doubt in find_kind(layer).find_doubts(layer)),
    ]
    too_short = outlook is not Outlook.NOTHING and _is_all_too_short(stack, walk, runs)
    outlook = Outlook.NOTHING if too_short else _correct_outlook(stack, outlook, shared)
    reaches = outlook is not Outlook.NOTHING
    return Prediction(
        outlook=outlook,
        accepted=None if too_short else _is_accepted(stack),
        reasons=_sort_reasons(reasons),
        unknowable=tuple(dict.fromkeys([*doubts, *_list_permanent_doubts(stack)])) if reaches else (),
        runs=shared.runs,
        why_no_runs=why,
        free_bytes=space.free_bytes if space else None,
        notes=space.notes if space else (),
    )


_ARRIVES = (Outlook.REACHES, Outlook.PART, Outlook.UNKNOWN)
