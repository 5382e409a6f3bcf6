"""Rows of written bytes from the application down to the drives, from two readings. Pure.

A row is an amount that a step adds to what the step above wrote. The rows of the file system and `other` add
up to the kernel's count of its devices, and the rows of the layers to that of the drives.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from opwatch.writes.application import ApplicationWrites
from opwatch.writes.classes import WriteClass
from opwatch.writes.reading import DriveAmplification, Parity, WriteLayer, WritesReading, WriteStack
from opwatch.writes.witnesses import Witness

# A larger share of unclassified bytes is a finding.
MAX_OTHER = 0.01
_MOST_NAMES = 2
_FILE = (WriteClass.DATA, WriteClass.DIRECT)
NO_APPLICATION = "what programs write is not counted"
JBD2 = "jbd2's own count"


class WriteStep(enum.StrEnum):
    APPLICATION = "application"
    PAGE_CACHE = "page cache"
    DATA = "data"
    JOURNAL = "journal"
    METADATA = "metadata"
    NODE = "node blocks"
    SWAP = "swap"
    ZEROES = "zeroes"
    RAW = "other programs"
    OTHER = "other"
    DEVICE = "device"
    LAYER = "layer"
    DRIVES = "drives"
    NAND = "NAND"


# Shown even if nothing was written.
_ALWAYS = frozenset({WriteStep.DATA, WriteStep.JOURNAL, WriteStep.METADATA})
_CLASS_ROWS = {
    WriteStep.DATA: _FILE,
    WriteStep.JOURNAL: (WriteClass.JOURNAL,),
    WriteStep.METADATA: (WriteClass.METADATA,),
    WriteStep.NODE: (WriteClass.NODE,),
    WriteStep.SWAP: (WriteClass.SWAP,),
    WriteStep.ZEROES: (WriteClass.ZEROES,),
    WriteStep.RAW: (WriteClass.RAW,),
}


@dataclass(frozen=True, slots=True)
class WaterfallRow:
    """`added` bytes by this step, and the `total` down to it. None with a `reason` if unknown.

    `application` has the parts of the application's row. `received` and `parity` are those of a layer.
    """

    kind: WriteStep
    name: str
    added: int | None
    total: int | None
    error: int | None = None
    reason: str | None = None
    witness: Witness | None = None
    application: ApplicationWrites | None = None
    received: int | None = None
    parity: Parity | None = None


@dataclass(frozen=True, slots=True)
class Waterfall:
    """The rows. `base` is the row that ratios refer to, or None if nothing was written.

    `commits` are those of jbd2, or None if they are not counted.
    """

    stack: WriteStack
    seconds: float
    rows: Sequence[WaterfallRow]
    base: WaterfallRow | None
    findings: Sequence[str]
    commits: int | None = None

    def compute_ratio(self, row: WaterfallRow) -> float | None:
        """Return the row's total in relation to the base, or None if one of them is unknown."""
        if row.total is None or self.base is None or not self.base.total:
            return None
        return row.total / self.base.total


class _Interval:
    """The growth of all counters between two readings."""

    def __init__(self, stack: WriteStack, begin: WritesReading, end: WritesReading) -> None:
        self.stack, self.begin, self.end = stack, begin, end

    def count_class(self, *classes: WriteClass) -> int:
        pairs = zip(self.begin.targets, self.end.targets, strict=True)
        return sum(
            after.classes[kind].bytes - before.classes[kind].bytes
            for before, after in pairs
            for kind in classes
        )

    def count_devices(self, names: Sequence[str]) -> int | None:
        """Return the bytes that the kernel counted for devices, or None if it does not count one of them."""
        total = 0
        for name in names:
            before, after = self.begin.devices.get(name), self.end.devices.get(name)
            if before is None or after is None or after.bytes < before.bytes:
                return None
            total += after.bytes - before.bytes
        return total

    def count_in_flight(self, names: Sequence[str]) -> int:
        readings = (self.begin.devices, self.end.devices)
        return sum(devices[name].in_flight for devices in readings for name in names if name in devices)

    def measure_growth(self, counter: str) -> int | None:
        """Return the growth of one of the file system's own counters, or None if it has no such counter."""
        before = getattr(self.begin.counters, counter)
        after = getattr(self.end.counters, counter)
        return after - before if before is not None and after is not None and after >= before else None

    def count_application(self) -> ApplicationWrites | None:
        """Return what programs wrote, or None if no program of ours counts it."""
        before, after = self.begin.application, self.end.application
        return after.subtract(before) if before and after else None

    def count_commits(self) -> int | None:
        """Return jbd2's commits, or None if they are not counted."""
        if self.end.journal_reason:
            return None
        pairs = zip(self.begin.targets, self.end.targets, strict=True)
        return sum(after.journal_commits - before.journal_commits for before, after in pairs)

    def count_jbd2(self) -> int | None:
        """Return the bytes that jbd2 reports for its commits, or None if it reported nothing."""
        pairs = zip(self.begin.targets, self.end.targets, strict=True)
        blocks = [
            after.journal_blocks - before.journal_blocks
            for before, after in pairs
            if after.journal_commits > before.journal_commits
        ]
        if self.stack.block_size is None or self.end.journal_reason or not blocks:
            return None
        return sum(blocks) * self.stack.block_size

    @property
    def dirty_bytes(self) -> int | None:
        """Return the largest amount of dirty memory at either end, or None if unknown."""
        if self.begin.dirty_bytes is None or self.end.dirty_bytes is None:
            return None
        return max(self.begin.dirty_bytes, self.end.dirty_bytes)


