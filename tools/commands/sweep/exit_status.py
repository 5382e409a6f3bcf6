"""Exit status of a sweep, the same for drives and models."""

from __future__ import annotations

from collections.abc import Sequence

from opwatch.errors import NotEnoughData
from opwatch.steady.strict import StrictState
from opwatch.sweep.outcome import LevelOutcome


def choose_exit_status(outcomes: Sequence[LevelOutcome]) -> int:
    """Return 0 if every level is proven to be steady.

    A script that checks only the status must not accept a missing measurement as a proof.
    """
    passed = all(outcome.strict.state is StrictState.PASS for outcome in outcomes)
    return 0 if passed else NotEnoughData.exit_status
