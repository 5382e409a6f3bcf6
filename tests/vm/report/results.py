"""The result of a pytest run in a guest, from its JUnit file."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Results:
    """The number of passed tests, and the reason of each test that did not pass."""

    passed: int
    failed: dict[str, str]
    skipped: dict[str, str]

    @property
    def total(self) -> int:
        """The number of tests."""
        return self.passed + len(self.failed) + len(self.skipped)

    def unlisted_skips(self, lacks: Mapping[str, str]) -> dict[str, str]:
        """Return the skips whose reason is not listed for this kernel in the support matrix."""
        listed = {f"{what}: {why}" for what, why in lacks.items()}
        return {name: why for name, why in self.skipped.items() if why not in listed}

    def format_line(self) -> str:
        """Return one line of text with the counts and every reason."""
        text = f"{self.passed} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"
        reasons = [f"{name}: {why}" for name, why in (self.failed | self.skipped).items()]
        return "; ".join([text, *reasons])


def parse_results(xml: bytes) -> Results:
    """Return the results in the text of a JUnit file."""
    passed, failed, skipped = 0, {}, {}
    for case in ElementTree.fromstring(xml).iter("testcase"):
        name = case.get("name", "?")
        bad = case.find("failure")
        bad = case.find("error") if bad is None else bad
        skip = case.find("skipped")
        if bad is not None:
            failed[name] = bad.get("message", "").splitlines()[0] if bad.get("message") else ""
        elif skip is not None:
            skipped[name] = skip.get("message", "")
        else:
            passed += 1
    return Results(passed, failed, skipped)
