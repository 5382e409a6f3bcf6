"""A level's figures from the evidence of its rounds, with values that can be added up manually."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from opwatch.fio.logs import parse_log
from opwatch.fio.results import FioJob, FioLatency, FioOperation, FioReport
from opwatch.steady.strict import judge_strict
from opwatch.sweep.figures import (
    RoundEvidence,
    WindowEvidence,
    compute_figures,
    find_quantile,
    make_round,
    make_verdict_inputs,
    sum_iops_by_second,
)
from opwatch.sweep.levels import LevelScale, OpLevel
from opwatch.sweep.outcome import LevelFigures, add_verdict_error
from tests.unit.support.sweeps import make_ground, make_sweep


def make_operation(requests: int, bins: tuple[tuple[int, int], ...]) -> FioOperation:
    latency = FioLatency(requests, 1, 9, 5.0, 1.0, {}, bins)
    return FioOperation(requests, {"clat": latency} if requests else {}, requests * 4096, 2.0, 0, 0)


def make_round_evidence(
    logs: tuple[bytes, ...] = (), bins: tuple[tuple[int, int], ...] = ((100, 990), (900, 10))
) -> RoundEvidence:
    idle = make_operation(0, ())
    requests = sum(count for _, count in bins)
    job = FioJob("a", 0, 0, 2.0, {"read": idle, "write": make_operation(requests, bins), "discard": idle}, {})
    parsed = tuple(parse_log(raw, f"log_iops.{at}.log") for at, raw in enumerate(logs, 1))
    return RoundEvidence(FioReport("fio-3.33", (job,), {}, None), parsed, cpu_s=0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("share", "value"),
    [(0.5, 100.0), (0.99, 100.0), (0.991, 900.0), (0.999, 900.0), (0.9991, None), (0.99999, None)],
)
def test_quantiles_are_of_counted_requests_or_none(share: float, value: float | None) -> None:
    assert find_quantile({900: 10, 100: 990}, share) == value


def test_quantile_of_an_empty_histogram_is_none() -> None:
    assert find_quantile({}, 0.5) is None


@pytest.mark.parametrize(("flash", "spare"), [(1200, 300), (None, 600)])
def test_spare_area_is_exact_or_an_upper_bound(flash: int | None, spare: int) -> None:
    mib = 1 << 20
    level = OpLevel("x", 900 * mib, LevelScale(1000 * mib), flash * mib if flash else None)
    ground = make_verdict_inputs(level, None)
    assert (ground.active_bytes, ground.spare_bytes) == (900 * mib, spare * mib)
    assert ground.spare_is_bound is (flash is None)


def test_round_takes_its_values_from_fio() -> None:
    one = make_round(make_round_evidence(), None)
    assert (one.host_bytes, one.seconds, one.ios, one.p99_ns, one.nand_bytes) == (
        4096000,
        2.0,
        1000,
        100,
        None,
    )


def test_seconds_cover_all_threads_completely() -> None:
    first = b"1000, 50, 1, 0, 0\n2000, 70, 1, 0, 0\n2400, 5, 1, 0, 0\n"
    second = b"1000, 5, 1, 0, 0\n2000, 7, 1, 0, 0\n2400, 900, 1, 0, 0\n"
    assert sum_iops_by_second([make_round_evidence((first, second))]) == [55, 77]
    assert sum_iops_by_second([make_round_evidence((first,)), make_round_evidence((second,))]) == [
        50,
        70,
        5,
        7,
    ]
    assert sum_iops_by_second([make_round_evidence((b"300, 5, 1, 0, 0\n",))]) == []


def test_a_mix_has_the_requests_of_both_directions_in_its_seconds() -> None:
    both = b"1000, 30, 0, 0, 0\n1000, 50, 1, 0, 0\n2000, 1, 0, 0, 0\n2000, 2, 1, 0, 0\n"
    assert sum_iops_by_second([make_round_evidence((both,))]) == [80]


def test_missing_figures_have_a_reason() -> None:
    log = b"1000, 50, 1, 0, 0\n2000, 70, 1, 0, 0\n2400, 5, 1, 0, 0\n"
    figures = compute_figures(
        WindowEvidence([make_round_evidence((log,)), make_round_evidence((log,))], why_untraced="no BTF")
    )
    assert figures.host.fio == 2 * 4096000
    assert (figures.iops, figures.cpu_ns_per_io) == (500, 5e5)
    assert figures.iops_worst_second == 50
    assert figures.iops_cv == pytest.approx(math.sqrt(400 / 3) / 60)
    assert figures.latency_by_fio == {"p50": 100, "p90": 100, "p99": 100, "p99.9": 900}
    assert (figures.waf, figures.waf_error, figures.nand_bytes, figures.host.trace) == (None,) * 4
    assert figures.missing["trace"] == "no BTF"
    for name in ("waf", "nand_bytes", "host_firmware", "temperature_c", "p99.99 (fio)", "p99.999 (fio)"):
        assert figures.missing[name]


def test_busiest_thread_shows_a_limit_of_the_host() -> None:
    """The mean CPU share of the busiest job over two equal rounds; None if fio reports no CPU time."""
    one = make_round_evidence()
    rounds = [
        replace(
            one,
            report=replace(one.report, jobs=tuple(_set_cpu(one.report.jobs[0], share) for share in shares)),
        )
        for shares in ((30, 90), (70, 10))
    ]
    figures = compute_figures(WindowEvidence(rounds))
    assert figures.load_cpu_ratio == pytest.approx((0.9 + 0.7) / 2 + 0.05) and not figures.is_host_bound
    assert compute_figures(WindowEvidence([rounds[0]])).is_host_bound
    assert compute_figures(WindowEvidence([one])).load_cpu_ratio is None


def _set_cpu(job: FioJob, percent: float) -> FioJob:
    return replace(job, user_cpu_percent=percent, system_cpu_percent=5.0)


def test_waf_without_a_value_per_round_has_the_error_of_iops() -> None:
    """The counters of a whole window do not show whether WAF still changes within it."""
    [outcome] = make_sweep("0%").outcomes
    rounds = [
        replace(one, nand_bytes=None, ios=round(one.ios * (1 + 0.1 * (-1) ** at)))
        for at, one in enumerate(outcome.rounds)
    ]
    strict = judge_strict(rounds, make_ground(rounds))
    assert strict.window and strict.window.iops and strict.window.iops.error > 0.001
    figures = add_verdict_error(LevelFigures(waf=4.0, waf_error=0.01), strict)
    assert figures.waf_error == pytest.approx(0.01 + 4 * strict.window.iops.error)
