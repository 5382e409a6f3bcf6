"""The rule for commit subjects."""

from __future__ import annotations

import pytest

from tests.commits import find_faults


@pytest.mark.parametrize(
    "message",
    ["bpf: count zones as writes\n", "trim audit, trim check: agree\n\nWhy.\n", "tests/vm: boot 5.10\n"],
)
def test_a_good_message_has_no_faults(message: str) -> None:
    assert find_faults(message) == []


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("Fix things\n", "area: what"),
        ("bpf: ends with a stop.\n", "area: what"),
        (f"bpf: {'x' * 70}\n", "72 are the most"),
        ("bpf: body at once\nwithout a blank line\n", "blank line"),
        ("Merge branch 'main' into x\n", "area: what"),
    ],
)
def test_bad_message_names_its_fault(message: str, fault: str) -> None:
    assert any(fault in text for text in find_faults(message))
