"""`make waf-runs`: a hundred seeded runs of each kind against the truth, written into docs/method-waf.md."""

from __future__ import annotations

import statistics
import sys

from tests.section import Section
from tests.unit.support.waf_runs import Row, rows

SECTION = Section("method-waf.md", "runs")
SEEDS = range(100)
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


def line(found: Row) -> str:
    """One line of the table."""
    errors = found.errors
    necessary = statistics.median(found.scenario.necessary(found.model, each) for each in found.runs)
    whole = sum(bool(each.measured.stretch and each.measured.stretch.whole) for each in found.answered)
    settle = statistics.median(each.measured.settle_s for each in found.runs)
    told = f"{_percent(statistics.median(errors))}, {_percent(errors[-1])}" if errors else "-"
    cells = [
        found.scenario.name,
        found.model.name,
        str(len(found.answered)),
        str(len(found.wrong)),
        str(whole),
        told,
        _percent(necessary),
        f"{settle:.0f} s",
    ]
    return _row(cells)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> int:
    lines = [_row(HEADER), _row(["---"] * len(HEADER))]
    held = True
    for found in rows(SEEDS):
        lines.append(line(found))
        print(lines[-1], flush=True)
        held = held and len(found.wrong) <= ALLOWED and not found.too_wide
    SECTION.write("\n".join(lines))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
