"""Compare sweeps in virtual time with an independent simulator (ftl.c): twelve skews by five levels.

    python -m tests.bench.uneven_bench [UNITS]

Fails if a level's WAF differs by more than 2 %, or if a level does not reach steady state.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from opwatch.ftl.drive import Policy
from opwatch.ftl.profiles import Profile
from opwatch.steady.strict import StrictState
from opwatch.sweep.levels import OpLevel
from tests.bench.figure import choose_exit_status, choose_size

from .cases import (
    CASES,
    DRIFTING,
    LEVELS,
    OTHERS,
    UnevenCase,
    build_simulator,
    compare_case,
    compare_drifting,
    make_profile,
)

LIMIT = 0.02
_PAGES = 128


def main() -> int:
    units = int(sys.argv[1]) if len(sys.argv) > 1 else choose_size(1 << 17, 1 << 14)
    cases, levels = choose_size((*CASES, *OTHERS), CASES[:1]), choose_size(LEVELS, "28%")
    deviations, unproven = list[float](), 0
    print(f"{units} units of flash, superblocks of {_PAGES} pages, one frontier")
    print(
        f"{'load':<30} {'(T-U)/U':>8} {'policy':>7} {'simulator':>9} {'opwatch':>8} {'off':>8} {'printed':>8}"
    )
    with tempfile.TemporaryDirectory() as folder:
        program = build_simulator(Path(folder))
        for number, case in enumerate(cases):
            profile = _make_profile(units, number)
            for level, outcome, truth in compare_case(program, case, profile, levels):
                waf, error = outcome.figures.waf or 0.0, outcome.figures.waf_error or 0.0
                unproven += outcome.strict.state is not StrictState.PASS
                printed = f"{100 * error / max(waf, 1):7.2f}%"
                deviations.append(_report(case, level, profile, waf, truth, printed))
        for number, case in enumerate(DRIFTING, 1):
            profile = _make_profile(units, number)
            for level, waf, truth in compare_drifting(program, case, profile, levels):
                deviations.append(_report(case, level, profile, waf, truth, "none"))
    worst = max(map(abs, deviations))
    print(
        f"{len(deviations)} levels, {unproven} unproven, worst deviation {100 * worst:.2f} %, "
        f"bound {100 * LIMIT:g} %"
    )
    return choose_exit_status(holds=worst <= LIMIT and not unproven)


def _make_profile(units: int, number: int) -> Profile:
    """Return a drive that collects greedily, and one of three that is FIFO."""
    return make_profile(units, _PAGES, Policy.FIFO if number % 3 == 2 else Policy.GREEDY)


def _report(
    case: UnevenCase, level: OpLevel, profile: Profile, waf: float, truth: float, printed: str
) -> float:
    """Print a level, and return its deviation."""
    policy = Policy(profile.drive["policy"]).name.lower()
    off = waf / truth - 1
    figures = f"{truth:9.4f} {waf:8.4f} {100 * off:+7.2f}% {printed:>8}"
    print(f"{case.name:<30} {level.label:>8} {policy:>7} {figures}", flush=True)
    return off


if __name__ == "__main__":
    sys.exit(main())
