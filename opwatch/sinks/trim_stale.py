"""Reports of `opwatch trim stale` as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from opwatch import SCHEMA, units
from opwatch.sinks.folding import folded
from opwatch.trim.stale.judgement import ReadDevice
from opwatch.trim.stale.remembered import Part
from opwatch.trim.stale.report import StaleReport
from opwatch.trim.stale.stale import Bounds, Spare

_LABEL = 13
# Largest over-provisioning of a simulated drive (drive/spec.py).
_MOST_OP_RATIO = 10


def bounds(limits: Bounds | None) -> dict[str, float | None] | None:
    """Return bounds as JSON."""
    return None if limits is None else asdict(limits)


def in_bytes(limits: Bounds | None) -> dict[str, int | None] | None:
    """Return bounds as JSON, in whole bytes."""
    if limits is None:
        return None
    value = None if limits.value is None else round(limits.value)
    return {"value": value, "low": round(limits.low), "high": round(limits.high)}


def _drive_document(drive: ReadDevice) -> dict[str, Any]:
    return {
        "device": drive.landing.device,
        "free_bytes": drive.landing.extents.total,
        "free_extents": len(drive.landing.extents),
        "below_encryption": drive.landing.encrypted,
        "stopped": drive.landing.stopped,
        "granule_bytes": drive.granule_bytes,
        "untrimmable_bytes": drive.untrimmable_bytes,
        "calibration": asdict(drive.calibration),
    }


def spare_document(spare: Spare | None, reason: str | None, source: str | None) -> dict[str, Any]:
    """Return over-provisioning and write amplification, or the reason why they are unknown."""
    return {
        "physical_bytes": spare.physical_bytes if spare else None,
        "physical_source": source,
        "spare_reason": reason,
        "op_counts": spare.counts if spare else None,
        "op_of_user_ratio": bounds(spare.op) if spare else None,
        "op_of_user_trimmed_ratio": bounds(spare.op_trimmed) if spare else None,
        "waf": {name: bounds(ratio) for name, ratio in spare.waf.items()} if spare else None,
        "waf_trimmed": {name: bounds(ratio) for name, ratio in spare.waf_trimmed.items()} if spare else None,
    }


def document(report: StaleReport) -> dict[str, Any]:
    """Return the report as one JSON document."""
    spare, share = report.spare, report.share
    return {
        "schema": SCHEMA,
        "subject": report.subject,
        "filesystem": report.filesystem,
        "confidence_ratio": report.confidence,
        "seed": report.seed,
        "seconds": round(report.seconds, 3),
        "free_bytes": report.free_bytes,
        "judged_bytes": report.judged_bytes,
        "stale_bytes": in_bytes(report.stale),
        "stale_reason": report.reason,
        "lower_bound": report.lower_bound,
        "sample": {
            "unit_bytes": report.unit_bytes,
            "samples": share.samples,
            "held": share.holding,
            "allocated_meanwhile": report.taken,
            "unreadable": report.unreadable,
            "share_ratio": share.share,
            "low_ratio": share.low if share.samples else None,
            "high_ratio": share.high if share.samples else None,
        },
        "drives": [_drive_document(drive) for drive in report.drives],
        "nuse": asdict(report.count) | {"follows": report.count.follows} if report.count else None,
        "lba_status": asdict(report.mapped) if report.mapped else None,
        "held_bytes": in_bytes(spare.holding) if spare else None,
        "held_trimmed_bytes": in_bytes(spare.holding_trimmed) if spare else None,
        **spare_document(spare, report.spare_reason, report.physical_source),
        "notes": list(report.notes),
    }


def row(label: str, text: str) -> list[str]:
    """Return a label and a text in 80 columns."""
    return folded(text, label.ljust(_LABEL))


def heading(subject: str, filesystem: str | None) -> list[str]:
    """Return the first lines, which name the device or mount."""
    kind = filesystem or "nothing on it, so all of it is free"
    first, *others = row("", f"{subject} ({kind})")
    return [first.strip(), *others]


def untrimmable_rows(space: ReadDevice | Part) -> Iterator[str]:
    """Yield a line about free space that no trim can free, if there is any."""
    if space.untrimmable_bytes:
        size, granule = units.capacity(space.untrimmable_bytes), units.size(space.granule_bytes)
        yield from row(
            "", f"{size} are free in pieces smaller than its granule of {granule}: no trim frees them"
        )


def _between(limits: Bounds, shown: str, scale: float = 1.0) -> str:
    """Return bounds as "12.3 (11.9 to 12.8)", the bounds alone if no value is known, or a single figure if
    the bounds agree."""
    low, high = (format(edge * scale, shown) for edge in (limits.low, limits.high))
    if low == high:
        return low
    if limits.value is None:
        return f"{low} to {high}"
    return f"{format(limits.value * scale, shown)} ({low} to {high})"


def _op_words(op: Bounds) -> str:
    """Return over-provisioning in percent, limited to the largest simulated value."""
    if op.low > _MOST_OP_RATIO:
        return f"more than {100 * _MOST_OP_RATIO} %"
    if op.high > _MOST_OP_RATIO:
        return f"{100 * op.low:.1f} % or more"
    return f"{_between(op, '.1f', 100)} %"


def _stale_rows(report: StaleReport) -> Iterator[str]:
    if report.stale is None:
        yield from row("stale", f"unknown: {report.reason}")
        return
    value, share = report.stale.value or 0.0, report.share
    exact = report.stale.low == report.stale.high
    range_ = (
        "exact: every block was read"
        if exact
        else (
            f"{units.capacity(round(report.stale.low))} to {units.capacity(round(report.stale.high))} "
            f"at {100 * report.confidence:g} % confidence"
        )
    )
    percent = 100 * (share.share or 0.0)
    yield from row("stale", f"{units.capacity(round(value))}, {percent:.2f} % of it; {range_}")
    if report.lower_bound:
        yield from row("", f"at least that: {report.lower_bound}")


def spare_rows(spare: Spare | None, reason: str | None, source: str | None) -> Iterator[str]:
    """Yield rows with over-provisioning and write amplification, or the reason why they are unknown."""
    if spare is None:
        yield from row("OP, WAF", f"unknown: {reason}")
        return
    yield from row("flash", f"{units.capacity(spare.physical_bytes)}, {source}")
    words = f"{_op_words(spare.op)} now, {_op_words(spare.op_trimmed)} once it is trimmed"
    yield from row("OP", f"{words}, as (T-U)/U")
    yield from row("", f"U is {spare.counts}")
    if max(spare.op.low, spare.op_trimmed.low) > _MOST_OP_RATIO:
        yield from row(
            "", f"more than {100 * _MOST_OP_RATIO} %: U is so small beside T that the drive is nearly empty"
        )
    for name, now in spare.waf.items():
        after = _between(spare.waf_trimmed[name], ".2f")
        words = f"{_between(now, '.2f')} now, {after} once it is trimmed"
        yield from row(f"WAF {name}", f"{words}, of uniform random writes")


def _drive_rows(drive: ReadDevice) -> Iterator[str]:
    landing = drive.landing
    where = f"{landing.device}, below its encryption" if landing.encrypted else landing.device
    yield from row("read at", f"{where}; {landing.stopped}" if landing.stopped else where)
    for words in drive.calibration.words:
        yield from row("", words)
    yield from untrimmable_rows(drive)


def lines(report: StaleReport) -> list[str]:
    """Return the report in 80 columns."""
    rows = heading(report.subject, report.filesystem)
    extents = sum(len(drive.landing.extents) for drive in report.drives)
    rows += row("free", f"{units.capacity(report.free_bytes)} in {extents} extents")
    rows += _stale_rows(report)
    share = report.share
    sampled = f"{share.samples} blocks of {report.unit_bytes} bytes, of which {share.holding} hold data"
    extra = f"; {report.taken} came into use meanwhile" if report.taken else ""
    extra += f"; {report.unreadable} could not be read" if report.unreadable else ""
    rows += row("sample", f"{sampled}{extra}; {report.seconds:.1f} s, seed {report.seed}")
    for drive in report.drives:
        rows += _drive_rows(drive)
    if report.count:
        in_use = units.capacity(report.count.after_bytes)
        rows += row("NUSE", f"the drive counts {in_use} as in use; {report.count.words}")
    if report.mapped:
        words = f"the drive holds {units.capacity(report.mapped.held_bytes)} of the free space by its own map"
        if not report.mapped.follows:
            words += ", which did not follow a sentinel and tells nothing"
        rows += row("LBA status", words)
    rows += spare_rows(report.spare, report.spare_reason, report.physical_source)
    for note in report.notes:
        rows += row("note", note)
    return rows
