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
