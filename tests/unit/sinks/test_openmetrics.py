"""A recording as OpenMetrics: accepted by Prometheus' parsers, with the same values as replay."""

from __future__ import annotations

import gzip
import importlib
import io
import json
import math
import shutil
import subprocess
from collections import defaultdict
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from opwatch.metrics.buckets import CLASSIC_BOUNDS
from opwatch.metrics.table import FAMILIES
from opwatch.sinks.export.openmetrics import OpenMetrics
from opwatch.tools import cli
from opwatch.trace.account.losses import LostRequests
from tests.requirements import skip_or_fail
from tests.unit.sinks.test_jsonl import BUSY, make_observation
from tests.unit.support.metric_answers import make_reading
from tests.unit.support.samples import Op

RECORDINGS = Path(__file__).parents[2] / "fixtures" / "good" / "recordings"


def parse_metrics(text: str) -> dict[str, Any]:
    """Return the first point of each metric family from Prometheus' parser, which enforces the specification.

    Each moment is parsed separately: the parser drops all samples but the first of a metric's later points.
    """
    parser = importlib.import_module("prometheus_client.openmetrics.parser")
    lines = text.splitlines()
    families: dict[str, Any] = {}
    for moment in sorted({line.split()[-1] for line in lines if not line.startswith("#")}) or [""]:
        chosen = [line for line in lines if line.startswith("#") or line.endswith(f" {moment}")]
        for family in parser.text_string_to_metric_families("\n".join(chosen) + "\n"):
            if family.samples:
                families.setdefault(family.name, family)
    return families


def list_points(text: str, name: str, *words: str) -> list[tuple[float, float]]:
    """Return (value, time) of a sample name's lines with these words."""
    lines = [line for line in text.splitlines() if line.startswith(f"{name}{{")]
    chosen = [line.split()[-2:] for line in lines if all(word in line for word in words)]
    return [(float(value), float(at)) for value, at in chosen]


