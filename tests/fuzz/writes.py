"""Recorded readings of writes with modified values: refused with OpwatchError, or shown.

python -m tests.fuzz.writes [INPUTS [SEED]]
"""

from __future__ import annotations

import json
import sys
from collections import deque

from opwatch.errors import BadInput
from opwatch.recording.coding.writes import (
    WritesBeginning,
    decode_beginning,
    decode_end,
    decode_step,
    encode_writes,
)
from opwatch.sinks.export.writes_rows import format_writes_csv, format_writes_openmetrics
from opwatch.sinks.report.writes_page import ReportedWrites, render_writes
from opwatch.sinks.writes import build_writes_document, format_writes
from opwatch.writes.series import WritesOutcome, WritesSeries
from tests.unit.writes.series import CLOCK, END, FIRST, QUESTION, STACK, STEPS

from .documents import DocumentFuzzer
from .rules import run_from_arguments


def make_writes_fuzzer(seed: int) -> DocumentFuzzer:
    parts = (WritesBeginning(QUESTION, FIRST), *STEPS, END)
    return DocumentFuzzer(seed, "writes", [encode_writes(part) for part in parts], show_part)


def show_part(raw: bytes) -> None:
    """Show a measurement with this part, in every form."""
    question, first, steps, end = QUESTION, FIRST, list(STEPS), END
    shapes = str(json.loads(raw)["shapes"])
    if "WritesBeginning" in shapes:
        beginning = decode_beginning(raw, "it")
        question, first = beginning.question, beginning.first
        if question.stack.tops != STACK.tops:
            raise BadInput("other devices than in the steps")
    elif "WritesStep" in shapes:
        steps[1] = decode_step(raw, STACK, "it")
    else:
        end = decode_end(raw, STACK, "it")
    series = WritesSeries(question, first, CLOCK.to_wall_time)
    show_outcomes([*map(series.add_step, steps), series.make_total(end)])


def show_outcomes(outcomes: list[WritesOutcome]) -> None:
    for outcome in outcomes:
        json.dumps(build_writes_document(outcome))
        deque(format_writes(outcome), 0)
        render_writes(ReportedWrites("a.opw", {}, "", outcome, 0))
    deque(format_writes_csv(outcomes), 0)
    deque(format_writes_openmetrics(outcomes), 0)


def main() -> int:
    return run_from_arguments(lambda inputs, seed: make_writes_fuzzer(seed).run_inputs(inputs), 10000)


if __name__ == "__main__":
    sys.exit(main())
