from __future__ import annotations

import json
from pathlib import Path

import pytest

from opwatch.errors import BadInput
from opwatch.fio.logs import compute_bin_middle_ns
from opwatch.fio.report import extract_json, parse_report, remove_json

FIXTURES = Path(__file__).parents[2] / "fixtures"
GOOD, BAD = FIXTURES / "good" / "fio", FIXTURES / "bad" / "fio"


def test_every_job_with_bins_is_parsed() -> None:
    report = parse_report((GOOD / "two.txt").read_text())
    assert report.version == "fio-3.33"
    assert [(job.name, job.group) for job in report.jobs] == [("warm up", 0), ("steady", 1)]
    warm, steady = report.jobs
    assert warm.operations["write"].requests == 53
    assert warm.operations["write"].bytes == 53 * 4096
    assert warm.operations["read"].reported_latency is None
    assert report.total.requests["write"] == 53 + steady.operations["write"].requests
    assert steady.options["rate_iops"] == "47"
    assert report.global_options["log_alternate_epoch"] == "1"


def test_bins_hold_every_request_and_fio_s_own_percentiles() -> None:
    for job in parse_report((GOOD / "two.txt").read_text()).jobs:
        for operation in job.operations.values():
            if (latency := operation.reported_latency) is None:
                continue
            assert latency.bins is not None
            assert sum(count for _, count in latency.bins) == latency.requests == operation.requests
            middles = [middle for middle, _ in latency.bins]
            assert set(middles) <= {compute_bin_middle_ns(place) for place in range(29 * 64)}
            assert set(latency.percentiles.values()) <= set(middles) | {latency.max_ns}


def test_other_output_of_fio_is_separated() -> None:
    text = (GOOD / "two.txt").read_text()
    rest = remove_json(text)
    assert json.loads(extract_json(text))["fio version"] == "fio-3.33"
    assert rest.startswith("warm up: (g=0)")
    assert "Run status group" in rest
    assert '"jobs"' not in rest
    # fio prints a newline after the JSON.
    assert len(rest) + len(extract_json(text)) + 1 == len(text)


def test_mixed_operations_have_latencies_of_the_whole() -> None:
    mixed, flushed = parse_report((GOOD / "mixed.json").read_text()).jobs
    assert set(mixed.operations) == {"mixed"}
    assert mixed.operations["mixed"].requests == 23
    assert flushed.operations["flush"].requests == 4
    assert flushed.operations["flush"].bytes is None
    latency = flushed.operations["write"].reported_latency
    assert latency is flushed.operations["write"].latencies["lat"]
    assert latency is not None and latency.bins is None and latency.percentiles[50] > 0
    assert parse_report((GOOD / "mixed.json").read_text()).total.requests == {
        **{"read": 0, "write": 23, "discard": 0},
        "mixed": 23,
    }


def test_fio_warns_before_its_json() -> None:
    job = {"job_runtime": 2000, **{k: {"total_ios": 0, "io_bytes": 0} for k in ("read", "write", "trim")}}
    job |= {"jobname": "a", "trim": {"total_ios": 5, "io_bytes": 5 << 20}}
    total = parse_report("fio: a {warning\n" + json.dumps({"jobs": [job]})).total
    assert total.requests == {"read": 0, "write": 0, "discard": 5}
    assert total.bytes["discard"] == 5 << 20
    assert total.iops == 2.5


def test_fio_without_json_is_an_error() -> None:
    with pytest.raises(BadInput, match="no JSON"):
        parse_report("fio: file not found\n")


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("negative.json", "job 2: write: total_ios "),
        ("no-read.json", r"job 2: .*\bmissing\b"),
        ("percentile.json", r"job 1: mixed: clat_ns: '101\.0' "),
        ("bin.json", "job 2: write: lat_ns: '0x40' "),
        ("no-json.txt", r"no-json\.txt: .*\bno JSON\b"),
    ],
)
def test_invalid_report_is_refused_with_its_place(name: str, place: str) -> None:
    with pytest.raises(BadInput, match=place):
        parse_report((BAD / name).read_text(), name)
