"""Recorded audit evidence with modified values: refused with OpwatchError, or judged and shown.

python -m tests.fuzz.audits [INPUTS [SEED]]
"""

from __future__ import annotations

import io
import json
import random
import sys
from typing import Any

from opwatch.recording.coding.audits import decode_audit, encode_audit
from opwatch.sinks.trim_audit import write_json, write_lines
from opwatch.trim.audit import ledger
from tests.unit.trim.audit.sample_audits import make_sample_audits

from .rules import RefusedOrValid, run_from_arguments

_OTHERS: tuple[Any, ...] = (
    *(-1, 0, 1, 2, 5, 255, 4096, 1 << 31, (1 << 63) - 1, 1 << 64, (1 << 64) - 1, -(1 << 63)),
    *(None, True, False, 1e300, 0.5, "", "x", "discard", "dm-0", "raid5", "md", "9" * 50),
    *([], {}, [[]], [None], ["x"], [0, 0], ["DiskFacts", []]),
)


class AuditFuzzer:
    """Sequence of inputs from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._good = [json.loads(encode_audit(audited)) for audited in make_sample_audits()]

    def run_inputs(self, inputs: int) -> None:
        """Run this many inputs. Raises at the first failure."""
        for _ in range(inputs):
            document = self._random.choice(self._good)
            for _ in range(self._random.randrange(1, 5)):
                part = "audit" if self._random.random() < 0.9 else "shapes"
                document = document | {part: self._replace_value(document[part])}
            with RefusedOrValid("audit"):
                show_audit(json.dumps(document).encode())

    def _replace_value(self, plain: Any) -> Any:  # noqa: ANN401
        """Return a copy with one value replaced at any depth."""
        chance = self._random
        if isinstance(plain, dict) and plain and chance.random() < 0.95:
            name = chance.choice(list(plain))
            return plain | {name: self._replace_value(plain[name])}
        if isinstance(plain, list) and plain and chance.random() < 0.95:
            at, kind = chance.randrange(len(plain)), chance.random()
            if kind < 0.05:
                return plain[:at] + plain[at + 1 :]
            if kind < 0.1:
                return [*plain[:at], plain[at], *plain[at:]]
            return [*plain[:at], self._replace_value(plain[at]), *plain[at + 1 :]]
        if type(plain) is int and chance.random() < 0.5:
            return plain + chance.choice((-1, 1, 4096, 1 << 40))
        return chance.choice(_OTHERS)


def show_audit(raw: bytes) -> None:
    """Judge and show an audit as `opwatch replay` does."""
    audited = decode_audit(raw, "it")
    audit = ledger.build_audit(audited.evidence, audited.subject)
    write_lines([audit], io.StringIO())
    write_json([audit], io.StringIO(), audited.blind)


def main() -> int:
    return run_from_arguments(lambda inputs, seed: AuditFuzzer(seed).run_inputs(inputs), 10000)


if __name__ == "__main__":
    sys.exit(main())
