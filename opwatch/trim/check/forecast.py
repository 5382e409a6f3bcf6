"""Predict the result of a filesystem trim or a device discard: how far it gets, how many bytes are freed,
which layer stops it, and what remains unknown. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from opwatch.trim.check.dryrun import DeviceRun, dry_run
from opwatch.trim.check.ends import SECTOR, Ends
from opwatch.trim.check.filesystem_rules import (
    BY_A_PROGRAM,
    WITHOUT_A_MAP,
    reasons_of_filesystem,
    refused,
)
from opwatch.trim.check.rules import doubts_of, reasons_of
from opwatch.trim.check.shared import SharedBlocks, shared_blocks
from opwatch.trim.space.extents import Extents
from opwatch.trim.stack.causes import Effect, Reason
from opwatch.trim.stack.causes import reason as because
from opwatch.trim.stack.facts import DiskFacts, LoopFacts, ThinFacts, ThinPoolFacts, stripe_bytes
from opwatch.trim.stack.layers import Kind, Layer, Stack
from opwatch.trim.stack.passage import all_lower_of, is_zeroing, keeps, lower_of
from opwatch.units import size


class Outlook(enum.StrEnum):
    """Predicted result: all, a part or nothing reaches the disks."""

    REACHES = "reaches"
    PART = "part"
    NOTHING = "nothing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Space:
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
class Forecast:
    """Prediction of a trim. `accepted` is True if FITRIM or the discard will return success, None if unknown.
    `runs` is the dry run, empty if `why_no_runs` is set."""

    outlook: Outlook
    accepted: bool | None
    reasons: tuple[Reason, ...]
    unknowable: tuple[str, ...]
    runs: tuple[DeviceRun, ...] = ()
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

    def document(self) -> dict[str, Any]:
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
            "reasons": [reason.document() for reason in self.reasons],
            "unknowable": list(self.unknowable),
        }


class _Walk:
    """Computes how far discards get below each layer, once per layer."""

    def __init__(self, stack: Stack, space: Space | None) -> None:
        self._stack = stack
        self.reasons = {layer.device: reasons_of(stack, layer) for layer in stack.layers}
        self.broken_units = tuple(_broken_units(stack))
        self.stray_cuts = tuple(_stray_cuts(stack, space))
        self.scattered: list[str] = []
        self._reach: dict[str, Outlook] = {}

    def reach(self, layer: Layer) -> Outlook:
        if layer.device not in self._reach:
            outlook = self._find(layer)
            if outlook is Outlook.PART and layer.kind is Kind.THIN_POOL:
                # Any share of the pool's chunks may be on devices with discard support.
                chunks = f"which chunks of {layer.device} lie where discards go on"
                self.scattered.append(f"{chunks}: some of what is below takes none")
                outlook = Outlook.UNKNOWN
            self._reach[layer.device] = outlook
        return self._reach[layer.device]

    def doubts(self) -> list[str]:
        """Return the unknowns of the layers walked so far."""
        return [*self.broken_units, *self.stray_cuts, *self.scattered]

    def _find(self, layer: Layer) -> Outlook:
        if any(reason.cause.effect is Effect.STOPS for reason in self.reasons[layer.device]):
            return Outlook.NOTHING
        if is_zeroing(layer):
            return Outlook.UNKNOWN
        kept = keeps(self._stack, layer)
        if any(one.whole for one in kept):
            return Outlook.NOTHING
        below = [self.reach(lower) for lower in lower_of(self._stack, layer)]
        if layer.limits.offered is False:
            return Outlook.NOTHING
        if layer.limits.offered is None and not below:
            return Outlook.UNKNOWN
        if any(one.varies for one in kept):
            return Outlook.UNKNOWN
        if kept:
            return together([*below, Outlook.NOTHING])
        return together(below) if below else Outlook.REACHES


def together(outlooks: Sequence[Outlook]) -> Outlook:
    """Combine the outlooks of devices at the same level."""
    kinds = set(outlooks)
    if len(kinds) == 1:
        return kinds.pop()
    if kinds & {Outlook.NOTHING, Outlook.PART}:
        return Outlook.PART
    return Outlook.UNKNOWN


def _device_losses(stack: Stack, runs: Sequence[DeviceRun]) -> list[Reason]:
    """Return the losses in a dry run, with their bytes."""
    losses = []
    for run in runs:
        if run.below_minimum_bytes:
            observed = f"{size(run.below_minimum_bytes)} in extents shorter than {size(run.minimum_bytes)}"
            losses.append(because("below-minimum", run.device, observed, run.below_minimum_bytes))
        if run.rounded_bytes:
            observed = (
                f"{size(run.rounded_bytes)} at the ends of ranges, in units of {size(run.granule_bytes)}"
            )
            bottom = _rounding(stack, run.device)
            loop = bottom.facts_as(LoopFacts)
            code, blanks = "device-rounds", {"device": run.device}
            if bottom.array and stripe_bytes(bottom.array):
                code, blanks = "raid456-partial-stripe", {}
            elif bottom.kind is Kind.THIN:
                code = "thin-partial-chunk"
            elif bottom.kind is Kind.LOOP and not loop.simulated_drive:
                code, blanks = "loop-partial-block", {"file": loop.backing_file or "its file"}
            where = bottom.device if bottom.is_array else run.device
            losses.append(because(code, where, observed, run.rounded_bytes, **blanks))
    return losses


def _rounding(stack: Stack, device: str) -> Layer:
    """Return the layer that determines a device's granularity: the first below partitions, dm-crypt and
    linear mappings."""
    layer = stack.layer(device)
    assert layer
    while layer.kind in (Kind.PARTITION, Kind.CRYPT) or layer.target == "linear":
        below = stack.below(layer)
        if len(below) != 1:
            break
        [layer] = below
    return layer


def _not_free(stack: Stack, space: Space | None) -> list[Reason]:
    """Return a reason for deleted files whose space stays allocated while a process holds them open."""
    if not stack.filesystem or not space or not space.deleted:
        return []
    lost, words = space.deleted
    return [because("not-free-yet", stack.filesystem.point, words, lost)]


def _outside(stack: Stack) -> list[Reason]:
    """Return a reason for unpartitioned space on each leaf disk."""
    reasons = []
    for leaf in stack.leaves():
        bare = leaf.facts_as(DiskFacts).unpartitioned_bytes
        # Alignment and the partition table itself take a few MiB.
        if bare is not None and bare > 16 << 20:
            observed = f"{size(bare)} of {leaf.device} are in no partition"
            reasons.append(because("outside-filesystems", leaf.device, observed, bare, disk=leaf.device))
    return reasons


def _always_unknown(stack: Stack) -> list[str]:
    """Return the unknowns that only a trace or a sample of the drive can settle, whatever the layers
    report."""
    kind = stack.filesystem.kind if stack.filesystem else None
    doubts = []
    if kind == "ext4":
        doubts.append("which block groups ext4 takes for trimmed since the mount (ext4-already-trimmed)")
    elif kind == "btrfs":
        doubts.append("which unallocated space btrfs has trimmed since the mount (filesystem-trims-later)")
        doubts.append("free space in the chunks that btrfs allocates from: it keeps it from a trim meanwhile")
    elif kind in BY_A_PROGRAM:
        doubts.append("whether the program behind FUSE discards when it is asked to")
    elif granules := _unmapped(stack):
        doubts.append(f"how much of the free space of {kind} lies in no whole granule of {size(granules)}")
    elif kind == "xfs":
        doubts.append("whether completions fail: XFS reports success all the same")
        doubts.append(
            "how many of a hundred or more free extents of a group XFS leaves out (xfs-passes-over)"
        )
    return doubts


def _unmapped(stack: Stack) -> int | None:
    """Return the largest granule below a filesystem without a free-space map, where the freed bytes cannot be
    predicted. None for other filesystems and for single-sector granules."""
    if not stack.filesystem or stack.filesystem.kind not in WITHOUT_A_MAP:
        return None
    largest = max((Ends(stack, top).granule_bytes for top in stack.tops()), default=0)
    return largest if largest > SECTOR else None


def _broken_units(stack: Stack) -> Iterator[str]:
    """Yield doubts about thin pools whose chunks, if scattered, contain no whole granule of a lower layer."""
    for pool in stack.layers:
        chunk = pool.facts_as(ThinPoolFacts).chunk_bytes
        for lower in all_lower_of(stack, pool) if chunk else ():
            whole = lower.granule if lower.array or not lower.below else None
            unit = whole[0] if whole else 0
            if chunk and unit and chunk % unit and chunk < 2 * unit:
                chunks = f"which chunks of {size(chunk)} {pool.device} frees side by side"
                yield f"{chunks}: one alone holds no whole {size(unit)} of {lower.device}"


def _stray_cuts(stack: Stack, space: Space | None) -> Iterator[str]:
    """Yield doubts about layers that may cut free extents within a disk's granules."""
    extents = (space and space.extents) or {}
    if any(layer.array and stripe_bytes(layer.array) for layer in stack.layers):
        return  # Ends computes the cuts of striped arrays
    for top in stack.tops():
        longest = max((end - start for start, end in extents.get(top.dev, ())), default=0)
        for layer in (top, *all_lower_of(stack, top)):
            most = layer.limits.max_bytes or longest
            if most < longest and Ends(stack, layer).strays():
                cuts = f"{layer.device} cuts what is longer than {size(most)}"
                yield f"how much of long discards is freed: {cuts} where no granule of its disk begins"


