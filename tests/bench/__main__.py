"""`make bench`: measure every figure and write them into docs/overhead.md."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from . import figures

DOCUMENT = Path(__file__).parents[2] / "docs" / "overhead.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def main() -> int:
    start, bcc = figures.start_up()
    found = [
        figures.against_peer(),
        figures.many_devices(),
        start,
        figures.memory(),
        figures.user_cpu(),
        figures.quantile_error(),
        figures.map_memory(),
    ]
    lines = [
        f"Measured by `make bench` on {figures.machine()}.",
        "",
        "| figure | measured | bound | |",
        "|---|---|---|---|",
    ]
    for figure in found:
        verdict = "" if figure.holds else " **missed**"
        lines.append(f"| {figure.name} | {figure.value:.3g}{verdict} | ≤ {figure.bound:g} | {figure.text} |")
    lines += ["", f"Start-up of `biolatency-bpfcc 1 1`, less its second: {bcc}."]
    print("\n".join(lines))
    text = DOCUMENT.read_text()
    section = f"{BEGIN}\n" + "\n".join(lines) + f"\n{END}"
    DOCUMENT.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: section, text, flags=re.DOTALL))
    return 0 if all(figure.holds for figure in found) else 1


if __name__ == "__main__":
    sys.exit(main())