def run_command(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert cli.main(list(argv)) == 0
    return capsys.readouterr().out


def write_metrics(*observations: Any) -> str:  # noqa: ANN401
    stream = io.StringIO()
    sink = OpenMetrics(stream)
    for observation in observations:
        sink.write_observation(observation)
    assert stream.getvalue() == ""
    sink.finish_output()
    return stream.getvalue()


@pytest.fixture
def kept(tmp_path: Path) -> str:
    path = tmp_path / "run.opw"
    path.write_bytes(gzip.decompress((RECORDINGS / "1.opw.gz").read_bytes()))
    return str(path)


def test_counters_are_the_sums_of_the_intervals(kept: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = run_command(capsys, "dump", kept, "-O", "openmetrics")
    families = parse_metrics(text)
    assert text.endswith("\n# EOF\n")
    trees = [json.loads(line) for line in run_command(capsys, "replay", kept, "--json").splitlines()]
    sums: dict[tuple[str, str, str], float] = defaultdict(int)
    for tree in trees:
        if tree["type"] == "interval":
            for op, counted in tree["ops"].items():
                sums[tree["device"], op, "io_duration_seconds_count"] += counted["count"]
                sums[tree["device"], op, "io_bytes_total"] += counted["bytes"]
                sums[tree["device"], op, "io_errors_total"] += counted["errors"]
    last = {}
    for device, op, name in sums:
        points = list_points(text, f"opwatch_{name}", f'device="{device}"', f'op="{op}"')
        values = [value for value, _ in points]
        if not points:
            assert not sums[device, op, name]
            continue
        assert values[0] == 0
        assert values == sorted(values)
        last[device, op, name] = values[-1]
    assert len(last) > 10
    assert last == {key: sums[key] for key in last}
    assert families["opwatch_io_duration_seconds"].unit == "seconds"


def test_each_value_has_the_time_of_its_interval(kept: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = run_command(capsys, "dump", kept, "-O", "openmetrics")
    lines = run_command(capsys, "dump", kept, "-O", "jsonl", "-f", "device,end_mono_ns").splitlines()
    ends = [row["end_mono_ns"] for row in map(json.loads, lines) if row["device"] == "nvme0n1"]
    times = [at for _, at in list_points(text, "opwatch_io_in_flight", 'device="nvme0n1"')]
    assert len(times) == len(ends)
    steps = [(one - times[0]) - (end - ends[0]) / 1e9 for one, end in zip(times, ends, strict=True)]
    assert max(map(abs, steps)) < 2e-6


def test_buckets_are_those_of_the_durations() -> None:
    durations = [5_000, 100_000, 100_001, 3_000_000, 70_000_000_000]
    first = make_observation(read=Op(durations, [512] * 5))
    text = write_metrics(first, replace(first, at=first.at + timedelta(seconds=1)))
    parse_metrics(text)
    for bound in (*CLASSIC_BOUNDS, math.inf):
        le = "+Inf" if bound == math.inf else repr(bound)
        below = sum(one / 1e9 <= bound for one in durations)
        points = list_points(text, "opwatch_io_duration_seconds_bucket", f'le="{le}"')
        assert [value for value, _ in points] == [0, below, 2 * below]
    sums = [value for value, _ in list_points(text, "opwatch_io_duration_seconds_sum")]
    assert sums == [0, sum(durations) / 1e9, 2 * sum(durations) / 1e9]
    in_queue = write_metrics(make_observation(read=BUSY))
    queue = list_points(in_queue, "opwatch_queue_duration_seconds_count", 'op="read"')
    assert [value for value, _ in queue] == [0, 3]


def test_times_grow_even_if_the_clock_was_set_back() -> None:
    first = replace(make_observation(read=BUSY), device='a"b\\c\nd')
    back = replace(make_observation(), device=first.device, at=first.at - timedelta(hours=1))
    later = replace(first, at=first.at + timedelta(seconds=1))
    text = write_metrics(first, later, back, make_observation(final=True, read=BUSY))
    families = parse_metrics(text)
    devices = {sample.labels["device"] for sample in families["opwatch_io_bytes"].samples}
    assert devices == {'a"b\\c\nd'}
    values, times = zip(*list_points(text, "opwatch_io_bytes_total", 'op="read"'), strict=True)
    assert values == (0, 12800, 25600, 25600)
    assert list(times) == sorted(set(times))


def test_operation_that_comes_later_starts_at_the_interval_before() -> None:
    first = make_observation(read=BUSY)
    second = replace(make_observation(write=BUSY), at=first.at + timedelta(seconds=1))
    text = write_metrics(first, second)
    at = first.at.timestamp()
    assert list_points(text, "opwatch_io_errors_total", 'op="write"') == [(0, at), (3, at + 1)]
    assert list_points(text, "opwatch_io_errors_total", 'op="read"') == [(0, at - 1), (3, at), (3, at + 1)]


def test_missing_values_have_no_series() -> None:
    lacks = ("percentiles: no", "errors: no", "queue_depth: no", "trust: no")
    one = replace(make_observation(read=BUSY), lacks=lacks, lost=LostRequests(0, 0))
    text = write_metrics(one)
    assert set(parse_metrics(text)) == {
        "opwatch_io_duration_seconds",
        "opwatch_io_bytes",
        "opwatch_queue_duration_seconds",
    }
    assert list_points(text, "opwatch_io_duration_seconds_bucket")[-1][0] == 3
    assert {line.count("le=") for line in text.splitlines() if "io_duration_seconds_bucket" in line} == {1}
    assert 'io_duration_seconds_bucket{device="sda",op="read",le="+Inf"} 3 ' in text


def test_losses_are_summed_if_the_kernel_has_statistics() -> None:
    one = replace(make_observation(read=BUSY), lost=LostRequests(1, 2))
    assert "unexplained" not in write_metrics(one)
    known = replace(one, trust=replace(one.trust, no_drift=None))
    text = write_metrics(known, replace(known, at=known.at + timedelta(seconds=1)))
    assert [value for value, _ in list_points(text, "opwatch_unexplained_requests_total")] == [0, 2, 4]
    assert [value for value, _ in list_points(text, "opwatch_untraced_requests_total")] == [0, 1, 2]


def test_recorded_drive_counters_are_exported(kept: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = run_command(capsys, "dump", kept, "-O", "openmetrics")
    read = list_points(text, "opwatch_host_read_bytes_total", 'serial="S1"', 'source="firmware"')
    assert [value for value, _ in read] == [512_000_000] * 2
    # The second poll read no page: it is a failure, and the values stay.
    failures = list_points(text, "opwatch_firmware_read_failures_total", 'reason="refused"')
    assert [value for value, _ in failures] == [0, 1]
    timestamps = list_points(text, "opwatch_firmware_read_timestamp_seconds")
    assert timestamps[0][0] == timestamps[1][0] == pytest.approx(timestamps[0][1])


def test_readings_of_a_drive_are_points() -> None:
    stream = io.StringIO()
    sink = OpenMetrics(stream)
    at = make_observation().at
    sink.write_reading(at, make_reading())
    sink.write_reading(at + timedelta(seconds=5), make_reading())
    sink.finish_output()
    families = parse_metrics(stream.getvalue())
    points = list_points(stream.getvalue(), "opwatch_media_written_bytes_total")
    assert points == [(3e14, at.timestamp()), (3e14, at.timestamp() + 5)]
    assert families["opwatch_drive_info"].samples[0].labels["model"] == "SAMSUNG MZQL23T8HCLS-00A07"


@pytest.mark.parametrize("name", ["1.opw.gz", "1-command.opw.gz", "1-fio.opw.gz", "1-killed.opw.gz"])
def test_promtool_makes_blocks_of_recordings(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    promtool = shutil.which("promtool")
    if not promtool:
        skip_or_fail("promtool", "promtool is not installed (Debian package prometheus)")
    run, text = tmp_path / "run.opw", tmp_path / "run.om"
    run.write_bytes(gzip.decompress((RECORDINGS / name).read_bytes()))
    text.write_text(run_command(capsys, "dump", str(run), "-O", "openmetrics"))
    made = subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "openmetrics", str(text), str(tmp_path / "blocks")],
        capture_output=True,
        check=False,
    )
    assert (made.returncode, made.stderr) == (0, b"")


def test_empty_exposition_is_valid() -> None:
    assert write_metrics() == "# EOF\n"
    assert parse_metrics("# EOF\n") == {}


def test_metrics_are_those_of_the_table() -> None:
    families = parse_metrics(write_metrics(make_observation(read=BUSY)))
    assert set(families) <= {family.stem for family in FAMILIES}
