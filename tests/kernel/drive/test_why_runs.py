"""A run with a known cause is recorded, and its requests are slow while the cause acts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.requirements import require_drive
from tests.why.effect import measure_effect
from tests.why.runs import load_run, make_run


@pytest.fixture(autouse=True)
def _drive() -> None:
    require_drive()


@pytest.mark.parametrize(
    "cause", ["stall", *(pytest.param(cause, marks=pytest.mark.manual) for cause in ("way", "none"))]
)
def test_requests_are_slow_while_the_cause_acts(tmp_path: Path, cause: str) -> None:
    made = make_run(cause, 1, "low", tmp_path, 16)
    inside, outside = measure_effect(made.recording, made.injections)
    assert outside.requests > 100
    if cause == "none":
        assert not made.injections
        assert not inside.requests
    elif cause == "stall":
        # The first request since its begin waits longest. Few wait at all, so the mean shows little.
        longest_ns = max(each.end_ns - each.begin_ns for each in made.injections)
        assert inside.max_ns >= longest_ns / 2
    else:
        assert made.injections
        assert inside.mean_ms > outside.mean_ms + 1
    again = load_run(made.recording.with_suffix(".json"))
    assert again.injections == made.injections
    assert again.truth == made.truth
