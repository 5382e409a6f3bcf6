"""Write amplification of an interval as text in 80 columns, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opwatch import SCHEMA, units
from opwatch.counters.reading import DriveFacts
from opwatch.sinks.wrapping import wrap_text
from opwatch.waf.measure import Background, MeasuredInterval, MeasuredWaf
from opwatch.waf.span import Span, Split

_LABEL = 11
BELOW_ONE = "below 1: the drive compresses data, or its counters omit some writes"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A measurement with the device. `parts` holds the kernel's count of host bytes per device."""

    device: str
    origin: str
    drive: DriveFacts
    measured: MeasuredWaf
    parts: Mapping[str, int] = field(default_factory=dict)
    failures: Sequence[str] = ()
    notes: Sequence[str] = ()
    refresh_given: bool = False
    with_command: bool = False


def _get_middle_and_error(span: Span) -> tuple[int | None, int | None]:
    return (span.best_estimate, span.error) if span.is_known else (None, None)


def _build_split(split: Split) -> dict[str, Any]:
    return {
        "a": split.a,
        "b_bytes_per_s": split.b_bytes_per_s,
        "a_error": split.a_error,
        "b_error_bytes_per_s": split.b_error,
        "reason": split.reason,
    }


def _build_background(idle: Background) -> dict[str, Any]:
    return {
        "nand_bytes_per_s": idle.bytes_per_s,
        "error_bytes_per_s": idle.error,
        "nand_bytes": idle.nand_bytes,
        "idle_s": idle.idle_s,
        "reason": idle.reason,
    }


def _build_host(stretch: MeasuredInterval) -> dict[str, Any]:
    host = stretch.host
    kernel, kernel_error = _get_middle_and_error(host.kernel)
    firmware, firmware_error = _get_middle_and_error(host.firmware) if host.firmware else (None, None)
    return {
        "source": host.source,
        "kernel_bytes": kernel,
        "kernel_error_bytes": kernel_error,
        "firmware_bytes": firmware,
        "firmware_error_bytes": firmware_error,
        "firmware_source": host.firmware_source,
        "agrees": host.agrees,
        "reason": host.why,
    }


def _build_other(stretch: MeasuredInterval) -> dict[str, Any]:
    host, nand = (
        _get_middle_and_error(stretch.host.span)[0],
        _get_middle_and_error(stretch.amplification.nand)[0],
    )
    return {
        "source": stretch.track.source,
        "waf": stretch.amplification.waf,
        "waf_error": stretch.amplification.error,
        "host_bytes": host,
        "nand_bytes": nand,
        "whole": stretch.whole,
        "reason": stretch.amplification.reason,
    }


def format_source(stretch: MeasuredInterval) -> str:
    """Return the names of both counters: NAND, then host."""
    return f"{stretch.track.source} / {stretch.host.source}"


def build_waf_document(outcome: Outcome) -> dict[str, Any]:
    """Return the outcome as one JSON document."""
    measured, stretch = outcome.measured, outcome.measured.stretch
    host, host_error = (
        _get_middle_and_error(stretch.host.span) if stretch else (_sum_kernel_bytes(outcome), None)
    )
    nand, nand_error = _get_middle_and_error(stretch.amplification.nand) if stretch else (None, None)
    refresh = measured.period_ns
    return {
        "schema": SCHEMA,
        "type": "waf",
        "device": {
            "name": outcome.device,
            "origin": outcome.origin,
            "model": outcome.drive.model,
            "firmware": outcome.drive.firmware,
            "serial": outcome.drive.serial,
        },
        "waf": measured.waf,
        "waf_error": measured.error,
        "reason": measured.reason,
        "host_bytes": host,
        "host_error_bytes": host_error,
        "nand_bytes": nand,
        "nand_error_bytes": nand_error,
        "source": format_source(stretch) if stretch else None,
        "interval_s": measured.interval_s,
        "whole": stretch.whole if stretch else None,
        "below_one": stretch.amplification.is_below_one if stretch and measured.waf is not None else None,
        "needed_bytes": stretch.amplification.needed_bytes if stretch else None,
        "split": _build_split(measured.split),
        "background": _build_background(measured.background),
        "host": _build_host(stretch) if stretch else None,
        "host_bytes_by_device": dict(outcome.parts),
        "settle": {"seconds": measured.settle_s, "nand_bytes": measured.settle_nand_bytes},
        "refresh_s": None if refresh is None else refresh / 1e9,
        "refresh_learned": measured.period_learned and not outcome.refresh_given,
        "others": [_build_other(other) for other in measured.others],
        "failures": list(outcome.failures),
        "notes": list(outcome.notes),
    }


