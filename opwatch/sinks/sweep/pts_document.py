"""The JSON document of an SNIA test, docs/schema/sweep-test.json: all report fields required by the
specification, under names common to all tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

from opwatch import SCHEMA
from opwatch.codec import encode
from opwatch.guard.identity import DiskIdentity
from opwatch.journal.request import SweepRequest
from opwatch.pts.loads import find_unsupported_points
from opwatch.pts.order import PtsOrder
from opwatch.pts.record import PtsEnd, PtsRecord
from opwatch.pts.results import PtsFigures, PtsPart, derive_part
from opwatch.steady.pts import PtsReport
from opwatch.steady.pts_tests import PtsTest
from opwatch.sweep.purges import DISCARD, find_purge

TYPE: Final = "sweep-test"
_SPECIFICATION = "SNIA SSS PTS 2.0.2"


@dataclass(frozen=True, slots=True)
class PtsHeaderDocument:
    """The fields that every report needs; null if a value is unknown."""

    test_sponsor: str | None
    device: str | None
    serial: str | None
    firmware: str | None
    capacity_bytes: int
    interface: str | None
    platform: str | None
    software_version: str
    purge_method: str
    preconditioning: tuple[str, ...]
    active_range_bytes: int
    active_range_ratio: float
    outstanding_ios_per_thread: int
    threads: int
    threads_in_order: int
    data_pattern: str
    write_cache: str | None


@dataclass(frozen=True, slots=True)
class PtsSampleDocument:
    """The result of a load, with the total bytes written by its end."""

    stage: str
    number: int
    read_percent: int
    block_bytes: int
    begin_s: float
    seconds: float
    ios: int
    read_bytes: int
    write_bytes: int
    mean_ns: float | None
    five_nines_ns: float | None
    max_ns: int | None
    iops: float
    megabytes_per_s: float
    written_bytes: int


@dataclass(frozen=True, slots=True)
class PtsPartDocument:
    """The results of a part of a test."""

    name: str
    title: str
    ended_by: PtsEnd
    is_whole: bool
    variable: str
    most_rounds: int
    pts: PtsReport | None
    pts_reason: str | None
    figures: tuple[PtsFigures, ...]
    figures_of_rounds: tuple[int, int] | None
    stages: tuple[PtsFigures, ...]
    recovery_s: float | None
    outputs: tuple[str, ...]
    samples: tuple[PtsSampleDocument, ...]

    def find_flaw(self) -> str | None:
        return "pts_reason is missing" if self.pts is None and self.pts_reason is None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PtsDocument:
    """The results of a test."""

    schema: Literal["opwatch/1"] = SCHEMA
    type: Literal["sweep-test"] = TYPE
    specification: str
    test: str
    class_name: str = field(metadata={"key": "class"})
    scale: float
    is_conforming: bool
    deviations: tuple[str, ...]
    header: PtsHeaderDocument
    parts: tuple[PtsPartDocument, ...]
    is_whole: bool
    sweep: str
    created: str
    disk: DiskIdentity
    is_ended: bool


def build_pts_document(
    request: SweepRequest, records: Mapping[int, PtsRecord], *, is_ended: bool
) -> dict[str, Any]:
    """Return the results of a test so far."""
    order = request.test or PtsOrder("wsat")
    parts = [derive_part(order, order.parts[place], records[place]) for place in sorted(records)]
    deviations = tuple(_list_deviations(request, order, parts))
    document: dict[str, Any] = encode(
        PtsDocument(
            specification=_SPECIFICATION,
            test=order.name,
            class_name=order.class_name,
            scale=order.scale,
            is_conforming=not deviations,
            deviations=deviations,
            header=_build_header(request, order, parts),
            parts=tuple(_build_part(order, part) for part in parts),
            is_whole=is_ended and bool(parts) and all(part.is_whole for part in parts),
            sweep=request.name,
            created=request.created,
            disk=request.identity,
            is_ended=is_ended,
        )
    )
    return document


def _list_deviations(request: SweepRequest, order: PtsOrder, parts: list[PtsPart]) -> Iterator[str]:
    """Yield the known deviations from the specification."""
    if order.scale != 1:
        yield f"all times are {100 * order.scale:g} % of the specification's"
    for part in order.parts:
        if order.most_rounds(part) < part.most_rounds:
            yield f"{part.name}: at most {order.most_rounds(part)} rounds, not {part.most_rounds}"
    if request.purge == DISCARD.name:
        yield "purged by a discard, which is not one of the commands of the specification"
    cache, wanted = order.header.get("write_cache"), order.drive_class.has_write_cache
    if cache != ("write back" if wanted else "write through"):
        state = "on" if wanted else "off"
        yield f"the write cache of {order.class_name} drives must be {state}: {cache or 'unknown'}"
    if order.header.get("kind") != "disk":
        yield f"the target is not a whole drive: {order.header.get('kind') or 'unknown'}"
    for part_done in parts:
        if points := find_unsupported_points(part_done.part, part_done.record.logical_bytes):
            yield (
                f"{part_done.part.name}: {len(points)} test points are below this drive's block size "
                f"({part_done.record.logical_bytes} bytes) and were left out"
            )
        if part_done.record.end is PtsEnd.BUDGET:
            yield f"{part_done.part.name}: it ended at the write limit (--max-write)"


def _build_header(request: SweepRequest, order: PtsOrder, parts: list[PtsPart]) -> PtsHeaderDocument:
    drive_class, header = order.drive_class, order.header
    fio = next((part.record.fio_version for part in parts), None)
    software = header.get("software") or ""
    level = request.levels[0]
    single = order.name == "latency"
    return PtsHeaderDocument(
        test_sponsor=order.sponsor,
        device=header.get("device") or request.identity.model,
        serial=request.identity.serial,
        firmware=header.get("firmware"),
        capacity_bytes=request.identity.size_bytes,
        interface=header.get("interface"),
        platform=header.get("platform"),
        software_version=f"{software}, {fio}" if fio else software,
        purge_method=find_purge(request.purge).what,
        preconditioning=tuple(
            _describe_precondition(order, part, request.identity.size_bytes) for part in order.parts
        ),
        active_range_bytes=level.usable_bytes,
        active_range_ratio=drive_class.active_ratio,
        outstanding_ios_per_thread=1 if single else drive_class.depth,
        threads=1 if single else drive_class.threads,
        threads_in_order=1,
        data_pattern="random, new for every request",
        write_cache=header.get("write_cache"),
    )


def _describe_precondition(order: PtsOrder, part: PtsTest, capacity_bytes: int) -> str:
    passes = order.count_fill_passes(part, capacity_bytes)
    if not passes:
        return f"{part.name}: none"
    return (
        f"{part.name}: the active range written in order {passes} times, {part.precondition_block_bytes} "
        "bytes at a time"
    )


def _build_part(order: PtsOrder, part: PtsPart) -> PtsPartDocument:
    record = part.record
    return PtsPartDocument(
        name=part.part.name,
        title=part.part.title,
        ended_by=record.end,
        is_whole=part.is_whole,
        variable=part.part.variable,
        most_rounds=order.most_rounds(part.part),
        pts=part.verdict.to_report() if part.verdict else None,
        pts_reason=part.unjudged or None,
        figures=part.figures,
        figures_of_rounds=part.window,
        stages=part.stages,
        recovery_s=part.recovery_s,
        outputs=tuple(part.part.outputs),
        samples=tuple(_build_samples(record)),
    )


def _build_samples(record: PtsRecord) -> Iterator[PtsSampleDocument]:
    written = 0
    for sample in record.samples:
        written += sample.write_bytes
        yield PtsSampleDocument(
            **{one.name: getattr(sample, one.name) for one in fields(sample)},
            iops=sample.iops,
            megabytes_per_s=sample.megabytes_per_s,
            written_bytes=written,
        )
