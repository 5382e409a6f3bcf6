"""Rules as users write them, composed of matching and mismatching parts.

python -m tests.fuzz.rule_texts [INPUTS [SEED]]
"""

from __future__ import annotations

import math
import random
import sys

from opwatch.rules.parse import BadRule, parse_rule
from opwatch.rules.rule import METRICS
from opwatch.trace.ops import OPS

from .rules import RefusedOrValid, run_from_arguments

_SUBJECTS = (*METRICS, *(f"{op}.{metric}" for op in OPS for metric in METRICS), "p98", "read.", ".p99", "")
_SIGNS = (">", "<", "=", ">>", "≥", "")
_NUMBERS = ("+5", "-3", "20", "0", "+0.1", "-0.000000001", "9" * 15, "9" * 400, "1e5", "+-1", "٣", "nan", "")
_UNITS = ("%", "ms", "us", "ns", "s", "k", "M", "MB/s", "/s", "", "kg", "%%", "µs")
_ENDS = ("", " for 10s", " for 2m", "for 1h", " for", " for x", " for 0s", " and more", " for 1s for 1s")
_BLANKS = ("", "", " ", "\t", "  ", "\u00a0", "\n")
_CHARACTERS = "pP9.0+-%<>= formsMB/\x00\x1b\ud800\u202e|\\'\"`$"


def _make_text(chance: random.Random) -> str:
    parts = [chance.choice(some) for some in (_SUBJECTS, _SIGNS, _NUMBERS, _UNITS, _ENDS)]
    text = "".join(part + chance.choice(_BLANKS) for part in parts)
    for _ in range(chance.choice((0, 0, 1, 3))):
        at = chance.randrange(len(text) + 1)
        kind = chance.random()
        if kind < 0.5:
            text = text[:at] + chance.choice(_CHARACTERS) + text[at:]
        elif kind < 0.8:
            text = text[:at] + text[at + chance.randrange(4) :]
        else:
            text = text[:at] + text[at : at + 9] * chance.choice((2, 60)) + text[at:]
    return text


def _check_text(text: str) -> None:
    try:
        rule = parse_rule(text)
    except BadRule as error:
        assert 1 <= error.column <= len(text) + 1, f"{text!r}: column {error.column}"
        raise
    assert math.isfinite(rule.limit)
    assert rule.metric in METRICS
    assert rule.op is None or rule.op in OPS
    assert rule.lasting_s is None or rule.lasting_s > 0
    assert parse_rule(rule.text) == rule


def run(inputs: int, seed: int) -> None:
    """Run this many inputs. Raises at the first failure."""
    chance = random.Random(seed)
    for _ in range(inputs):
        with RefusedOrValid("rule"):
            _check_text(_make_text(chance))


def main() -> int:
    return run_from_arguments(run, 100_000)


if __name__ == "__main__":
    sys.exit(main())
