"""What a sweep exits with: one answer for drives and for models."""

from __future__ import annotations

from collections.abc import Sequence

from opwatch.errors import NotEnoughData
from opwatch.steady.strict import StrictState
from opwatch.sweep.outcome import LevelOutcome


def exit_status(outcomes: Sequence[LevelOutcome]) -> int:
    """0 when every level is proven to be steady. A script that asks no more must not take what was not
    measured for a proof."""
    passed = all(outcome.strict.state is StrictState.PASS for outcome in outcomes)
    return 0 if passed else NotEnoughData.exit_status
