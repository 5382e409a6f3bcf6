from __future__ import annotations

import pytest

from opwatch.codec import encode
from opwatch.errors import UsageError
from opwatch.steady.pts import judge_pts
from opwatch.steady.pts_tests import PTS_TESTS, STEADY_FIELDS, find_pts_test


def test_tests_match_the_specification() -> None:
    names = [test.name for test in PTS_TESTS]
    assert names == ["wsat", "iops", "throughput-128k", "throughput-1024k", "latency", "hir", "xsr"]


def test_a_round_of_the_matrix_takes_56_minutes() -> None:
    matrix = find_pts_test("iops")
    assert len(matrix.points) == 56 and sum(point.seconds for point in matrix.points) == 56 * 60


@pytest.mark.parametrize("test", PTS_TESTS, ids=lambda test: test.name)
def test_steady_points_belong_to_the_test(test: object) -> None:
    assert test in PTS_TESTS
    for one in PTS_TESTS:
        points = {
            f"{point.read_percent}/{100 - point.read_percent} {point.block_bytes}" for point in one.points
        }
        assert set(one.steady) <= points


def test_report_has_the_fields_of_a_verdict() -> None:
    [fit] = judge_pts({"IOPS": [1.0] * 5}).fits
    assert set(STEADY_FIELDS) <= set(encode(fit))


def test_another_name_is_refused() -> None:
    with pytest.raises(UsageError, match="available: wsat, iops"):
        find_pts_test("dirth")


def test_points_have_the_pattern_and_the_duration_of_the_specification() -> None:
    points = {test.name: test.points for test in PTS_TESTS}
    sequential = {name for name, all_ in points.items() if not any(point.is_random for point in all_)}
    assert sequential == {"throughput-128k", "throughput-1024k"}
    assert [(point.read_percent, point.block_bytes >> 10) for point in points["throughput-128k"]] == [
        (100, 128),
        (0, 128),
    ]
    assert {(point.read_percent, point.block_bytes) for point in points["latency"]} == {
        (mix, block) for mix in (100, 65, 0) for block in (8192, 4096, 512)
    }
    assert [point.pause_s for point in points["hir"]] == [5, 10, 15, 25, 50]
    assert {(point.read_percent, point.block_bytes, point.seconds) for point in points["hir"]} == {
        (0, 4096, 5)
    }
    assert points["xsr"] == (
        (0, 1 << 20, False, 8 * 3600, 0),
        (0, 8192, True, 6 * 3600, 0),
        (0, 1 << 20, False, 8 * 3600, 0),
    )
    others = [point for name in ("wsat", "iops", "latency") for point in points[name]]
    assert {(point.seconds, point.is_random, point.pause_s) for point in others} == {(60, True, 0)}


def test_rounds_and_preconditioning_are_those_of_the_specification() -> None:
    # Write saturation is tracked for 24 hours; the recovery test has no rounds.
    assert {test.name: test.most_rounds for test in PTS_TESTS} == {
        "wsat": 1440,
        **dict.fromkeys(("iops", "throughput-128k", "throughput-1024k", "latency", "hir"), 25),
        "xsr": 1,
    }
    assert {test.name: test.precondition_block_bytes for test in PTS_TESTS} == {
        **dict.fromkeys(("wsat", "hir", "xsr")),
        **dict.fromkeys(("iops", "throughput-128k", "latency"), 128 << 10),
        "throughput-1024k": 1 << 20,
    }
