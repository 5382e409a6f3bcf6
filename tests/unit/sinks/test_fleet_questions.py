"""The questions of tools/deploy/sql in DuckDB: their answers are those of a fleet with known truth."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from opwatch.sinks.export.duckdb_writer import DuckdbWriter
from opwatch.sinks.export.table import COLUMNS, compute_shard
from opwatch.trace.abi import LATENCY
from tests.fleet.engines import QUESTIONS, DuckdbEngine, read_statements
from tests.fleet.parquet_fleet import BAD_FIRMWARE, BAD_MODEL, FleetPlan, FleetTruth, make_fleet

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
GIB = 1 << 30


@dataclass(frozen=True)
class Fleet:
    folder: Path
    truth: FleetTruth
    engine: DuckdbEngine

    def read(self, query: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self.engine.connection.execute(query).fetchall()
        return rows


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("archive") / "fleet"
    plan = FleetPlan(80, 2, rows=96, seed=5, slow=2, jumps=2, lost=4)
    truth = make_fleet(folder, plan)
    engine = DuckdbEngine(folder)
    yield Fleet(folder, truth, engine)
    engine.connection.close()


@pytest.fixture(scope="module")
def histograms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("archive") / "fleet"
    truth = make_fleet(
        folder, FleetPlan(24, 2, rows=4, row_s=60, seed=8, has_histograms=True, has_bad_firmware=True)
    )
    engine = DuckdbEngine(folder)
    yield Fleet(folder, truth, engine)
    engine.connection.close()


def test_quantile_is_in_the_slot_of_all_requests(histograms: Fleet) -> None:
    counts: dict[tuple[str, str, str], Counter[int]] = {}
    for model, firmware, op, latency in histograms.read(
        "SELECT model, firmware, op, latency FROM archive_rows"
    ):
        for hit in latency:
            counts.setdefault((model, firmware, op), Counter())[hit["slot"]] += hit["count"]
    answers = {(row["model"], row["firmware"], row["op"]): row for row in histograms.engine.ask("latency")}
    assert answers.keys() == counts.keys()
    for key, slots in counts.items():
        rank, so_far = math.ceil(0.999 * slots.total()), 0
        for slot in sorted(slots):
            so_far += slots[slot]
            if so_far >= rank:
                break
        answer = answers[key]
        assert (answer["slot"], answer["requests"]) == (slot, slots.total())
        assert (answer["low_ns"], answer["high_ns"]) == LATENCY.find_edges(slot)


def test_firmware_with_a_longer_tail_is_visible(histograms: Fleet) -> None:
    reads = {
        (row["model"], row["firmware"]): row["low_ns"]
        for row in histograms.engine.ask("latency")
        if row["op"] == "read"
    }
    good, bad = reads[BAD_MODEL, "FW1"], reads[BAD_MODEL, BAD_FIRMWARE]
    assert bad > 1.3 * good


def test_waf_of_a_workload_is_within_its_bounds(fleet: Fleet) -> None:
    answers = fleet.engine.ask("waf")
    assert len(answers) >= 9
    wanted = {"writes below 16 KiB": 3.0, "writes of 16 to 128 KiB": 1.8, "writes of 128 KiB and more": 1.1}
    jumped = {
        model
        for [model] in fleet.read(
            "SELECT DISTINCT model FROM samples WHERE (host, device) IN "
            f"({', '.join(map(str, fleet.truth.jumps))})"
        )
    }
    for row in answers:
        assert row["waf_low"] < row["waf"] < row["waf_high"]
        if row["model"] not in jumped:
            assert row["waf_low"] <= wanted[row["workload"]] <= row["waf_high"]
    assert len(jumped) < len({row["model"] for row in answers})


def test_jumps_of_the_waf_are_found_and_no_other(fleet: Fleet) -> None:
    assert {(row["host"], row["device"]) for row in fleet.engine.ask("waf_jump")} == fleet.truth.jumps


def test_lost_trims_are_found_with_their_reason(fleet: Fleet) -> None:
    answers = {(row["host"], row["device"]): row["reason"] for row in fleet.engine.ask("trim_lost")}
    assert answers == fleet.truth.lost


def test_slow_drives_are_found_and_no_other(fleet: Fleet) -> None:
    answers = fleet.engine.ask("fail_slow")
    assert {(row["host"], row["device"]) for row in answers} == fleet.truth.slow.keys()
    for row in answers:
        assert row["times_slower"] == pytest.approx(fleet.truth.slow[row["host"], row["device"]], rel=0.35)


def test_end_of_the_endurance_is_within_its_bounds(fleet: Fleet) -> None:
    query = """
        SELECT host, device, (1e15 - max(media_bytes)) / (max(media_bytes) - min(media_bytes))
            * (max(time_s) - min(time_s)) / 86400
        FROM samples WHERE op = 'write' GROUP BY host, device
    """
    days = {(host, device): left for host, device, left in fleet.read(query)}
    answers = fleet.engine.ask("endurance")
    assert len(answers) == len(days) == 160
    for row in answers:
        assert row["method"] == "by NAND bytes"
        assert row["early_days"] < days[row["host"], row["device"]] < row["late_days"]


def test_compaction_keeps_every_row(histograms: Fleet, tmp_path: Path) -> None:
    [statement] = read_statements("compact")
    [[day]] = histograms.read("SELECT DISTINCT day FROM archive_rows")
    text = statement.replace("2026-11-29", day).replace("'fleet/", f"'{histograms.folder}/")
    histograms.read(text.replace("'compacted'", f"'{tmp_path}/compacted'"))
    compacted = DuckdbEngine(tmp_path / "compacted")
    columns = ", ".join(COLUMNS)
    rows = f"SELECT {columns}, day, shard FROM archive_rows ORDER BY ALL"
    assert histograms.read(rows) == compacted.connection.execute(rows).fetchall()
    files = sorted((tmp_path / "compacted").rglob("*.parquet"))
    assert len(files) == len({path.parent for path in files})
    for path in files:
        keys = compacted.connection.execute(
            f"SELECT model, op, host, device, time FROM read_parquet('{path}')"
        ).fetchall()
        # DuckDB 2.0 may misplace the first rows of a sorted table when it writes partitions.
        assert sum(one > other for one, other in pairwise(keys)) <= 3
        assert {compute_shard(key[2]) for key in keys} == {path.parent.name.removeprefix("shard=")}
    compacted.connection.close()


def make_row(minutes: int, device: str = "sda", op: str = "write", **values: object) -> dict[str, Any]:
    at = NOON + timedelta(minutes=minutes)
    return {
        **dict.fromkeys(COLUMNS),
        "host": "web1",
        "device": device,
        "op": op,
        "time": f"{at:%Y-%m-%d %H:%M:%S.%f}",
        "interval_s": 60.0,
        "requests": 1000,
        "bytes": 1000 * 4096,
        "errors": 0,
        "latency": [],
        "lacks": [],
        **values,
    }


def ask_rows(folder: Path, question: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    lines, target = folder / "rows.json", folder / "fleet" / "day=2026-11-29" / "shard=00"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    target.mkdir(parents=True)
    with closing(DuckdbWriter()) as writer:
        writer.copy_rows(lines, target / "a.parquet", {}, partitions={})
    engine = DuckdbEngine(folder / "fleet")
    answers = engine.ask(question)
    engine.connection.close()
    return answers


def count_media(minutes: int, host: int | None, media: int | None) -> dict[str, Any]:
    return make_row(minutes, host_bytes=host, media_bytes=media, host_quantum_bytes=1, media_quantum_bytes=1)


def test_waf_leaves_out_a_counter_that_went_back(tmp_path: Path) -> None:
    counts = [(0, 100, 1000), (60, 200, 1200), (120, 0, 0), (180, 100, 200)]
    [row] = ask_rows(tmp_path, "waf", [count_media(*count) for count in counts])
    assert (row["host_bytes"], row["media_bytes"]) == (200, 400)
    assert row["model"] == "unknown"


def test_waf_of_a_series_has_the_error_of_its_ends_only(tmp_path: Path) -> None:
    rows = [count_media(60 * hour, 1000 * hour, 2000 * hour) for hour in range(11)]
    [row] = ask_rows(tmp_path, "waf", rows)
    assert (row["waf_low"], row["waf_high"]) == (19999 / 10001, 20001 / 9999)


def test_waf_needs_both_counters(tmp_path: Path) -> None:
    assert ask_rows(tmp_path, "waf", [count_media(60 * hour, hour, None) for hour in range(3)]) == []


@pytest.mark.parametrize(
    ("used", "method", "early", "late"),
    [
        ((40, 44), "by percentage", 55 / 5, 57 / 3),
        ((40, 41), "it has worn too little", None, None),
        ((99, 100), "its rated endurance is used", 0, 0),
    ],
)
def test_endurance_by_percentage_needs_a_growth_of_two(
    tmp_path: Path, used: tuple[int, int], method: str, early: float | None, late: float | None
) -> None:
    rows = [make_row(minutes, used_percent=percent) for minutes, percent in zip((0, 700), used, strict=True)]
    [row] = ask_rows(tmp_path, "endurance", rows)
    assert row["method"] == method
    days = 700 / 1440
    assert row["early_days"] == (None if early is None else pytest.approx(early * days))
    assert row["late_days"] == (None if late is None else pytest.approx(late * days))


def test_drive_without_discards_is_not_accused_if_its_peers_have_none(tmp_path: Path) -> None:
    rows = [make_row(0, device=f"sd{letter}", bytes=2 * GIB) for letter in "abc"]
    rows += [make_row(0, device="sda", op="discard", bytes=GIB, whole_granule_bytes=GIB)]
    assert ask_rows(tmp_path, "trim_lost", rows) == []


def test_few_drives_are_not_judged_for_slowness(tmp_path: Path) -> None:
    rows = [
        make_row(15 * quarter, device=f"sd{letter}", mean_ns=1e6 if letter == "a" else 1e5)
        for quarter in range(40)
        for letter in "ab"
    ]
    assert ask_rows(tmp_path, "fail_slow", rows) == []


@pytest.mark.parametrize("question", QUESTIONS)
def test_archive_without_a_figure_has_an_empty_answer(tmp_path: Path, question: str) -> None:
    assert ask_rows(tmp_path, question, [make_row(0, op="flush", requests=0, bytes=0)]) == []