def _accepted(stack: Stack) -> bool | None:
    """Return True if FITRIM, or the device discard, will succeed; None if unknown."""
    if stack.filesystem and refused(stack):
        return False
    offers = [top.limits.offered for top in stack.tops()]
    if all(offer is False for offer in offers):
        return False
    return None if None in offers else True


def _outlook(stack: Stack, walk: _Walk, first: Sequence[Reason]) -> Outlook:
    if any(why.cause.effect is Effect.STOPS for why in first):
        return Outlook.NOTHING
    tops = stack.tops()
    if not tops:
        return Outlook.UNKNOWN
    outlook = together([walk.reach(top) for top in tops])
    in_doubt = stack.filesystem and (stack.filesystem.kind in BY_A_PROGRAM or _unmapped(stack))
    is_doubtful = bool(in_doubt or walk.broken_units or walk.stray_cuts)
    return Outlook.UNKNOWN if outlook is Outlook.REACHES and is_doubtful else outlook


def _all_too_short(stack: Stack, walk: _Walk, runs: Sequence[DeviceRun]) -> bool:
    """Return True if all free extents are below the minimum. The success of the call is then unknown, because
    ext4 and XFS refuse a minimum above their group size."""
    arriving = {top.device for top in stack.tops() if walk.reach(top) in _ARRIVES}
    sent = {run.device: run.sent_bytes for run in runs if run.device in arriving}
    return sent.keys() == arriving and not any(sent.values()) and any(run.below_minimum_bytes for run in runs)


