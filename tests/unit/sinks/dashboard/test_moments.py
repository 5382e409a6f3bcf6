"""Packed intervals: the numbers equal the interval's, and the heat equals its histogram's."""

from __future__ import annotations

import pytest

from opwatch.sinks.columns import read_figures
from opwatch.sinks.dashboard.compact_interval import compact_interval, find_bucket, get_bucket_edge
from opwatch.sinks.jsonl import build_observation_document
from opwatch.trace.abi import LATENCY
from tests.unit.sinks.dashboard.rendering import make_history
from tests.unit.sinks.test_jsonl import BUSY, make_observation
from tests.unit.support.runs import generate_run
from tests.unit.support.samples import Op


@pytest.mark.parametrize("value", [4, 5, 7, 8, 9, 127, 128, 1000, 123_456, 10**9, 2**35])
def test_buckets_start_at_slot_edges(value: int) -> None:
    bucket = find_bucket(value)
    assert get_bucket_edge(bucket) <= value < get_bucket_edge(bucket + 1)
    slot = LATENCY.find_slot(get_bucket_edge(bucket))
    assert get_bucket_edge(bucket) < 1 << LATENCY.bits or LATENCY.low_edge(slot) == get_bucket_edge(bucket)


def test_shown_interval_has_the_numbers_of_the_json_document() -> None:
    """For every interval of a run, the packed values equal the printed values."""
    _, intervals = make_history(generate_run(20, seed=3))
    busy = [make_observation(read=BUSY, write=Op([20_000] * 7, [4096] * 7), discard=Op([9], [512]))]
    assert len(intervals) > 40
    for one in [*intervals, *busy]:
        tree, moment = build_observation_document(one), compact_interval(one)
        assert moment.seconds == tree["interval_s"]
        assert list(moment.unexplained) == tree["unexplained"]
        for name, op in moment.unpack_ops().items():
            assert op.figures == read_figures(tree["ops"][name])
            assert ("queue_ns" in tree["ops"][name]) == (op.figures["queue_ns.max_slack"] is not None)
        assert set(moment.packed) == {name for name, op in one.interval.ops.items() if not op.is_idle}
        totals = moment.sum_ops()
        assert totals[0] == sum(op["count"] for op in tree["ops"].values())
        assert totals[1] == tree["ops"]["read"]["bytes"] + tree["ops"]["write"]["bytes"]


def test_heat_counts_every_request_once() -> None:
    values = [3, 1000, 1023, 1024, 1279, 1280, 5_000_000]
    op = compact_interval(make_observation(read=Op(values, [4096] * len(values)))).find_op("read")
    assert op is not None
    assert op.heat == {
        find_bucket(3): 1,
        find_bucket(1000): 2,
        find_bucket(1024): 2,
        find_bucket(1280): 1,
    } | {find_bucket(5_000_000): 1}


def test_an_hour_of_a_disk_is_a_few_megabytes() -> None:
    """Four disks must stay small compared with the rest: 1.5 KB per interval."""
    one = compact_interval(make_observation(read=BUSY, write=BUSY, discard=BUSY))
    assert sum(len(raw) for raw in one.packed.values()) < 1500
