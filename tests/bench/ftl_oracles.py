"""Compare the simulated drive's steady-state write amplification with every model, at full size.

    python -m tests.bench.ftl_oracles [PAGES [DRIVE_WRITES]]

Fails if a case deviates by more than 0.5 %.
"""

from __future__ import annotations

import sys
import time

from opwatch.ftl import validate

from .figure import choose_exit_status, choose_size

LIMIT_RATIO = 0.005


def main() -> int:
    pages = int(sys.argv[1]) if len(sys.argv) > 1 else choose_size(4 << 20, 1 << 15)
    drive_writes = float(sys.argv[2]) if len(sys.argv) > 2 else choose_size(20.0, 2.0)
    worst = 0.0
    print(f"{pages} user pages, {drive_writes:g} drive writes, measured over the last half")
    print(f"{'case':<40} {'model':>8} {'drive':>8} {'off %':>7} {'error %':>7} {'s':>5}")
    for case in validate.generate_cases():
        begin = time.monotonic()
        out = validate.run_case(case, pages, drive_writes)
        worst = max(worst, abs(out.deviation_ratio))
        print(
            f"{case.name:<40} {case.expected_ratio:8.4f} {out.measured_ratio:8.4f} "
            f"{100 * out.deviation_ratio:+7.3f} {100 * out.error_ratio / out.measured_ratio:7.3f} "
            f"{time.monotonic() - begin:5.1f}",
            flush=True,
        )
    print(f"worst: {100 * worst:.3f} %, bound {100 * LIMIT_RATIO:g} %")
    return choose_exit_status(holds=worst <= LIMIT_RATIO)


if __name__ == "__main__":
    sys.exit(main())
