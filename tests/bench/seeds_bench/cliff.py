"""`make bench-drive`: error of the predicted byte at which an untrimmed drive runs out of spare area.

Runs 20 layouts of each profile.
"""

from __future__ import annotations

import sys

from opwatch.ftl import profiles
from opwatch.scenarios.scenario import load_scenario
from opwatch.scenarios.untrimmed import parse_untrimmed_setup, run_layouts
from opwatch.scenarios.untrimmed_findings import NEAR_RATIO
from opwatch.sweep.virtual import make_model
from tests.bench.figure import choose_exit_status, choose_size

_DEPTH = 16
SEEDS = range(2, choose_size(22, 3))
# Rounds, and seconds per round: enough for a drive's largest spare area.
PROFILES = {"intel-545s-256": (80, 5), "intel-520-240": (80, 5), "enterprise-nvme-1920": (80, 10)}


def main() -> int:
    scenario = load_scenario("untrimmed-cliff")
    holds = True
    for name, (rounds, round_s) in PROFILES.items():
        chosen = scenario.with_setup({"rounds": rounds, "round_s": round_s, "fsync_every": 0})
        setup = parse_untrimmed_setup(chosen.setup, chosen.io_bytes, _DEPTH, 1)
        errors = [
            run.error_ratio
            for run in run_layouts(setup, make_model(profiles.load_profile(name), 4096), SEEDS)
        ]
        known = [abs(error) for error in errors if error is not None]
        worst = max(known, default=1.0)
        print(f"{name}: {len(known)} of {len(errors)} cliffs occurred, largest error {100 * worst:.2f} %")
        holds = holds and len(known) == len(errors) and worst <= NEAR_RATIO
    return choose_exit_status(holds=holds)


if __name__ == "__main__":
    sys.exit(main())
