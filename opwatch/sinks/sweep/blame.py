"""Shares of a drive's NAND bytes by control group, as a table and as the document of
docs/schema/writes-blame.json."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from opwatch import SCHEMA, units
from opwatch.blame.advice import advise_tenants
from opwatch.blame.answer import BLAMED_COLLECTORS, Blame, ByteBand, OwnerBlame
from opwatch.codec import Signed, encode
from opwatch.sinks.blocks import Block, Section, TextTable, format_sections
from opwatch.sinks.sweep.history_text import describe_history
from opwatch.sweep.history.advice import RecordedSystem
from opwatch.sweep.ranges import ValueRange
from opwatch.writes.advice import WriteAdvice

BLAME_TYPE: Final = "writes-blame"
_COLUMNS = ("control group", "written", "pro rata", "moved for", "caused", "saved without")
_PAIR_COLUMNS = ("writes of one group add", "NAND bytes")
_MAX_NAME_LENGTH = 20
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
# Interference below this share of all NAND bytes is not printed.
_LEAST_INTERFERENCE, _MAX_PAIRS = 0.01, 8


@dataclass(frozen=True, slots=True)
class BlameBand:
    """The range in which a number of bytes is expected. It is negative for a group that saves bytes."""

    low: Signed
    high: Signed


@dataclass(frozen=True, slots=True)
class OwnerDocument:
    """A control group, `host_bytes` that it wrote, and its share of the drive's NAND bytes.

    `proportional_bytes` add up to all NAND bytes. `moved_for` is what was programmed for its data. `caused`
    is its Shapley value. `saved_without` does not add up. The last three are null if `refusal` is set.
    """

    name: str
    host_bytes: int
    proportional_bytes: float
    moved_for: BlameBand | None
    caused: BlameBand | None
    saved_without: BlameBand | None


@dataclass(frozen=True, slots=True)
class InterferenceDocument:
    """NAND bytes that the writes of the group `by` add to what is programmed for data of the group `of`, if
    both are alone on the drive."""

    by: str
    of: str
    nand_bytes: BlameBand


@dataclass(frozen=True, slots=True, kw_only=True)
class BlameDocument:
    """Which control groups the NAND bytes of a recorded history belong to.

    `absent` says what becomes of the data of a group that does not write. `moved_for_older` is what was
    programmed for data from before the history. `collectors` are the assumed collectors behind the bands, and
    `refusal` says why there are no bands.
    """

    schema: Literal["opwatch/1"] = SCHEMA
    type: Literal["writes-blame"] = BLAME_TYPE
    history: str
    capacity_bytes: int
    seconds: float
    written_bytes: int
    gaps: int
    nand_bytes: BlameBand
    absent: str
    owners: tuple[OwnerDocument, ...]
    moved_for_older: BlameBand | None
    interference: tuple[InterferenceDocument, ...]
    collectors: tuple[str, ...]
    refusal: str | None
    notes: tuple[str, ...]
    advice: tuple[WriteAdvice, ...]


def build_blame_document(system: RecordedSystem, blame: Blame) -> dict[str, Any]:
    document: dict[str, Any] = encode(
        BlameDocument(
            history=system.name,
            capacity_bytes=system.capacity_bytes,
            seconds=system.seconds,
            written_bytes=system.written_bytes,
            gaps=system.gaps,
            nand_bytes=BlameBand(blame.nand.low, blame.nand.high),
            absent=blame.absence.value,
            owners=tuple(_build_owner(one) for one in blame.owners),
            moved_for_older=_build_band(blame.moved_for_older),
            interference=tuple(
                InterferenceDocument(by, of, BlameBand(*band)) for by, of, band in _iter_interference(blame)
            ),
            collectors=blame.collectors,
            refusal=blame.refusal,
            notes=tuple(describe_assumptions(system, blame)),
            advice=tuple(advise_tenants(blame)),
        )
    )
    return document


def _build_owner(owner: OwnerBlame) -> OwnerDocument:
    return OwnerDocument(
        owner.name,
        owner.host_bytes,
        owner.proportional_bytes,
        _build_band(owner.moved_for),
        _build_band(owner.caused),
        _build_band(owner.saved_without),
    )


def _build_band(band: ByteBand | None) -> BlameBand | None:
    return BlameBand(*band) if band else None


def _iter_interference(blame: Blame) -> Iterator[tuple[str, str, ByteBand]]:
    """Yield the writing group, the group whose data moves, and the NAND bytes of each pair."""
    for by, row in zip(blame.owners, blame.interference, strict=bool(blame.interference)):
        for of, band in zip(blame.owners, row, strict=True):
            if band:
                yield by.name, of.name, band


class _Scale(NamedTuple):
    """One unit for all bytes of a table."""

    factor: int
    unit: str
    digits: int

    def format_bytes(self, size: float) -> str:
        text = f"{size / self.factor:.{self.digits}f}"
        return text.removeprefix("-") if not float(text) else text

    def format_band(self, band: ByteBand | None) -> str:
        if band is None:
            return "-"
        low, high = map(self.format_bytes, band)
        return high if low == high else f"{low} to {high}"


def _choose_scale(largest: float) -> _Scale:
    """Return the unit in which the largest number has up to four digits."""
    place = next((at for at in range(len(_UNITS)) if largest < 9999.5 * 1000**at), len(_UNITS) - 1)
    return _Scale(1000**place, _UNITS[place], 1 if place and largest < 99.95 * 1000**place else 0)


def format_blame(system: RecordedSystem, blame: Blame) -> Iterator[str]:
    """Yield the answer: what was recorded, the table of groups, interference, and what is assumed."""
    nand, written = blame.nand, system.written_bytes
    scale, waf = _choose_scale(nand.high), ValueRange(nand.value / written, nand.error / written)
    ratio = units.format_with_error(*waf) if waf.error else f"{waf.value:.2f}"
    head: list[Block] = [
        describe_history(system),
        f"NAND {scale.format_bytes(nand.value)} {scale.unit}, WAF {ratio}. Bytes below are in {scale.unit}.",
    ]
    table: list[Block] = [TextTable(_COLUMNS, list(_build_rows(blame, scale)))]
    if blame.refusal:
        table.append(f"Pro rata only: {blame.refusal}.")
    sections = [Section("", head), Section("", table)]
    pairs = list(_build_interference(blame, scale))
    if pairs:
        sections.append(Section("", [TextTable(_PAIR_COLUMNS, pairs)]))
    advice = [f"{one.statement}: {one.action}." for one in advise_tenants(blame)]
    sections += [Section("", advice)] if advice else []
    yield from format_sections([*sections, Section("", list(describe_assumptions(system, blame)))])


def _build_rows(blame: Blame, scale: _Scale) -> Iterator[tuple[str, ...]]:
    for owner in blame.owners:
        yield (
            units.shorten(owner.name, _MAX_NAME_LENGTH),
            scale.format_bytes(owner.host_bytes),
            scale.format_bytes(owner.proportional_bytes),
            *(scale.format_band(band) for band in (owner.moved_for, owner.caused, owner.saved_without)),
        )
    if blame.moved_for_older:
        yield "(older data)", "-", "-", scale.format_band(blame.moved_for_older), "-", "-"


def _build_interference(blame: Blame, scale: _Scale) -> Iterator[tuple[str, str]]:
    """Yield the pairs with the most interference, as text."""
    least = _LEAST_INTERFERENCE * blame.nand.value
    found = [one for one in _iter_interference(blame) if abs(one[2].middle) >= least]
    found.sort(key=lambda one: abs(one[2].middle), reverse=True)
    for by, of, band in found[:_MAX_PAIRS]:
        names = (units.shorten(name, _MAX_NAME_LENGTH) for name in (by, of))
        yield " to data of ".join(names), scale.format_band(band)


def describe_assumptions(system: RecordedSystem, blame: Blame) -> Iterator[str]:
    """Yield what the columns mean, and what the bands rest on."""
    yield "Pro rata: each written byte has the same share. These add up to all NAND bytes."
    if blame.refusal is None:
        yield (
            "Moved for: programmed for the group's own data, also when it moved because other groups wrote. "
            "Caused: the mean of what the group adds, over all orders of adding groups (Shapley). "
            "Saved without: what the drive would not program without the group; these never add up. "
            "Older data: from before the history."
        )
        yield f"Without a group, {blame.absence.value}. A page that several groups wrote is the last one's."
        yield (
            "The bands reach over the models of garbage collection that agree with the drive's counter: "
            f"{len(blame.collectors)} of {len(BLAMED_COLLECTORS)}."
        )
    if system.gaps:
        yield f"Requests may be missing at {system.gaps} places of the history."
