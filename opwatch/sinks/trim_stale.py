"""Reports of `opwatch trim stale` as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from opwatch import SCHEMA, units
from opwatch.sinks.wrapping import wrap_text
from opwatch.trim.stale.judgement import ReadDevice
from opwatch.trim.stale.remembered import DeviceFreeSpace
from opwatch.trim.stale.report import StaleReport
from opwatch.trim.stale.stale import Bounds, Spare

_LABEL = 13
# Largest over-provisioning of a simulated drive (drive/spec.py).
_MAX_OP_RATIO = 10


def build_bounds(limits: Bounds | None) -> dict[str, float | None] | None:
    """Return bounds as JSON."""
    return None if limits is None else asdict(limits)


def build_byte_bounds(limits: Bounds | None) -> dict[str, int | None] | None:
    """Return bounds as JSON, in whole bytes."""
    if limits is None:
        return None
    value = None if limits.value is None else round(limits.value)
    return {"value": value, "low": round(limits.low), "high": round(limits.high)}


def _build_drive(drive: ReadDevice) -> dict[str, Any]:
    return {
        "device": drive.landing.device,
        "free_bytes": drive.landing.extents.total_bytes,
        "free_extents": len(drive.landing.extents),
        "below_encryption": drive.landing.encrypted,
        "stopped": drive.landing.stopped,
        "granule_bytes": drive.granule_bytes,
        "untrimmable_bytes": drive.untrimmable_bytes,
        "calibration": asdict(drive.calibration),
    }


def build_spare_document(spare: Spare | None, reason: str | None, source: str | None) -> dict[str, Any]:
    """Return over-provisioning and write amplification, or the reason why they are unknown."""
    return {
        "physical_bytes": spare.physical_bytes if spare else None,
        "physical_source": source,
        "spare_reason": reason,
        "op_counts": spare.counts if spare else None,
        "op_of_user_ratio": build_bounds(spare.op) if spare else None,
        "op_of_user_trimmed_ratio": build_bounds(spare.op_trimmed) if spare else None,
        "waf": {name: build_bounds(ratio) for name, ratio in spare.waf.items()} if spare else None,
        "waf_trimmed": {name: build_bounds(ratio) for name, ratio in spare.waf_trimmed.items()}
        if spare
        else None,
    }


def build_stale_document(report: StaleReport) -> dict[str, Any]:
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
        "stale_bytes": build_byte_bounds(report.stale),
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
        "drives": [_build_drive(drive) for drive in report.drives],
        "nuse": asdict(report.count) | {"follows": report.count.has_followed_trim} if report.count else None,
        "lba_status": asdict(report.mapped) if report.mapped else None,
        "held_bytes": build_byte_bounds(spare.holding) if spare else None,
        "held_trimmed_bytes": build_byte_bounds(spare.holding_trimmed) if spare else None,
        **build_spare_document(spare, report.spare_reason, report.physical_source),
        "notes": list(report.notes),
    }


def format_row(label: str, text: str) -> list[str]:
    """Return a label and a text in 80 columns."""
    return wrap_text(text, label.ljust(_LABEL))


def format_heading(subject: str, filesystem: str | None) -> list[str]:
    """Return the first lines, which name the device or mount."""
    kind = filesystem or "unused device, all of it free"
    first, *others = format_row("", f"{subject} ({kind})")
    return [first.strip(), *others]


def format_untrimmable(space: ReadDevice | DeviceFreeSpace) -> Iterator[str]:
    """Yield a line about free space that no trim can free, if there is any."""
    if space.untrimmable_bytes:
        size, granule = units.format_capacity(space.untrimmable_bytes), units.format_size(space.granule_bytes)
        yield from format_row(
            "", f"{size} is free in pieces smaller than the granule of {granule}: no trim frees it"
        )


def _format_bounds(limits: Bounds, shown: str, scale: float = 1.0) -> str:
    """Return bounds as "12.3 (11.9 to 12.8)", the bounds alone if no value is known, or a single figure if
    the bounds agree."""
    low, high = (format(edge * scale, shown) for edge in (limits.low, limits.high))
    if low == high:
        return low
    if limits.value is None:
        return f"{low} to {high}"
    return f"{format(limits.value * scale, shown)} ({low} to {high})"


def _format_op_ratio(op: Bounds) -> str:
    """Return over-provisioning in percent, limited to the largest simulated value."""
    if op.low > _MAX_OP_RATIO:
        return f"more than {100 * _MAX_OP_RATIO} %"
    if op.high > _MAX_OP_RATIO:
        return f"{100 * op.low:.1f} % or more"
    return f"{_format_bounds(op, '.1f', 100)} %"


def _format_stale(report: StaleReport) -> Iterator[str]:
    if report.stale is None:
        yield from format_row("stale", f"unknown: {report.reason}")
        return
    value, share = report.stale.value or 0.0, report.share
    exact = report.stale.low == report.stale.high
    range_ = (
        "exact: every block was read"
        if exact
        else (
            f"{units.format_capacity(round(report.stale.low))} to "
            f"{units.format_capacity(round(report.stale.high))} "
            f"at {100 * report.confidence:g} % confidence"
        )
    )
    percent = 100 * (share.share or 0.0)
    yield from format_row(
        "stale", f"{units.format_capacity(round(value))}, {percent:.2f} % of free space; {range_}"
    )
    if report.lower_bound:
        yield from format_row("", f"lower bound: {report.lower_bound}")


def format_spare(spare: Spare | None, reason: str | None, source: str | None) -> Iterator[str]:
    """Yield rows with over-provisioning and write amplification, or the reason why they are unknown."""
    if spare is None:
        yield from format_row("OP, WAF", f"unknown: {reason}")
        return
    yield from format_row("flash", f"{units.format_capacity(spare.physical_bytes)}, {source}")
    words = f"{_format_op_ratio(spare.op)} now, {_format_op_ratio(spare.op_trimmed)} after a trim"
    yield from format_row("OP", f"{words}, as (T-U)/U")
    yield from format_row("", f"U is {spare.counts}")
    if max(spare.op.low, spare.op_trimmed.low) > _MAX_OP_RATIO:
        yield from format_row(
            "",
            f"more than {100 * _MAX_OP_RATIO} %: U is so small beside T that the drive is nearly empty",
        )
    for name, now in spare.waf.items():
        after = _format_bounds(spare.waf_trimmed[name], ".2f")
        words = f"{_format_bounds(now, '.2f')} now, {after} after a trim"
        yield from format_row(f"WAF {name}", f"{words}, for uniform random writes")


def _format_drive(drive: ReadDevice) -> Iterator[str]:
    landing = drive.landing
    where = f"{landing.device}, below its encryption" if landing.encrypted else landing.device
    yield from format_row("read at", f"{where}; {landing.stopped}" if landing.stopped else where)
    for words in drive.calibration.words:
        yield from format_row("", words)
    yield from format_untrimmable(drive)


def format_stale_report(report: StaleReport) -> list[str]:
    """Return the report in 80 columns."""
    rows = format_heading(report.subject, report.filesystem)
    extents = sum(len(drive.landing.extents) for drive in report.drives)
    rows += format_row("free", f"{units.format_capacity(report.free_bytes)} in {extents} extents")
    rows += _format_stale(report)
    share = report.share
    sampled = f"{share.samples} blocks of {report.unit_bytes} bytes, {share.holding} of them hold data"
    extra = f"; {report.taken} came into use during the measurement" if report.taken else ""
    extra += f"; {report.unreadable} could not be read" if report.unreadable else ""
    rows += format_row("sample", f"{sampled}{extra}; {report.seconds:.1f} s, seed {report.seed}")
    for drive in report.drives:
        rows += _format_drive(drive)
    if report.count:
        in_use = units.format_capacity(report.count.after_bytes)
        rows += format_row("NUSE", f"the drive counts {in_use} as in use; {report.count.response_text}")
    if report.mapped:
        words = (
            f"the drive's map has {units.format_capacity(report.mapped.held_bytes)} of the free "
            "space as mapped"
        )
        if not report.mapped.follows:
            words += "; it did not follow the sentinel, so it proves nothing"
        rows += format_row("LBA status", words)
    rows += format_spare(report.spare, report.spare_reason, report.physical_source)
    for note in report.notes:
        rows += format_row("note", note)
    return rows
