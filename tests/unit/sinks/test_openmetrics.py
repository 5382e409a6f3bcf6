"""A recording as OpenMetrics: accepted by Prometheus' parser, with the same values as replay."""

from __future__ import annotations

import gzip
import importlib
import io
import json
from collections import defaultdict
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from opwatch.sinks.export.openmetrics import FAMILIES, OpenMetrics
from opwatch.tools import cli
from tests.unit.sinks.test_jsonl import BUSY, make_observation

RECORDING = Path(__file__).parents[2] / "fixtures" / "good" / "recordings" / "1.opw.gz"


def parse_metrics(text: str) -> dict[str, Any]:
    """Return the metric families from Prometheus' parser, which enforces the specification."""
    parser = importlib.import_module("prometheus_client.openmetrics.parser")
    return {family.name: family for family in parser.text_string_to_metric_families(text)}


def run_command(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert cli.main(list(argv)) == 0
    return capsys.readouterr().out


@pytest.fixture
def kept(tmp_path: Path) -> str:
    path = tmp_path / "run.opw"
    path.write_bytes(gzip.decompress(RECORDING.read_bytes()))
    return str(path)


def test_counters_are_the_sums_of_the_intervals(kept: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = run_command(capsys, "dump", kept, "-O", "openmetrics")
    families = parse_metrics(text)
    assert text.endswith("\n# EOF\n")
    trees = [json.loads(line) for line in run_command(capsys, "replay", kept, "--json").splitlines()]
    sums: dict[tuple[str, str, str], int] = defaultdict(int)
    for tree in trees:
        if tree["type"] == "interval":
            for op, counted in tree["ops"].items():
                sums[tree["device"], op, "requests"] += counted["count"]
                sums[tree["device"], op, "transferred_bytes"] += counted["bytes"]
    for name in ("requests", "transferred_bytes"):
        last: dict[tuple[str, str, str], float] = {}
        for sample in families[f"opwatch_{name}"].samples:
            key = sample.labels["device"], sample.labels["op"], name
            assert sample.value >= last.get(key, 0)
            last[key] = sample.value
        assert len(last) > 3
        assert last == {key: value for key, value in sums.items() if key in last}
        assert not any(value for key, value in sums.items() if key not in last and key[2] == name)
    assert families["opwatch_latency_seconds"].unit == "seconds"


def test_each_value_has_the_time_of_its_interval(kept: str, capsys: pytest.CaptureFixture[str]) -> None:
    families = parse_metrics(run_command(capsys, "dump", kept, "-O", "openmetrics"))
    lines = run_command(capsys, "dump", kept, "-O", "jsonl", "-f", "device,end_mono_ns").splitlines()
    ends = [row["end_mono_ns"] for row in map(json.loads, lines) if row["device"] == "nvme0n1"]
    samples = families["opwatch_unexplained"].samples
    times = [float(sample.timestamp) for sample in samples if sample.labels["device"] == "nvme0n1"]
    assert len(times) == len(ends)
    steps = [(one - times[0]) - (end - ends[0]) / 1e9 for one, end in zip(times, ends, strict=True)]
    assert max(map(abs, steps)) < 2e-6


def test_quantiles_errors_and_names_that_need_escapes() -> None:
    stream = io.StringIO()
    sink = OpenMetrics(stream)
    first = replace(make_observation(read=BUSY), device='a"b\\c\nd')
    sink.write_observation(first)
    sink.write_observation(replace(first, at=first.at + timedelta(seconds=1)))
    # Timestamps of a metric grow even if the clock was set back.
    sink.write_observation(replace(make_observation(), device=first.device, at=first.at - timedelta(hours=1)))
    sink.write_observation(make_observation(final=True, read=BUSY))
    assert stream.getvalue() == ""
    sink.finish_output()
    families = parse_metrics(stream.getvalue())
    latency = families["opwatch_latency_seconds"].samples
    assert {sample.labels["device"] for sample in latency} == {'a"b\\c?d'}
    # The parser keeps only the first sample of later points, because its set of duplicates is never cleared.
    of_p50 = [line.split()[-2] for line in stream.getvalue().splitlines() if 'quantile="0.5"' in line]
    median = first.interval.ops["read"].latency.quantiles["p50"]
    assert median
    assert [float(value) for value in of_p50] == pytest.approx([median * 1e-9] * 2)
    counts = [sample.value for sample in latency if sample.name.endswith("_count")]
    assert counts == [3, 6, 6]
    times = [float(sample.timestamp) for sample in families["opwatch_requests"].samples]
    assert times == sorted(set(times))
    assert len(times) == 3


def test_empty_exposition_is_valid() -> None:
    stream = io.StringIO()
    OpenMetrics(stream).finish_output()
    assert stream.getvalue() == "# EOF\n"
    assert parse_metrics(stream.getvalue()) == {}


def test_names_end_with_their_units() -> None:
    for family in FAMILIES:
        assert not family.unit or family.name.endswith(f"_{family.unit}")
        assert not family.name.endswith(("_total", "_count", "_sum", "_bucket"))