def _in_order(reasons: Sequence[Reason]) -> tuple[Reason, ...]:
    """Return the reasons without duplicates, worst first, then in the order of the discard's path."""
    by_place: dict[tuple[str, str], Reason] = {}
    for why in reasons:
        by_place.setdefault((why.code, why.where), why)
    ranks = list(Effect)
    return tuple(sorted(by_place.values(), key=lambda why: ranks.index(why.cause.effect)))


def _may_be_unmapped(stack: Stack, layer: Layer, expected_bytes: int) -> bool:
    """Return True if every path leads through a thin volume on which the freed range may be unmapped. The
    discard then ends in that volume."""
    mapped = layer.facts_as(ThinFacts).mapped_bytes
    if mapped is not None and mapped <= layer.size_bytes - expected_bytes:
        return True
    below = lower_of(stack, layer)
    return bool(below) and all(_may_be_unmapped(stack, lower, expected_bytes) for lower in below)


def _less_what_stays(stack: Stack, outlook: Outlook, shared: SharedBlocks) -> Outlook:
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
        is_unmapped = all(_may_be_unmapped(stack, top, expected) for top in stack.tops())
        return Outlook.UNKNOWN if is_unmapped else Outlook.PART
    return Outlook.UNKNOWN if shared.lost_bytes is None and outlook is Outlook.REACHES else outlook


def forecast(
    stack: Stack,
    space: Space | None = None,
    *,
    minimum_bytes: int = 0,
    fstab_options: Sequence[str] = (),
) -> Forecast:
    """Predict FITRIM with this minimum length on the stack's filesystem or, without a filesystem, a discard
    of the whole device. `fstab_options` are the mount's options in fstab."""
    walk = _Walk(stack, space)
    first = reasons_of_filesystem(stack, fstab_options)
    outlook = _outlook(stack, walk, first)
    runs: list[DeviceRun] = []
    why = "there is no filesystem" if not stack.filesystem else None
    if space and space.extents is not None and stack.filesystem:
        runs = dry_run(stack, space.extents, minimum_bytes, space.cuts)
    elif stack.filesystem:
        why = space.why_not if space else "its free space was not looked at"
    arriving = [run for run in runs if (top := stack.layer(run.device)) and walk.reach(top) in _ARRIVES]
    shared = shared_blocks(stack, arriving, (space and space.extents) or {}, space.shared if space else {})
    below = [reason for layer in stack.layers for reason in walk.reasons[layer.device]]
    # Losses with known bytes come first, because _in_order() keeps the first duplicate.
    reasons = [*first, *_device_losses(stack, arriving), *below, *_not_free(stack, space), *_outside(stack)]
    reasons += shared.reasons
    doubts = [*walk.doubts(), *(doubt for layer in stack.layers for doubt in doubts_of(layer))]
    too_short = outlook is not Outlook.NOTHING and _all_too_short(stack, walk, runs)
    outlook = Outlook.NOTHING if too_short else _less_what_stays(stack, outlook, shared)
    reaches = outlook is not Outlook.NOTHING
    return Forecast(
        outlook=outlook,
        accepted=None if too_short else _accepted(stack),
        reasons=_in_order(reasons),
        unknowable=tuple(dict.fromkeys([*doubts, *_always_unknown(stack)])) if reaches else (),
        runs=shared.runs,
        why_no_runs=why,
        free_bytes=space.free_bytes if space else None,
        notes=space.notes if space else (),
    )


_ARRIVES = (Outlook.REACHES, Outlook.PART, Outlook.UNKNOWN)
