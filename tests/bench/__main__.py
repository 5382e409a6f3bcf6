"""`make bench`: measure every figure and write the table into docs/overhead.md."""

from __future__ import annotations

import sys

from tests.section import Section

from . import default_set, figures
from .figure import choose_exit_status, format_table

SECTION = Section("overhead.md", "figures")


def main() -> int:
    start, bcc = figures.measure_start_up()
    measured = [
        *default_set.measure_against_peer(),
        figures.measure_many_devices(),
        figures.measure_version(),
        start,
        figures.measure_memory(),
        figures.measure_user_cpu(),
        figures.measure_quantile_error(),
        figures.measure_virtual_sweep(),
        figures.compute_map_memory(24, 64, 64, 64),
        figures.compute_map_memory(64, 512, 512, 256),
    ]
    lines = [
        f"Measured by `make bench` on {figures.describe_machine()}.",
        "",
        *format_table(measured),
    ]
    lines += ["", f"Start-up of `biolatency-bpfcc 1 1`, without its interval of 1 s: {bcc}."]
    print("\n".join(lines))
    SECTION.write_body("\n".join(lines))
    return choose_exit_status(holds=all(figure.is_within_bound for figure in measured))


if __name__ == "__main__":
    sys.exit(main())