def compute_waterfall(
    stack: WriteStack,
    begin: WritesReading,
    end: WritesReading,
    *,
    is_closed: bool = False,
    drives: Mapping[str, DriveAmplification] | None = None,
) -> Waterfall:
    """Return the rows of an interval. `is_closed`: the file system was synced at both ends, so that a witness
    that disagrees is a finding and not a write in progress. `drives` are by name of a device at the bottom;
    without, there is no row of NAND."""
    interval = _Interval(stack, begin, end)
    rows = [
        *_make_application_rows(interval),
        *_make_class_rows(interval),
        *_make_device_rows(interval),
    ]
    if drives is not None:
        rows.append(_make_nand_row(interval, rows[-1], drives))
    bases = [row for row in rows if row.kind in (WriteStep.APPLICATION, WriteStep.DEVICE) and row.total]
    base = bases[0] if bases else None
    seconds = (end.mono_ns - begin.mono_ns) / 1e9
    findings = tuple(_find_problems(rows, is_closed=is_closed))
    return Waterfall(stack, seconds, rows, base, findings, interval.count_commits())


def _make_application_rows(interval: _Interval) -> Iterator[WaterfallRow]:
    """Yield what programs wrote, and the part that the page cache kept, or added by padding to pages."""
    if interval.stack.filesystem is None:
        return
    row = _make_application_row(interval)
    yield row
    if row.added is None:
        return
    written = row.added
    submitted = interval.count_class(*_FILE)
    yield WaterfallRow(
        WriteStep.PAGE_CACHE, "page cache", submitted - written, submitted, error=interval.dirty_bytes
    )


def _make_application_row(interval: _Interval) -> WaterfallRow:
    """Return our count, with the file system's own as its witness; or the latter, or the reasons for
    neither."""
    counted, reported = interval.count_application(), interval.measure_growth("application")
    if counted:
        written, source = counted.total_bytes, interval.end.counters.source
        witness = None if reported is None or source is None else Witness(source, written, reported)
        return WaterfallRow(
            WriteStep.APPLICATION, "application", written, written, witness=witness, application=counted
        )
    if reported is not None:
        return WaterfallRow(WriteStep.APPLICATION, "application", reported, reported)
    reasons = (interval.end.application_reason or NO_APPLICATION, interval.end.counters.reason)
    return WaterfallRow(
        WriteStep.APPLICATION, "application", None, None, reason="; ".join(filter(None, reasons))
    )


def _make_class_rows(interval: _Interval) -> Iterator[WaterfallRow]:
    """Yield what the file system submitted, by class, and what the kernel counted beyond that."""
    total = 0
    for kind, classes in _CLASS_ROWS.items():
        added = interval.count_class(*classes)
        total += added
        if added or (interval.stack.filesystem and kind in _ALWAYS):
            name = f"{interval.stack.filesystem or ''} {kind}".strip()
            yield WaterfallRow(kind, name, added, total, witness=_find_witness(interval, kind, added))
    counted = interval.count_devices(interval.stack.tops)
    if counted is None:
        yield WaterfallRow(
            WriteStep.OTHER, "other", None, None, reason=_explain_uncounted(interval.stack.tops)
        )
        return
    waiting = interval.count_in_flight(interval.stack.tops)
    reason = f"{waiting} requests were in flight at the ends of the interval" if waiting else None
    if counted != total:
        yield WaterfallRow(WriteStep.OTHER, "other", counted - total, counted, reason=reason)


