"""Parse a rule. Errors name the column.

[OPERATION.]METRIC (> | <) [+ | -]NUMBER[UNIT] [for TIME]
"""

from __future__ import annotations

import re

from opwatch.errors import UsageError
from opwatch.rules.rule import DISK_METRICS, METRICS, STALL, WAF, LimitKind, Rule, Unit
from opwatch.times import parse_time
from opwatch.trace.ops import OPS

MAX_LENGTH = 200
# Characters shown on each side of the wrong column.
_CONTEXT_CHARACTERS = 30
_MAX_LIMIT = 1e15
_MAX_SHOWN_WORD = 20
_NUMBER = re.compile(r"([+-]?)([0-9]{1,15}(?:\.[0-9]{1,9})?)", re.ASCII)
_WORD = re.compile(r"[A-Za-z_%/][A-Za-z0-9_%/]*", re.ASCII)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*", re.ASCII)
_TIMES = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_UNITS: dict[Unit, dict[str, float]] = {
    Unit.NS: _TIMES,
    Unit.PER_S: {"": 1.0, "k": 1e3, "M": 1e6, "/s": 1.0},
    Unit.MB_PER_S: {"": 1.0, "MB/s": 1.0},
    Unit.RATIO: {"": 1.0},
    Unit.CORES: {"": 1.0, "cores": 1.0},
}
_FORM_HINT = "write it as read.p99>+5%, waf>+0.1 or read.p99>20ms for 10s"


class BadRule(UsageError):
    """An invalid rule. `column` counts from 1."""

    def __init__(self, text: str, at: int, what: str) -> None:
        self.column = at + 1
        super().__init__(f"rule {text[:MAX_LENGTH]!r}, column {self.column}: {what}")
        begin = max(0, at - _CONTEXT_CHARACTERS)
        part = text[begin : at + _CONTEXT_CHARACTERS]
        shown = "".join(char if char.isprintable() else "?" for char in part)
        self.log = f"| {shown}\n| {' ' * (at - begin)}^"


class _Text:
    """A text and the current position."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.skip_blanks()

    def skip_blanks(self) -> None:
        while self.text[self.at : self.at + 1] in (" ", "\t"):
            self.at += 1

    def consume_match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Consume a match at the current position and the blanks after it; return the match or None."""
        match = pattern.match(self.text, self.at)
        if match:
            self.at = match.end()
            self.skip_blanks()
        return match

    def make_error(self, what: str, at: int | None = None) -> BadRule:
        return BadRule(self.text, self.at if at is None else at, what)

    def describe_rest(self) -> str:
        """Return the remaining text for a message."""
        rest = self.text[self.at :]
        return repr(rest[:_MAX_SHOWN_WORD]) if rest else "the end"


def parse_rule(text: str) -> Rule:
    """Parse a rule. Raises BadRule."""
    if len(text) > MAX_LENGTH:
        raise BadRule(text, MAX_LENGTH, f"a rule has at most {MAX_LENGTH} characters")
    reading = _Text(text)
    op, metric = _parse_subject(reading)
    sign = reading.text[reading.at : reading.at + 1]
    if sign not in (">", "<") or not sign:
        raise reading.make_error(f"expected > or <, found {reading.describe_rest()}; {_FORM_HINT}")
    reading.at += 1
    reading.skip_blanks()
    limit, kind = _parse_limit(reading, metric)
    lasting_s = _parse_duration(reading)
    return Rule(
        text=text.strip(),
        op=op,
        metric=metric,
        is_above=sign == ">",
        limit=limit,
        kind=kind,
        lasting_s=lasting_s,
    )


def _parse_subject(reading: _Text) -> tuple[str | None, str]:
    """Parse the operation and the metric."""
    begin, name = reading.at, reading.consume_match(_NAME)
    if not name:
        raise reading.make_error(f"expected a metric, found {reading.describe_rest()}; {_FORM_HINT}")
    words = name[0]
    op, _, behind = words.partition(".")
    if words in METRICS:
        return None, words
    if op not in OPS:
        known = f"metrics are {', '.join(METRICS)}; operations are {', '.join(OPS)}"
        raise reading.make_error(
            f"{words[:_MAX_SHOWN_WORD]!r} is neither a metric nor OPERATION.METRIC: {known}", begin
        )
    at_metric = begin + len(op) + 1
    if behind not in METRICS:
        metrics = ", ".join(METRICS)
        raise reading.make_error(
            f"{behind[:_MAX_SHOWN_WORD]!r} is not a metric: metrics are {metrics}", at_metric
        )
    if behind in DISK_METRICS:
        whole = "disk" if behind in (WAF, STALL) else "machine"
        raise reading.make_error(
            f"{behind} applies to the whole {whole}, not to an operation: write {behind}", at_metric
        )
    return op, behind


def _parse_limit(reading: _Text, metric: str) -> tuple[float, LimitKind]:
    """Parse the limit; return the value in the metric's unit, and the kind."""
    begin, number = reading.at, reading.consume_match(_NUMBER)
    if not number:
        raise reading.make_error(f"expected a number, found {reading.describe_rest()}; {_FORM_HINT}")
    at_unit = begin + len(number[0])
    word = _WORD.match(reading.text, reading.at)
    unit = word[0] if word and word[0] != "for" else ""
    if unit:
        at_unit = reading.at
        reading.consume_match(_WORD)
    value = float(number[1] + number[2])
    if unit == "%":
        if not number[1]:
            raise reading.make_error("a change starts with + or -: +5% is five percent more", begin)
        return value / 100, LimitKind.SHARE
    units = _UNITS[METRICS[metric]]
    if unit not in units:
        wanted = " or ".join(name for name in [*units, "%"] if name)
        missing = (
            f"{unit[:_MAX_SHOWN_WORD]!r} is not a unit of {metric}" if unit else f"{metric} needs a unit"
        )
        raise reading.make_error(f"{missing}: write {wanted}", at_unit)
    value *= units[unit]
    if abs(value) > _MAX_LIMIT:
        raise reading.make_error("this limit is too large", begin)
    return value, LimitKind.CHANGE if number[1] else LimitKind.LEVEL


def _parse_duration(reading: _Text) -> float | None:
    """Parse the duration in seconds at the end of a rule, or return None if there is none."""
    if reading.at == len(reading.text):
        return None
    begin, word = reading.at, reading.consume_match(_WORD)
    if not word or word[0] != "for":
        reading.at = begin
        raise reading.make_error(f"expected `for TIME` or nothing, found {reading.describe_rest()}")
    at_time, rest = reading.at, reading.text[reading.at :].strip()
    try:
        seconds = parse_time(rest)
    except UsageError:
        raise reading.make_error(
            f"expected a duration, e.g. 10s or 2m, found {reading.describe_rest()}", at_time
        ) from None
    if not seconds:
        raise reading.make_error("a duration of 0 has no effect: leave it out", at_time)
    return seconds
