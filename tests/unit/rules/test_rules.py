from __future__ import annotations

from pathlib import Path

import pytest

from opwatch.rules.parse import MAX_LENGTH, BadRule, parse_rule
from opwatch.rules.rule import LimitKind, Rule
from tests.fuzz import rule_texts

FIXTURES = Path(__file__).parents[2] / "fixtures"
GOOD = (FIXTURES / "good" / "rules" / "rules.txt").read_text().splitlines()
BAD = [line.split("\t", 1) for line in (FIXTURES / "bad" / "rules" / "rules.txt").read_text().splitlines()]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("p99>+5%", (None, "p99", True, 0.05, LimitKind.SHARE, None)),
        ("write.iops<-3%", ("write", "iops", False, -0.03, LimitKind.SHARE, None)),
        ("waf > +0.1", (None, "waf", True, 0.1, LimitKind.CHANGE, None)),
        ("read.p99.9>20ms for 10s", ("read", "p99.9", True, 20e6, LimitKind.LEVEL, 10.0)),
        ("iops<10k for 2m", (None, "iops", False, 10_000.0, LimitKind.LEVEL, 120.0)),
        ("discard.mbps>-1.5MB/s", ("discard", "mbps", True, -1.5, LimitKind.CHANGE, None)),
        ("mean<-250us", (None, "mean", False, -250e3, LimitKind.CHANGE, None)),
    ],
)
def test_rule_is_parsed(text: str, rule: tuple[str | None, str, bool, float, LimitKind, float]) -> None:
    op, metric, is_above, limit, kind, lasting_s = rule
    read = parse_rule(text)
    assert read.limit == pytest.approx(limit)
    assert read == Rule(text, op, metric, is_above, read.limit, kind, lasting_s)


@pytest.mark.parametrize("text", GOOD)
def test_valid_rules_are_parsed(text: str) -> None:
    rule = parse_rule(text)
    assert rule.text == text.strip()
    assert parse_rule(rule.text) == rule


@pytest.mark.parametrize(("column", "text"), BAD)
def test_invalid_rules_are_refused_with_the_column(column: str, text: str) -> None:
    with pytest.raises(BadRule) as error:
        parse_rule(text)
    assert error.value.column == int(column), str(error.value)
    assert f"column {column}: " in str(error.value)


def test_mark_is_below_the_error() -> None:
    for text in ("p99>+5 parsecs", " " * 70 + "read.p99>+5%, please"):
        with pytest.raises(BadRule) as error:
            parse_rule(text)
        shown, mark = error.value.log.split("\n")
        assert shown[mark.index("^") :][:1] == text[error.value.column - 1]


def test_control_characters_in_a_rule_are_not_shown() -> None:
    with pytest.raises(BadRule) as error:
        parse_rule("p99>\x1b[2J")
    assert error.value.log.split("\n")[0].isprintable()
    assert str(error.value).isprintable()


def test_no_rule_is_too_long() -> None:
    with pytest.raises(BadRule, match=rf"\b{MAX_LENGTH}\b"):
        parse_rule("p99>+5%" + " " * MAX_LENGTH)


def test_limit_is_exceeded_in_the_rules_direction() -> None:
    above, below = parse_rule("p99>+5%"), parse_rule("iops<-3%")
    assert [above.is_beyond(share) for share in (0.06, 0.05, -1)] == [True, False, False]
    assert [below.is_beyond(share) for share in (-0.04, -0.03, 1)] == [True, False, False]


def test_every_text_is_refused_or_sound() -> None:
    rule_texts.run(2000, 5)
