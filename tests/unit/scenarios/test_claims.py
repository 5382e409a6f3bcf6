"""Claims as data: verdicts by kind, tolerance, obstacles and limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opwatch.scenarios.claims import (
    CheckVerdict,
    ClaimKind,
    ExpectedRange,
    Finding,
    MeasuredValue,
    PublishedClaim,
    ScenarioEvidence,
    ScenarioVerdict,
    make_self_check,
    select_claims,
)
from opwatch.scenarios.scenario import list_scenarios, load_scenario

RATIO = PublishedClaim(
    "it gains",
    ClaimKind.RATIO,
    "x {value:.2f}",
    missing="unknown",
    measured="a",
    expected=[2, 3],
    within_percent=10,
)


def _judge(claim: PublishedClaim, *values: MeasuredValue, flags: str = "") -> tuple[ScenarioVerdict, str]:
    expected = {"one": [ExpectedRange(1, 1), None]}
    amounts = {"a": values, "b": [MeasuredValue(2.0)]}
    evidence = ScenarioEvidence(amounts, expected, {"here": "{home}"}, dict.fromkeys(flags.split(), True))
    _, verdict, why = claim.judge(evidence)
    return verdict, why


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (MeasuredValue(1.8), ScenarioVerdict.REPRODUCED),
        (MeasuredValue(3.3), ScenarioVerdict.REPRODUCED),
        (MeasuredValue(1.7), ScenarioVerdict.NOT_REPRODUCED),
        (MeasuredValue(1.7, error=0.1), ScenarioVerdict.REPRODUCED),
        (MeasuredValue(3.4), ScenarioVerdict.NOT_REPRODUCED),
        (MeasuredValue(3.4, limit="the CPU is the limit"), ScenarioVerdict.UNTOLD),
        (MeasuredValue(None), ScenarioVerdict.UNTOLD),
    ],
)
def test_ratio_is_judged_with_tolerance_error_and_limit(
    value: MeasuredValue, verdict: ScenarioVerdict
) -> None:
    assert _judge(RATIO, value)[0] is verdict


def test_reason_names_the_value_and_the_limit() -> None:
    limit = "the CPU is the limit"
    why = _judge(RATIO, MeasuredValue(4.0, limit=limit))[1]
    assert why.startswith("x 4.00, ") and why.endswith(limit)
    assert _judge(RATIO)[1] == "unknown"


def test_quotient_of_two_amounts_is_compared_with_that_of_two_published_figures() -> None:
    claim = PublishedClaim("a / b", ClaimKind.RATIO, "", measured="a", over="b", published=[979, 514])
    assert _judge(claim, MeasuredValue(2 * 979 / 514))[0] is ScenarioVerdict.REPRODUCED
    assert _judge(claim, MeasuredValue(2.0))[0] is ScenarioVerdict.NOT_REPRODUCED


def test_error_of_a_quotient_is_that_of_both_values() -> None:
    claim = PublishedClaim("a / b", ClaimKind.RATIO, "", measured="a", over="b", expected=[1, 1])
    assert _judge(claim, MeasuredValue(2.2, error=0.21))[0] is ScenarioVerdict.REPRODUCED
    assert _judge(claim, MeasuredValue(2.2, error=0.19))[0] is ScenarioVerdict.NOT_REPRODUCED


def test_amount_without_expected_range_leaves_the_verdict_open() -> None:
    claim = PublishedClaim("a", ClaimKind.RATIO, "", measured="a", expected="one")
    assert _judge(claim, MeasuredValue(1.0))[0] is ScenarioVerdict.REPRODUCED
    assert _judge(claim, MeasuredValue(1.0), MeasuredValue(1.0))[0] is ScenarioVerdict.UNTOLD


def test_order_is_refuted_by_one_larger_value() -> None:
    claim = PublishedClaim("falls", ClaimKind.ORDER, "", measured="a")
    assert _judge(claim, MeasuredValue(3.0), MeasuredValue(3.0))[0] is ScenarioVerdict.REPRODUCED
    assert _judge(claim, MeasuredValue(3.0), MeasuredValue(3.1))[0] is ScenarioVerdict.NOT_REPRODUCED


def test_flags_decide_before_the_values() -> None:
    unless, refuted = {"busy": "it was busy"}, {"fell": "it fell at {here}"}
    claim = PublishedClaim("stays", ClaimKind.ABSENT, "fine", unless=unless, refuted_by=refuted)
    assert _judge(claim) == (ScenarioVerdict.REPRODUCED, "fine")
    assert _judge(claim, flags="fell") == (
        ScenarioVerdict.NOT_REPRODUCED,
        refuted["fell"].replace("here", "home"),
    )
    assert _judge(claim, flags="fell busy") == (ScenarioVerdict.UNTOLD, unless["busy"])


def test_excuse_matters_only_where_the_values_refute_the_claim() -> None:
    claim = replace(RATIO, excuses={"slow": "the interface is slow"})
    assert _judge(claim, MeasuredValue(2.0), flags="slow")[0] is ScenarioVerdict.REPRODUCED
    assert _judge(claim, MeasuredValue(9.0), flags="slow") == (
        ScenarioVerdict.UNTOLD,
        claim.excuses["slow"],
    )


@pytest.mark.parametrize("name", list_scenarios())
def test_every_scenario_can_be_read(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.source and (scenario.levels.endswith("%") or scenario.setup.table)
    assert scenario.claims
    claims = (*scenario.claims, *scenario.checks)
    assert all(claim.measured or claim.kind is ClaimKind.ABSENT for claim in claims)


def test_check_has_words_of_its_own() -> None:
    """A check that agrees is no result of the author's that was reproduced."""
    assert not {one.value for one in CheckVerdict} & {one.value for one in ScenarioVerdict}
    made = [make_self_check(Finding("it", verdict, "so")).verdict for verdict in ScenarioVerdict]
    assert made == [CheckVerdict.AGREES, CheckVerdict.DIFFERS, CheckVerdict.OPEN]


def test_claim_about_some_drives_is_judged_for_these_alone() -> None:
    about = replace(RATIO, drives=("one",))
    others = replace(RATIO, except_drives=("one",))
    assert select_claims([about, others], "model", "one") == (about,)
    assert select_claims([about, others], "model", "two") == (others,)
    assert select_claims([replace(RATIO, on="drive")], "model") == ()
