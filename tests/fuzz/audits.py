"""Recorded audit evidence with modified values: refused with OpwatchError, or judged and shown.

python -m tests.fuzz.audits [INPUTS [SEED]]
"""

from __future__ import annotations

import io
import sys

from opwatch.recording.coding.audits import decode_audit, encode_audit
from opwatch.sinks.trim_audit import write_json, write_lines
from opwatch.trim.audit import ledger
from tests.unit.trim.audit.sample_audits import make_sample_audits

from .documents import DocumentFuzzer
from .rules import run_from_arguments


def make_audit_fuzzer(seed: int) -> DocumentFuzzer:
    good = [encode_audit(audited) for audited in make_sample_audits()]
    return DocumentFuzzer(seed, "audit", good, show_audit)


def show_audit(raw: bytes) -> None:
    """Judge and show an audit as `opwatch replay` does."""
    audited = decode_audit(raw, "it")
    audit = ledger.build_audit(audited.evidence, audited.subject)
    write_lines([audit], io.StringIO())
    write_json([audit], io.StringIO(), audited.blind)


def main() -> int:
    return run_from_arguments(lambda inputs, seed: make_audit_fuzzer(seed).run_inputs(inputs), 10000)


if __name__ == "__main__":
    sys.exit(main())
