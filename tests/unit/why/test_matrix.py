"""The table of answers to runs whose cause is known: what counts as right, among others, wrong or unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.why.causes import CAUSES
from tests.why.matrix import RIGHT, Outcome, Row, add_run, check_bounds, format_matrix, judge_answer
from tests.why.runs import WhyRun


def make_document(*causes: list[str]) -> dict[str, Any]:
    return {"slow": [{"causes": [{"names": names} for names in causes]}]}


def make_run(cause: str, late: float = 0.0) -> WhyRun:
    return WhyRun(
        cause=cause,
        seed=1,
        load="low",
        seconds=120,
        recording=Path("run.opw"),
        device="nvme0n1",
        injections=(),
        truth={},
        late_share=late,
        late_time_share=late,
    )


def test_every_cause_has_its_right_answers() -> None:
    assert RIGHT.keys() == CAUSES.keys()


@pytest.mark.parametrize(
    ("document", "outcome", "wrong"),
    [
        (None, Outcome.NOT_SLOW, []),
        ({"slow": []}, Outcome.NOT_SLOW, []),
        (make_document(), Outcome.UNKNOWN, []),
        (make_document(["flushes"]), Outcome.RIGHT, []),
        (make_document(["flushes", "discards"]), Outcome.AMONG, []),
        (make_document(["flushes"], ["discards"]), Outcome.WRONG, ["discards"]),
        (make_document(["discards"]), Outcome.WRONG, ["discards"]),
    ],
)
def test_answer_is_judged_by_the_causes_that_it_names(
    document: dict[str, Any] | None, outcome: Outcome, wrong: list[str]
) -> None:
    assert judge_answer("flush-storm", document) == (outcome, wrong)


def test_bounds_count_usable_runs_only() -> None:
    rows: dict[str, Row] = {}
    for _ in range(9):
        add_run(rows, make_run("flush-storm"), make_document(["flushes"]))
        add_run(rows, make_run("none"), None)
    add_run(rows, make_run("none", late=0.5), make_document(["flushes"]))
    assert (rows["none"].count, rows["none"].left_out) == (9, 1)
    assert check_bounds(rows) == []
    add_run(rows, make_run("none"), make_document(["flushes"]))
    missed = check_bounds(rows)
    assert len(missed) == 2
    assert len(list(format_matrix(rows))) == 4
