"""Remaining life predicted from a recording: under an even load the true value is in the interval, despite
rounding."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from opwatch.counters.looks.sample import CommandKind, DriveAnswer, NvmeCommand
from opwatch.counters.prove.outlook import LoadInterval, estimate_outlooks
from opwatch.counters.reading import CounterReading, DriveFacts, Proof, Report
from opwatch.samples.entries import CountersRead, RunEntry
from opwatch.tools.cli import main
from tests.unit.support.recordings import record_run
from tests.unit.support.runs import GeneratedRun

Readings = dict[str, CounterReading]
ROUNDINGS = (math.floor, math.ceil, round)


def make_reading(
    value: int | None, unit: str = "percent", quantum: int = 1, source: str = "log 02h"
) -> CounterReading:
    return CounterReading(value, unit, quantum, source, Proof.SPEC)


def make_load_interval(first: Readings, last: Readings, hours: float) -> LoadInterval:
    return LoadInterval(Report(DriveFacts(), first), Report(DriveFacts(), last), hours)


def make_percentage_interval(begin: int | None, end: int | None, hours: float = 100.0) -> LoadInterval:
    return make_load_interval(
        {"percentage_used": make_reading(begin)}, {"percentage_used": make_reading(end)}, hours
    )


def make_bytes_interval(begin: int, end: int, hours: float = 100.0, step: int = 512_000) -> LoadInterval:
    first, last = (make_reading(value, "bytes", step) for value in (begin, end))
    return make_load_interval({"host_written": first}, {"host_written": last}, hours)


@given(st.floats(0, 90), st.floats(2, 60), st.floats(0.5, 10_000), st.sampled_from(ROUNDINGS))
def test_constant_wear_ends_within_the_interval(
    begin: float, grown: float, hours: float, rounded: Callable[[float], int]
) -> None:
    end = begin + grown
    assume(end < 99)
    outlooks = list(estimate_outlooks(make_percentage_interval(rounded(begin), rounded(end), hours), None))
    if rounded(end) - rounded(begin) < 2:
        assert not outlooks
        return
    [outlook] = outlooks
    truth = (100 - end) * hours / grown
    assert outlook.least_hours <= truth
    assert outlook.most_hours is None or truth <= outlook.most_hours


@given(st.integers(0, 10**15), st.integers(10**6, 10**14), st.integers(1, 10**9), st.floats(0.5, 10_000))
def test_constant_load_reaches_the_rating_within_the_interval(
    begin: int, grown: int, step: int, hours: float
) -> None:
    assume(grown > 2 * step)
    end, rated = begin + grown, begin + 2 * grown + 10**12
    shown = make_bytes_interval(-(-begin // step) * step, -(-end // step) * step, hours, step)
    [outlook] = estimate_outlooks(shown, rated)
    truth = (rated - end) * hours / grown
    assert outlook.least_hours <= truth + 1e-6 * truth
    assert outlook.most_hours is None or truth <= outlook.most_hours * (1 + 1e-6)


@pytest.mark.parametrize(
    "nothing",
    [
        make_percentage_interval(3, 4),
        make_percentage_interval(3, 2),
        make_percentage_interval(None, 9),
        make_percentage_interval(3, None),
        make_percentage_interval(50, 100),
        make_percentage_interval(3, 9, 0.0),
        make_bytes_interval(10**12, 10**12 + 512_000),
        make_load_interval({}, {}, 5.0),
        make_load_interval(
            {"percentage_used": make_reading(1, source="log 09h")}, {"percentage_used": make_reading(9)}, 5.0
        ),
    ],
)
def test_intervals_without_data_give_no_outlook(nothing: LoadInterval) -> None:
    assert list(estimate_outlooks(nothing, 10**15)) == []


def test_same_counter_is_used_at_both_ends() -> None:
    """One page exists only after the drive has counted; the other exists from the start."""
    fine, coarse = (make_reading(value, "bytes", 1, source) for value, source in ((0, "22h"), (0, "02h")))
    late, coarse_late = (make_reading(10**12, "bytes", 1, source) for source in ("02h", "09h"))
    first = Report(DriveFacts(), {"host_written": fine}, {"host_written": [coarse]})
    last = Report(DriveFacts(), {"host_written": coarse_late}, {"host_written": [late]})
    [outlook] = estimate_outlooks(LoadInterval(first, last, 10.0), 2 * 10**12)
    assert outlook.least_hours <= 10 <= (outlook.most_hours or 0)


def make_poll_entry(run: GeneratedRun, name: str, units: int) -> CountersRead:
    """A reading of log page 02h: data units written, after 1000 hours."""
    page = bytearray(512)
    page[48:64] = units.to_bytes(16, "little")
    page[80:96] = (units * 10).to_bytes(16, "little")
    page[128:144] = (1000).to_bytes(16, "little")
    answers = (DriveAnswer(NvmeCommand(CommandKind.LOG, 2), bytes(page)),)
    look = run.make_poll_entry(name, units)
    return replace(look, sample=replace(look.sample, answers=answers, smartctl=None))


def write_recording(path: Path, names: tuple[str, ...] = ("nvme0n1",)) -> Path:
    run = GeneratedRun(4)
    entries: list[RunEntry] = [run.add_disk(place, name) for place, name in enumerate(names)]
    places = list(range(len(names)))
    for hour in range(3):
        entries.append(run.make_interval_entry(places))
        # Data units of 512,000 bytes: 10^6 more per hour.
        entries += [make_poll_entry(run, name, 10**7 + 10**6 * hour) for name in names]
        run.advance_time(3600)
    record_run(path, [*entries, run.make_end_entry(places)])
    return path


def test_a_recording_predicts_the_end_of_the_rating(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_recording(tmp_path / "run.opw")
    assert main(["counters", "--from", str(path), "--tbw", "600"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    # 512 GB per hour, and 593.9 TB remain: 1160 hours.
    assert re.search(r"100 %: in (1159|1160) to 1161 .*\b1024000000000 .* 2 hours", text)
    assert main(["counters", "--from", str(path), "--tbw", "600", "--json"]) == 0
    [outlook] = json.loads(capsys.readouterr().out)["outlook"]
    assert outlook["assumes"] and outlook["assumes"] in text


def test_recordings_without_exactly_one_drive_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    several = write_recording(tmp_path / "two.opw", ("nvme0n1", "nvme1n1"))
    assert main(["counters", "--from", str(several)]) == 2
    assert re.search(f"{several} .* nvme0n1, nvme1n1: ", " ".join(capsys.readouterr().err.split()))
    assert main(["counters", "--from", str(several), str(several)]) == 2
    run = GeneratedRun(4)
    nothing = tmp_path / "none.opw"
    record_run(nothing, [run.add_disk(0, "sda"), run.make_interval_entry([0]), run.make_end_entry([0])])
    assert main(["counters", "--from", str(nothing)]) == 6
    cut = tmp_path / "cut.opw"
    cut.write_bytes(several.read_bytes()[:64])
    assert main(["counters", "--from", str(cut)]) in (1, 2)
