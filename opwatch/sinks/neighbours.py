"""What owners of requests cost each other, as tables in 80 columns and as the document of
docs/schema/why-neighbours.json."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Literal

from opwatch import SCHEMA, units
from opwatch.codec import Signed, encode
from opwatch.sinks.plain.cells import align_columns
from opwatch.sinks.wrapping import wrap_text
from opwatch.why.neighbours import CONFIDENCE, DiskNeighbours, NeighbourEffect, TimedRequests

NEIGHBOURS_TYPE: Final = "why-neighbours"
_COLUMNS = ("", "without", "with", "added", "rate", "in flight")
_MAX_NAME_LENGTH = 20
# An owner whose rate grew by more may be slow by its own load.
_GROWN_RATE = 1.1
_FEW_BURSTS = 3


@dataclass(frozen=True, slots=True)
class TimesDocument:
    """Requests of an owner in some intervals, their mean device time, and its variance in ns²."""

    requests: int
    seconds: float
    mean_ns: float
    variance: float


@dataclass(frozen=True, slots=True)
class EffectDocument:
    """The device time of an operation of the owner `of`, without and with requests of the owner `by`.

    `added_ns` is the difference, negative if requests were faster, with `error_ns`. `bursts` is how often
    `by` became active, and `in_flight` the mean number of its requests in flight. The numbers are null if
    `refusal` says why nothing can be compared.
    """

    of: str
    op: str
    by: str
    bursts: int
    in_flight: float | None
    without: TimesDocument | None
    beside: TimesDocument | None
    added_ns: Signed | None
    error_ns: float | None
    refusal: str | None


@dataclass(frozen=True, slots=True)
class DiskNeighboursDocument:
    """The effects on a disk. `more_owners` with less device time were left out."""

    device: str
    effects: tuple[EffectDocument, ...]
    more_owners: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighboursDocument:
    """What owners of requests cost each other. All differences of a disk hold together at `confidence`."""

    schema: Literal["opwatch/1"] = SCHEMA
    type: Literal["why-neighbours"] = NEIGHBOURS_TYPE
    confidence: float
    disks: tuple[DiskNeighboursDocument, ...]


def build_neighbours_document(disks: Sequence[DiskNeighbours]) -> dict[str, Any]:
    """Return the answer as a JSON document."""
    document: dict[str, Any] = encode(
        NeighboursDocument(
            confidence=CONFIDENCE,
            disks=tuple(
                DiskNeighboursDocument(
                    disk.device, tuple(_build_effect(one) for one in disk.effects), disk.more_owners
                )
                for disk in disks
            ),
        )
    )
    return document


def _build_effect(effect: NeighbourEffect) -> EffectDocument:
    return EffectDocument(
        of=effect.of,
        op=effect.op,
        by=effect.by,
        bursts=effect.bursts,
        in_flight=effect.in_flight,
        without=_build_times(effect.without),
        beside=_build_times(effect.beside),
        added_ns=effect.added_ns,
        error_ns=effect.error_ns,
        refusal=effect.refusal,
    )


def _build_times(times: TimedRequests | None) -> TimesDocument | None:
    if times is None:
        return None
    return TimesDocument(times.requests, times.seconds, times.mean_ns, times.variance)


def format_neighbours(disks: Sequence[DiskNeighbours]) -> Iterator[str]:
    """Yield a table per owner and operation, and what limits it."""
    for disk in disks:
        for (of, op), group in groupby(disk.effects, key=lambda one: (one.of, one.op)):
            yield from _format_owner(f"{disk.device}: {op}s of {of}", list(group))
            yield ""
        if disk.more_owners:
            yield from wrap_text(
                f"{disk.device}: {disk.more_owners} more owners have less device time and were left out"
            )
            yield ""
    yield from wrap_text(
        "Mean device time in intervals without and with requests of the other owner. Rate: the owner's own "
        "requests per second with them, relative to without. In flight: the other's requests. "
        f"All differences of a disk hold together at {100 * CONFIDENCE:.0f} %."
    )


def _format_owner(head: str, effects: Sequence[NeighbourEffect]) -> Iterator[str]:
    yield from wrap_text(head)
    known = sorted((one for one in effects if one.refusal is None), key=lambda one: -(one.added_ns or 0.0))
    if known:
        yield from align_columns(_COLUMNS, [_format_effect(one) for one in known])
    for doubt in filter(None, map(_describe_doubt, known)):
        yield from wrap_text(doubt, "  ")
    for one in effects:
        if one.refusal:
            yield from wrap_text(f"not known with {one.by}: {one.refusal}", "  ")


def _format_effect(effect: NeighbourEffect) -> tuple[str, ...]:
    assert effect.without and effect.beside and effect.added_ns is not None
    sign = "-" if effect.added_ns < 0 else "+"
    added = f"{sign}{units.format_ns(abs(effect.added_ns))} ± {units.format_ns(effect.error_ns)}"
    return (
        f"  with {units.shorten(effect.by, _MAX_NAME_LENGTH)}",
        units.format_ns(effect.without.mean_ns),
        units.format_ns(effect.beside.mean_ns),
        added if effect.is_real else f"none ± {units.format_ns(effect.error_ns)}",
        f"x {effect.rate_ratio:.2f}",
        units.format_plain(effect.in_flight or 0.0),
    )


def _describe_doubt(effect: NeighbourEffect) -> str:
    """Return why a difference may have another cause; empty without a doubt."""
    if not effect.is_real:
        return ""
    doubts = []
    if effect.bursts < _FEW_BURSTS:
        times = "once" if effect.bursts == 1 else "twice"
        doubts.append(f"{effect.by} came only {times}, so that another change at that time looks the same")
    if (effect.rate_ratio or 0.0) > _GROWN_RATE:
        doubts.append(f"{effect.of} itself sent more requests beside {effect.by}, which can be the cause")
    return "; ".join(doubts)
