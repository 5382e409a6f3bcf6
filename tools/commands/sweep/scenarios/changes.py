"""`--set KEY=VALUE`: change numbers of a published experiment."""

from __future__ import annotations

from opwatch.errors import UsageError
from opwatch.quantities import parse_count, parse_size
from opwatch.scenarios.scenario import Scenario
from opwatch.times import parse_time


def apply_changes(scenario: Scenario, words: list[str]) -> Scenario:
    """Return the experiment with these changes."""
    return scenario.with_setup(parse_changes(words))


def parse_changes(words: list[str]) -> dict[str, float]:
    """Return the changes by key."""
    changes: dict[str, float] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            raise UsageError(f"--set {word}: write KEY=VALUE")
        try:
            changes[key] = _parse_value(key, text)
        except UsageError as error:
            raise UsageError(f"--set {word}: {error}") from None
    return changes


def _parse_value(key: str, text: str) -> float:
    if key.endswith("_bytes"):
        return parse_size(text)
    return parse_time(text) if key.endswith("_s") else parse_count(text)
