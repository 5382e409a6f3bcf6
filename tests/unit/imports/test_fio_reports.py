"""fio's reports as recordings: rates equal fio's, for every version and set of options."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opwatch.errors import BadInput
from opwatch.imports.fio import parse_fio
from opwatch.samples.observation import Observation
from opwatch.samples.presenter import RunPresenter

GOOD = Path(__file__).parents[2] / "fixtures" / "good" / "imports"


def collect_finals(raw: bytes) -> dict[str, Observation]:
    """Return the last observation of each row, by its name."""
    story = RunPresenter()
    news = [one for entry in parse_fio(raw, "it").entries for one in story.process_entry(entry)]
    return {one.device: one for one in news if isinstance(one, Observation) and one.final}


def read_report(name: str) -> tuple[bytes, dict[str, Any]]:
    """Return (the bytes of a report, its only job)."""
    raw = (GOOD / name).read_bytes()
    [job] = json.loads(raw[raw.index(b"\n{") :] if not raw.startswith(b"{") else raw)["jobs"]
    return raw, job


@pytest.mark.parametrize("name", ["fio-group4.json", "fio-ramp.json"])
def test_rates_are_fio_s_own_when_jobs_are_grouped_or_ramp_up(name: str) -> None:
    raw, job = read_report(name)
    [summary] = collect_finals(raw).values()
    interval = summary.interval
    for op in ("read", "write"):
        count = interval.ops[op].count if op in interval.ops else 0
        assert count / interval.seconds == pytest.approx(job[op]["iops"], rel=1e-4)
    # job_runtime of the group is 8.0 s: the sum of four threads.
    assert interval.seconds == pytest.approx(2.0, abs=0.01)


def test_operations_with_different_durations_have_separate_rows() -> None:
    raw, job = read_report("fio-verify.json")
    rows = collect_finals(raw)
    assert set(rows) == {"verify read", "verify write"}
    for op in ("read", "write"):
        interval = rows[f"verify {op}"].interval
        assert interval.seconds == pytest.approx(job[op]["runtime"] / 1000)
        assert interval.ops[op].count / interval.seconds == pytest.approx(job[op]["iops"], rel=1e-4)


@pytest.mark.parametrize("name", ["fio-3.1-json.json", "fio-3.1-json-plus.json", "fio-2.2.10.json"])
def test_older_versions_have_the_same_rates_and_means(name: str) -> None:
    """No report here has job_runtime; version 2.2 has whole microseconds and KiB."""
    raw, job = read_report(name)
    [summary] = collect_finals(raw).values()
    for op in ("read", "write"):
        counted, key, unit = summary.interval.ops[op], "clat_ns", 1
        if key not in job[op]:
            key, unit = "clat", 1000
        assert counted.count == job[op]["total_ios"]
        assert counted.bytes == 4096 * counted.count
        assert counted.count / summary.interval.seconds == pytest.approx(job[op]["iops"], rel=1e-3)
        assert counted.latency.mean == pytest.approx(job[op][key]["mean"] * unit, rel=1e-4)
        assert counted.latency.max == job[op][key]["max"] * unit


def test_bins_of_an_older_fio_match_our_slots() -> None:
    raw, job = read_report("fio-3.1-json-plus.json")
    [summary] = collect_finals(raw).values()
    for op in ("read", "write"):
        values, p50 = (
            summary.interval.ops[op].latency.quantiles,
            job[op]["clat_ns"]["percentile"]["50.000000"],
        )
        assert values["p50"] == pytest.approx(p50, rel=0.04)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace('"total_ios"', '"ios"'), r"\b2\.2\b"),
        (lambda text: text + text, "several"),
        (lambda text: text.replace('"jobs"', '"client_stats"'), "fio --client"),
        (lambda text: text.replace("fio-2.2.10", "fio-3.33"), "fio reports"),
    ],
)
def test_incomplete_reports_are_refused(change: Callable[[str], str], words: str) -> None:
    raw, _ = read_report("fio-2.2.10.json")
    with pytest.raises(BadInput, match=words):
        parse_fio(change(raw.decode()).encode(), "it")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("iops", 640.0, r"\b640 requests\b"),
        ("bw", 2560, r"\b2560 KiB/s"),
        ("total_ios", 1280, r"\b159\.8"),
        ("io_bytes", 1310720 * 4, r"\b639 KiB/s"),
        ("runtime", 8008, r"\b159\.8"),
    ],
)
def test_a_report_that_disagrees_with_its_own_rates_is_refused(key: str, value: object, words: str) -> None:
    raw, _ = read_report("fio-group4.json")
    document = json.loads(raw)
    document["jobs"][0]["read"][key] = value
    with pytest.raises(BadInput, match=words):
        parse_fio(json.dumps(document).encode(), "it")


def test_bins_that_disagree_with_their_mean_or_count_are_refused() -> None:
    raw, _ = read_report("fio-group4.json")
    for key, words in (("mean", "mean"), ("N", "bins have 320 requests")):
        document = json.loads(raw)
        document["jobs"][0]["read"]["clat_ns"][key] *= 2
        with pytest.raises(BadInput, match=words):
            parse_fio(json.dumps(document).encode(), "it")


def test_an_operation_without_latencies_has_no_queue_depth_and_no_maximum() -> None:
    """With gtod_reduce, fio counts requests without latencies."""
    raw, _ = read_report("fio-group4.json")
    document = json.loads(raw)
    for latency in ("slat_ns", "clat_ns", "lat_ns"):
        document["jobs"][0]["read"].pop(latency, None)
    [summary] = collect_finals(json.dumps(document).encode()).values()
    assert {"queue_depth", "percentiles", "max"} <= set(summary.missing_fields)
    assert summary.interval.ops["read"].count == 320
