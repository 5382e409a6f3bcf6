"""`make waf-runs`: compare 100 seeded runs per kind with the truth; written into docs/method-waf.md."""

from __future__ import annotations

import statistics
import sys
from itertools import islice

from tests.section import Section
from tests.unit.support.waf_runs import ScenarioRuns, run_scenarios

from .figure import choose_exit_status, choose_size

SECTION = Section("method-waf.md", "runs")
SEEDS = range(choose_size(100, 1))
ALLOWED = 5
HEADER = [
    "pages",
    "NAND counter",
    "answered",
    "wrong",
    "command only",
    "error: median, maximum",
    "necessary",
    "wait",
]


def _format_percent(ratio: float) -> str:
    return f"{100 * ratio:.2g} %"


def format_row(row: ScenarioRuns) -> str:
    """Return a row of the table."""
    errors = row.relative_errors
    necessary = statistics.median(row.scenario.compute_min_error(row.model, run) for run in row.runs)
    whole = sum(bool(run.measured.stretch and run.measured.stretch.whole) for run in row.answered_runs)
    settle = statistics.median(run.measured.settle_s for run in row.runs)
    shown = f"{_format_percent(statistics.median(errors))}, {_format_percent(errors[-1])}" if errors else "-"
    cells = [
        row.scenario.name,
        row.model.name,
        str(len(row.answered_runs)),
        str(len(row.wrong_seeds)),
        str(whole),
        shown,
        _format_percent(necessary),
        f"{settle:.0f} s",
    ]
    return _join_cells(cells)


def _join_cells(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> int:
    lines = [_join_cells(HEADER), _join_cells(["---"] * len(HEADER))]
    holds = True
    for row in islice(run_scenarios(SEEDS), choose_size(None, 2)):
        lines.append(format_row(row))
        print(lines[-1], flush=True)
        holds = holds and len(row.wrong_seeds) <= ALLOWED and not row.excess_errors
    SECTION.write_body("\n".join(lines))
    return choose_exit_status(holds=holds)


if __name__ == "__main__":
    sys.exit(main())
