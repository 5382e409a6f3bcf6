"""`make waf-runs`: compare 100 seeded runs per kind with the truth; written into docs/method-waf.md."""

from __future__ import annotations

import statistics
import sys
from itertools import islice

from tests.section import Section
from tests.unit.support.waf_runs import Row, rows

from .figure import exit_status, sized

SECTION = Section("method-waf.md", "runs")
SEEDS = range(sized(100, 1))
ALLOWED = 5
HEADER = [
    "pages",
    "NAND counter",
    "answered",
    "wrong",
    "just the command",
    "error: median, worst",
    "necessary",
    "wait",
]


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.2g} %"


def line(row: Row) -> str:
    """Return a row of the table."""
    errors = row.errors
    necessary = statistics.median(row.scenario.necessary(row.model, run) for run in row.runs)
    whole = sum(bool(run.measured.stretch and run.measured.stretch.whole) for run in row.answered)
    settle = statistics.median(run.measured.settle_s for run in row.runs)
    shown = f"{_percent(statistics.median(errors))}, {_percent(errors[-1])}" if errors else "-"
    cells = [
        row.scenario.name,
        row.model.name,
        str(len(row.answered)),
        str(len(row.wrong)),
        str(whole),
        shown,
        _percent(necessary),
        f"{settle:.0f} s",
    ]
    return _row(cells)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> int:
    lines = [_row(HEADER), _row(["---"] * len(HEADER))]
    holds = True
    for row in islice(rows(SEEDS), sized(None, 2)):
        lines.append(line(row))
        print(lines[-1], flush=True)
        holds = holds and len(row.wrong) <= ALLOWED and not row.too_wide
    SECTION.write("\n".join(lines))
    return exit_status(holds=holds)


if __name__ == "__main__":
    sys.exit(main())
