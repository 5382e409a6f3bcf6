"""Results of a test: verdicts, tables, and deviations from the specification."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opwatch.codec import decode, encode
from opwatch.errors import BadInput
from opwatch.journal.request import SweepRequest
from opwatch.journal.state import SweepState, parse_journal
from opwatch.pts.loads import ROUND, build_round_loads, build_stage_loads
from opwatch.pts.order import PtsOrder
from opwatch.pts.planning import make_part_levels
from opwatch.pts.record import PtsEnd, PtsRecord
from opwatch.pts.results import derive_part
from opwatch.pts.samples import PtsSample
from opwatch.sinks.sweep.pts_document import build_pts_document
from opwatch.sinks.sweep.pts_table import format_pts
from opwatch.sweep.levels import LevelScale, OpLevel
from tests.unit.sweep.test_journal import REQUEST

SCHEMA: dict[str, Any] = json.loads(
    (Path(__file__).parents[3] / "docs" / "schema" / "sweep-test.json").read_text()
)
HEADER = {"device": "M", "kind": "disk", "write_cache": "write through", "software": "opwatch"}


def make_pts_sample(
    block: int, read: int, ios: int, number: int, stage: str = ROUND, begin_s: float = 0.0
) -> PtsSample:
    return PtsSample(
        stage=stage,
        number=number,
        read_percent=read,
        block_bytes=block,
        begin_s=begin_s,
        seconds=60.0,
        ios=ios,
        read_bytes=ios * block * read // 100,
        write_bytes=ios * block * (100 - read) // 100,
        mean_ns=1e9 / ios,
        five_nines_ns=None if number == 1 else 1e6 * number,
        max_ns=number * 10**7,
    )


def make_rounds(name: str, rates: Sequence[float]) -> tuple[PtsSample, ...]:
    order = PtsOrder(name)
    return tuple(
        make_pts_sample(load.block_bytes, load.read_percent, int(rate), number)
        for number, rate in enumerate(rates, 1)
        for load in build_round_loads(order, order.parts[0], 512)
    )


def make_record(samples: tuple[PtsSample, ...], end: PtsEnd = PtsEnd.STEADY, place: int = 0) -> PtsRecord:
    return PtsRecord(place, end, samples, (), 512, "fio-3.33")


def make_request(order: PtsOrder, purge: str = "format") -> SweepRequest:
    size = REQUEST.identity.size_bytes
    levels = make_part_levels(order, OpLevel("all", size, LevelScale(size)))
    return replace(REQUEST, levels=levels, method="window", purge=purge, test=order)


def test_matrix_covers_only_the_steady_window() -> None:
    rates = [9e6, 5e6, 3e6, 3.0e6, 3.1e6, 3.0e6, 3.1e6]
    order = PtsOrder("iops")
    done = derive_part(order, order.parts[0], make_record(make_rounds("iops", rates)))
    assert done.is_whole
    assert done.verdict
    assert done.window == (3, 7)
    assert [fit.variable for fit in done.verdict.fits] == [
        "IOPS, 0/100 4096",
        "IOPS, 65/35 65536",
        "IOPS, 100/0 1048576",
    ]
    assert len(done.figures) == 56
    [point] = [one for one in done.figures if one.name == "0/100 4096"]
    assert point.iops == pytest.approx(sum(rates[2:]) / 5 / 60)
    assert (point.max_ns, point.five_nines_ns, point.loads) == (7 * 10**7, 7e6, 5)


def test_incomplete_round_does_not_count() -> None:
    order = PtsOrder("iops")
    samples = make_rounds("iops", [3e6] * 5)
    assert derive_part(order, order.parts[0], make_record(samples)).is_whole
    cut = derive_part(order, order.parts[0], make_record(samples[:-1], PtsEnd.BUDGET))
    assert (cut.verdict, cut.is_whole) == (None, False)
    assert "needs 5" in cut.unjudged


def test_latency_follows_latency_and_throughput_bytes() -> None:
    order = PtsOrder("latency")
    slow = derive_part(order, order.parts[0], make_record(make_rounds("latency", [1e5, 1e5, 1e5, 1e5, 2e5])))
    assert slow.verdict
    assert not slow.verdict.is_steady
    assert slow.verdict.fits[0].values[0] == pytest.approx(1e4)
    order = PtsOrder("throughput")
    fast = derive_part(order, order.parts[0], make_record(make_rounds("throughput", [6e4] * 5)))
    assert fast.verdict
    assert fast.verdict.fits[0].average == pytest.approx(1000 * (128 << 10) / 1e6)


def test_saturation_ended_by_its_byte_limit_is_not_steady() -> None:
    order = PtsOrder("wsat")
    falling = make_record(make_rounds("wsat", [9e6, 7e6, 5e6, 3e6, 2e6, 1e6]), PtsEnd.CAPACITY)
    done = derive_part(order, order.parts[0], falling)
    assert done.verdict
    assert (done.verdict.is_steady, done.is_whole, done.window) == (False, False, (2, 6))


def make_crossing_record(last: Sequence[int]) -> PtsRecord:
    first = [make_pts_sample(1 << 20, 0, 6000, at, "stretch 1", 60.0 * at) for at in range(1, 11)]
    mixed = [make_pts_sample(8192, 0, 9000, at, "stretch 2", 60.0 * (10 + at)) for at in range(1, 4)]
    third = [
        make_pts_sample(1 << 20, 0, ios, at, "stretch 3", 60.0 * (13 + at)) for at, ios in enumerate(last, 1)
    ]
    whole = replace(make_pts_sample(1 << 20, 0, 60000, 1, "stretch 1"), max_ns=10**9, five_nines_ns=7e8)
    return PtsRecord(0, PtsEnd.DONE, (*first, *mixed, *third), (whole,), 512, "fio-3.33")


@pytest.mark.parametrize(
    ("last", "seconds"), [((6000, 6000), 0), ((3000, 5000, 5400), 120), ((10, 20), None)]
)
def test_recovery_lasts_until_the_rate_returns(last: tuple[int, ...], seconds: float | None) -> None:
    order = PtsOrder("xsr")
    done = derive_part(order, order.parts[0], make_crossing_record(last))
    assert done.recovery_s == seconds
    assert done.is_whole
    assert done.stages[0].max_ns == 10**9
    text = "\n".join(
        format_pts(build_pts_document(make_request(order), {0: make_crossing_record(last)}, is_ended=True))
    )
    assert "stretch 3" in text
    [words] = re.findall(r"reached 90 % [^.]*(?:\.\d s)?", " ".join(text.split()))
    after = re.search(r"([\d.]+) s$", words)
    assert (float(after[1]) if after else None) == seconds


def make_documents() -> list[dict[str, Any]]:
    orders = [PtsOrder(name, header=HEADER) for name in ("iops", "wsat", "latency")]
    measured = [make_record(make_rounds(order.name, [3e6] * 5)) for order in orders]
    answers = [
        build_pts_document(make_request(order), {0: one}, is_ended=True)
        for order, one in zip(orders, measured, strict=True)
    ]
    order = PtsOrder("xsr", "client", 0.01, header=HEADER)
    answers.append(
        build_pts_document(make_request(order, "discard"), {0: make_crossing_record([1])}, is_ended=False)
    )
    order = PtsOrder("throughput")
    return [*answers, build_pts_document(make_request(order), {}, is_ended=False)]


def test_document_matches_its_schema() -> None:
    validator = importlib.import_module("jsonschema").Draft202012Validator(SCHEMA)
    for answer in make_documents():
        raw = json.loads(json.dumps(answer))
        assert [error.message for error in validator.iter_errors(raw)] == []
        assert set(raw) == set(SCHEMA["$defs"]["PtsDocument"]["properties"])
        assert all(len(line) <= 80 for line in format_pts(raw))
        assert list(validator.iter_errors(raw | {"parts": 3}))


def test_report_lists_its_deviations() -> None:
    plain, *_, scaled, _ = make_documents()
    assert (plain["is_conforming"], plain["deviations"], plain["is_whole"]) == (True, [], True)
    assert "NOT CONFORMING" not in "\n".join(format_pts(plain))
    assert not scaled["is_conforming"]
    assert not scaled["is_whole"]
    text = " ".join(scaled["deviations"])
    for reason in ("1 % of the specification's", "purged by a discard", "must be on: write through"):
        assert reason in text
    order = PtsOrder("iops", rounds=7, header=HEADER | {"kind": "loop"})
    large = replace(make_record(make_rounds("iops", [1e6] * 5), PtsEnd.BUDGET), logical_bytes=4096)
    text = " ".join(build_pts_document(make_request(order), {0: large}, is_ended=True)["deviations"])
    for reason in ("at most 7 rounds, not 25", "whole drive: loop", "7 test points are below", "--max-write"):
        assert reason in text


def test_other_document_is_refused() -> None:
    with pytest.raises(BadInput, match=r"sweep run --test$"):
        list(format_pts({"type": "sweep"}))
    with pytest.raises(BadInput):
        list(format_pts(make_documents()[0] | {"parts": [{"name": 3}]}))


def test_journal_keeps_the_finished_parts(tmp_path: Path) -> None:
    request = make_request(PtsOrder("throughput", "client", 0.5, header=HEADER))
    done = make_record(make_rounds("throughput", [6e4] * 5))
    entries = [
        {"entry": "request", "schema": "opwatch-sweep/1", **encode(request)},
        {"entry": "step", "level": 0, "kind": "round", "write_bytes": 1000},
        {"entry": "unwritten", "bytes": 400},
        {"entry": "part", **encode(done)},
    ]
    raw = b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)
    state = parse_journal(raw, "it")
    assert state.request == request
    assert state.parts == {0: done}
    assert (state.remaining_levels, state.announced_bytes) == ((1,), 600)
    with pytest.raises(BadInput, match="part 2 "):
        parse_journal(raw + json.dumps({"entry": "part", **encode(done), "part": 2}).encode() + b"\n", "it")
    with pytest.raises(BadInput, match="number of levels"):
        first = entries[0] | {"levels": []}
        parse_journal(json.dumps(first).encode() + b"\n", "it")


def test_damaged_record_is_refused() -> None:
    fine = encode(make_record(make_rounds("wsat", [1e6])))
    assert decode(PtsRecord, fine, "it").samples
    for change in ({"end": "x"}, {"samples": 3}, {"samples": [3]}, {"logical_bytes": -1}):
        with pytest.raises(BadInput):
            decode(PtsRecord, fine | change, "it")
    with pytest.raises(BadInput, match="duration of 0"):
        decode(PtsRecord, fine | {"samples": [fine["samples"][0] | {"seconds": 0}]}, "it")


def test_remaining_plan_covers_the_unfinished_parts() -> None:
    request = make_request(PtsOrder("wsat"))
    state = SweepState(replace(request, budget=replace(request.budget, is_of_plan=True)))
    assert state.find_remaining_budget(None).write_bytes == 4 * REQUEST.identity.size_bytes
    assert [load.stage for load in build_stage_loads(PtsOrder("wsat"), request.test.parts[0])] == []  # type: ignore[union-attr]
