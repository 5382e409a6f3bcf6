"""`make bench`: measure every figure and write the table into docs/overhead.md."""

from __future__ import annotations

import sys

from tests.section import Section

from . import default_set, figures
from .figure import exit_status, table

SECTION = Section("overhead.md", "figures")


def main() -> int:
    start, bcc = figures.start_up()
    measured = [
        *default_set.against_peer(),
        figures.many_devices(),
        figures.version(),
        start,
        figures.memory(),
        figures.user_cpu(),
        figures.quantile_error(),
        figures.virtual_sweep(),
        figures.map_memory(24, 64, 64, 64),
        figures.map_memory(64, 512, 512, 256),
    ]
    lines = [
        f"Measured by `make bench` on {figures.machine()}.",
        "",
        *table(measured),
    ]
    lines += ["", f"Start-up of `biolatency-bpfcc 1 1`, less its second: {bcc}."]
    print("\n".join(lines))
    SECTION.write("\n".join(lines))
    return exit_status(holds=all(figure.holds for figure in measured))


if __name__ == "__main__":
    sys.exit(main())
