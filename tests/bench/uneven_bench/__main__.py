"""Compare sweeps in virtual time with an independent simulator (ftl.c): ten skews by five levels.

    python -m tests.bench.uneven_bench [UNITS]

Fails if a level's WAF differs by more than 2 %, or if a level does not reach steady state.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from opwatch.ftl.drive import Policy
from opwatch.steady.strict import StrictState
from tests.bench.figure import choose_exit_status, choose_size

from .cases import CASES, LEVELS, OTHERS, build_simulator, compare_case, make_profile

LIMIT = 0.02
_PAGES = 128


def main() -> int:
    units = int(sys.argv[1]) if len(sys.argv) > 1 else choose_size(1 << 17, 1 << 14)
    cases, levels = choose_size((*CASES, *OTHERS), CASES[:1]), choose_size(LEVELS, "28%")
    worst, count, unproven = 0.0, 0, 0
    print(f"{units} units of flash, superblocks of {_PAGES} pages, one frontier")
    print(
        f"{'load':<30} {'(T-U)/U':>8} {'policy':>7} {'simulator':>9} {'opwatch':>8} {'off':>8} {'printed':>8}"
    )
    with tempfile.TemporaryDirectory() as folder:
        program = build_simulator(Path(folder))
        for number, case in enumerate(cases):
            policy = Policy.FIFO if number % 3 == 2 else Policy.GREEDY
            profile = make_profile(units, _PAGES, policy)
            for level, outcome, truth in compare_case(program, case, profile, levels):
                waf, error = outcome.figures.waf or 0.0, outcome.figures.waf_error or 0.0
                off = waf / truth - 1
                worst, count = max(worst, abs(off)), count + 1
                unproven += outcome.strict.state is not StrictState.PASS
                print(
                    f"{case.name:<30} {level.label:>8} {policy.name.lower():>7} {truth:9.4f} {waf:8.4f} "
                    f"{100 * off:+7.2f}% {100 * error / max(waf, 1):7.2f}%",
                    flush=True,
                )
    print(
        f"{count} levels, {unproven} unproven, worst deviation {100 * worst:.2f} %, bound {100 * LIMIT:g} %"
    )
    return choose_exit_status(holds=worst <= LIMIT and not unproven)


if __name__ == "__main__":
    sys.exit(main())
