"""Sweeps in virtual time against an independent simulator; tests/bench/uneven_bench has the whole matrix."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from opwatch.ftl.drive import Policy
from opwatch.steady.strict import StrictState
from tests.bench.uneven_bench.cases import (
    CASES,
    DRIFTING,
    OTHERS,
    UnevenCase,
    build_simulator,
    compare_case,
    compare_drifting,
    make_profile,
)

UNITS, PAGES = 1 << 14, 64
QUICK = [case for case in CASES if case.name in ("zipf:1.1", "zoned:80/20:20/80")] + [OTHERS[1]]


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if not shutil.which("cc"):
        pytest.skip("no C compiler (cc)")
    yield build_simulator(tmp_path_factory.mktemp("uneven"))


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name)
def test_waf_of_skewed_loads_is_that_of_an_independent_simulator(case: UnevenCase, simulator: Path) -> None:
    profile = make_profile(UNITS, PAGES, Policy.GREEDY)
    for _, outcome, truth in compare_case(simulator, case, profile, "12,50%"):
        # A load of two jobs has no IOPS, but its WAF is proven.
        assert outcome.strict.state is StrictState.PASS
        assert outcome.figures.waf == pytest.approx(truth, rel=0.02)


def test_waf_of_a_normal_distribution_is_that_of_an_independent_simulator(simulator: Path) -> None:
    profile = make_profile(UNITS, PAGES, Policy.FIFO)
    for _, waf, truth in compare_drifting(simulator, DRIFTING[0], profile, "12,50%"):
        assert waf == pytest.approx(truth, rel=0.02)