def _find_witness(interval: _Interval, kind: WriteStep, added: int) -> Witness | None:
    names = {
        WriteStep.DATA: "data",
        WriteStep.JOURNAL: "journal",
        WriteStep.METADATA: "metadata",
        WriteStep.NODE: "node",
    }
    reported = interval.measure_growth(names[kind]) if kind in names else None
    if reported is not None and interval.end.counters.source:
        return Witness(interval.end.counters.source, added, reported)
    blocks = interval.count_jbd2() if kind is WriteStep.JOURNAL else None
    return None if blocks is None else Witness(JBD2, added, blocks)


def _make_device_rows(interval: _Interval) -> Iterator[WaterfallRow]:
    """Yield the devices that the file system writes to, what each layer adds, and the drives."""
    stack = interval.stack
    total = interval.count_devices(stack.tops)
    yield WaterfallRow(
        WriteStep.DEVICE,
        _name_devices(stack.tops),
        total,
        total,
        reason=_explain_uncounted(stack.tops) if total is None else None,
    )
    stacked = [layer for layer in stack.layers if layer.below]
    for layer in stacked:
        added, reason = _measure_layer(interval, layer)
        total = None if added is None or total is None else total + added
        yield WaterfallRow(
            WriteStep.LAYER,
            f"{layer.device} {layer.label}".strip(),
            added,
            total,
            reason=reason,
            received=interval.count_devices([layer.device]),
            parity=layer.parity,
        )
    if stacked:
        yield _make_drives_row(interval)


def _name_devices(names: Sequence[str]) -> str:
    """Return a label that fits into a column."""
    return ", ".join(names) if len(names) <= _MOST_NAMES else f"{names[0]} and {len(names) - 1} more"


def _measure_layer(interval: _Interval, layer: WriteLayer) -> tuple[int | None, str | None]:
    """Return the bytes that a layer wrote beyond those that it received, or None with the reason."""
    if layer.shared:
        member, others = next(iter(layer.shared.items()))
        return None, f"{member} also carries {', '.join(others)}"
    received = interval.count_devices([layer.device])
    written = interval.count_devices(layer.below)
    if received is None or written is None:
        return None, _explain_uncounted((layer.device, *layer.below))
    return written - received, None


def _make_drives_row(interval: _Interval) -> WaterfallRow:
    layers = interval.stack.layers
    drives = interval.stack.bottoms
    shared = [reason for layer in layers if (reason := _measure_layer(interval, layer)[1]) and layer.shared]
    total = None if shared else interval.count_devices(drives)
    reason = shared[0] if shared else _explain_uncounted(drives) if total is None else None
    return WaterfallRow(WriteStep.DRIVES, _name_devices(drives), total, total, reason=reason)


def _make_nand_row(
    interval: _Interval, above: WaterfallRow, drives: Mapping[str, DriveAmplification]
) -> WaterfallRow:
    """Return the bytes that the drives programmed for those of the row above: each drive's host bytes times
    its write amplification."""
    reasons = [above.reason] if above.total is None else []
    total = error = 0.0
    for name in interval.stack.bottoms:
        drive = drives.get(name, DriveAmplification(None, reason=f"{name} is gone"))
        written = interval.count_devices([name])
        if drive.waf is None:
            reasons.append(drive.reason)
        elif written is not None:
            total += written * drive.waf
            error += written * (drive.error or 0.0)
    known = sorted({reason for reason in reasons if reason})
    if reasons:
        return WaterfallRow(WriteStep.NAND, "NAND", None, None, reason="; ".join(known))
    waf = f"WAF {total / above.total:.2f}" if above.total else None
    return WaterfallRow(WriteStep.NAND, "NAND", round(total), round(total), error=round(error), reason=waf)


def _explain_uncounted(names: Sequence[str]) -> str:
    return f"the kernel keeps no usable statistics of {', '.join(names)}"


def _find_problems(rows: Sequence[WaterfallRow], *, is_closed: bool) -> Iterator[str]:
    """Yield sentences about unclassified bytes and witnesses that disagree."""
    for row in rows:
        if row.application and row.application.lost:
            yield f"{row.application.lost} direct writes of programs are not counted: the table was full"
        if row.kind is WriteStep.OTHER and row.added and row.total:
            share = abs(row.added) / row.total
            if share > MAX_OTHER:
                yield f"{100 * share:.1f} % of the written bytes have no class"
        if is_closed and row.witness and not row.witness.agrees:
            yield (
                f"{row.name}: {row.witness.counted_bytes} bytes counted, but {row.witness.source} "
                f"is {row.witness.reported_bytes}"
            )
