"""What a script learns from the verdicts of an audit."""

from __future__ import annotations

import pytest

from opwatch.trim.audit.audit import Verdict
from opwatch.trim.audit.verdicts import exit_status


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        ([Verdict.ACCEPTED, Verdict.PROVEN], 0),
        ([Verdict.NOT_SENT, Verdict.REJECTED], 32),
        ([Verdict.ACCEPTED, Verdict.REJECTED], 64),
        ([Verdict.PARTIAL], 64),
        ([Verdict.UNKNOWN], 6),
        ([Verdict.UNKNOWN, Verdict.ACCEPTED], 64),
    ],
)
def test_exit_status(verdicts: list[Verdict], status: int) -> None:
    assert exit_status(verdicts) == status
