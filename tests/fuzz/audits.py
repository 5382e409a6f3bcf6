"""Recorded audit evidence with modified values: refused with OpwatchError, or judged and shown.

python -m tests.fuzz.audits [INPUTS [SEED]]
"""

from __future__ import annotations

import io
import json
import random
import sys
from typing import Any

from opwatch.recording.coding.audits import audit_bytes, audit_of
from opwatch.sinks.trim_audit import write_json, write_lines
from opwatch.trim.audit import ledger
from tests.unit.trim.audit.audits_seen import audits_seen

from .rules import refused_or_sound, run_by_words

_OTHERS: tuple[Any, ...] = (
    *(-1, 0, 1, 2, 5, 255, 4096, 1 << 31, (1 << 63) - 1, 1 << 64, (1 << 64) - 1, -(1 << 63)),
    *(None, True, False, 1e300, 0.5, "", "x", "discard", "dm-0", "raid5", "md", "9" * 50),
    *([], {}, [[]], [None], ["x"], [0, 0], ["DiskFacts", []]),
)


class Fuzz:
    """Sequence of inputs from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._good = [json.loads(audit_bytes(audited)) for audited in audits_seen()]

    def run(self, inputs: int) -> None:
        """Run this many inputs. Raises at the first failure."""
        for _ in range(inputs):
            document = self._random.choice(self._good)
            for _ in range(self._random.randrange(1, 5)):
                part = "audit" if self._random.random() < 0.9 else "shapes"
                document = document | {part: self._other(document[part])}
            with refused_or_sound("audit"):
                show(json.dumps(document).encode())

    def _other(self, plain: Any) -> Any:  # noqa: ANN401
        """Return a copy with one value replaced at any depth."""
        chance = self._random
        if isinstance(plain, dict) and plain and chance.random() < 0.95:
            name = chance.choice(list(plain))
            return plain | {name: self._other(plain[name])}
        if isinstance(plain, list) and plain and chance.random() < 0.95:
            at, kind = chance.randrange(len(plain)), chance.random()
            if kind < 0.05:
                return plain[:at] + plain[at + 1 :]
            if kind < 0.1:
                return [*plain[:at], plain[at], *plain[at:]]
            return [*plain[:at], self._other(plain[at]), *plain[at + 1 :]]
        if type(plain) is int and chance.random() < 0.5:
            return plain + chance.choice((-1, 1, 4096, 1 << 40))
        return chance.choice(_OTHERS)


def show(raw: bytes) -> None:
    """Judge and show an audit as `opwatch replay` does."""
    audited = audit_of(raw, "it")
    audit = ledger.audit(audited.evidence, audited.subject)
    write_lines([audit], io.StringIO())
    write_json([audit], io.StringIO(), audited.blind)


def main() -> int:
    return run_by_words(lambda inputs, seed: Fuzz(seed).run(inputs), 10000)


if __name__ == "__main__":
    sys.exit(main())