def _sum_kernel_bytes(outcome: Outcome) -> int | None:
    return sum(outcome.parts.values()) if outcome.parts else None


def _format_waf_result(outcome: Outcome) -> Iterator[tuple[str, str]]:
    measured, stretch = outcome.measured, outcome.measured.stretch
    if measured.waf is None or measured.error is None or stretch is None:
        yield "WAF", f"none: {measured.reason}"
        return
    percent = f" ({units.format_plain(100 * measured.error / measured.waf)} %)" if measured.error else ""
    over = f"over {measured.interval_s:.1f} s"
    if outcome.with_command:
        over += ", the whole command" if stretch.whole else ", not just the command"
    yield "WAF", f"{units.format_with_error(measured.waf, measured.error)}{percent} {over}"
    if stretch.amplification.is_below_one:
        yield "", BELOW_ONE


def _format_bytes(span: Span) -> str:
    if not span.is_known:
        return "unknown so far"
    error = f" ± {units.format_capacity(span.error)}" if span.error else ""
    return f"{units.format_capacity(span.best_estimate)}{error}"


def _format_sides(outcome: Outcome) -> Iterator[tuple[str, str]]:
    stretch = outcome.measured.stretch
    if stretch is None:
        written = _sum_kernel_bytes(outcome)
        if written is not None:
            yield "host", f"{units.format_capacity(written)} by the kernel's count"
        return
    host = stretch.host
    words = f"{_format_bytes(host.span)} by {host.source}"
    if host.agrees and host.firmware_source != host.source and host.firmware:
        known = host.firmware.is_known
        words += f"; {host.firmware_source} "
        words += (
            f"agrees within {units.format_capacity(max(host.firmware.error, 1))}"
            if known
            else "includes it all"
        )
    elif host.agrees and host.firmware_source == host.source:
        words += "; the kernel's count agrees"
    yield "host", words
    if host.agrees is False:
        yield "", f"differs: {host.why}"
    elif host.why:
        yield "", host.why
    yield "NAND", f"{_format_bytes(stretch.amplification.nand)} by {stretch.track.source}"
    for other in outcome.measured.others:
        waf, error = other.amplification.waf, other.amplification.error
        if waf is not None and error is not None:
            yield "", f"other: {units.format_with_error(waf, error)} by {other.track.source}"


def _format_rest(outcome: Outcome) -> Iterator[tuple[str, str]]:
    measured = outcome.measured
    if len(outcome.parts) > 1:
        shares = ", ".join(f"{name} {units.format_capacity(n)}" for name, n in outcome.parts.items())
        yield "written to", shares
    if measured.stretch:
        idle = measured.background
        if idle.bytes_per_s is None:
            yield "idle", idle.reason or ""
        else:
            error = units.format_megabytes(idle.error or 0)
            rate = f"{units.format_megabytes(idle.bytes_per_s)} ± {error} MB/s to NAND"
            yield "idle", f"{rate}, over {idle.idle_s:.0f} s without host writes"
        yield "split", _format_split(measured.split)
        if measured.settle_nand_bytes:
            yield (
                "settling",
                f"{units.format_capacity(measured.settle_nand_bytes)} of NAND writes shown after the end",
            )
        if measured.period_ns is not None:
            how = "as given" if outcome.refresh_given else "learned" if measured.period_learned else "assumed"
            yield "page age", f"at most {measured.period_ns / 1e9:.1f} s ({how})"
    for failure in outcome.failures:
        yield "failed", failure
    for note in outcome.notes:
        yield "note", note


def _format_split(split: Split) -> str:
    if split.a is None or split.b_bytes_per_s is None:
        return f"none: {split.reason}"
    own = f"{units.format_megabytes(split.b_bytes_per_s)} ± {units.format_megabytes(split.b_error or 0)} MB/s"
    return f"NAND = ({units.format_with_error(split.a, split.a_error or 0)}) x host + {own}"


def format_waf(outcome: Outcome) -> list[str]:
    """Return the outcome as text lines."""
    drive = outcome.drive
    identity = [outcome.device, drive.model, f"firmware {drive.firmware}" if drive.firmware else None]
    if outcome.origin != outcome.device:
        identity[0] = f"{outcome.device} (of {outcome.origin})"
    shown = wrap_text(", ".join(word for word in identity if word))
    for label, text in (*_format_waf_result(outcome), *_format_sides(outcome), *_format_rest(outcome)):
        shown += wrap_text(text, f"{label:<{_LABEL}}")
    return shown
