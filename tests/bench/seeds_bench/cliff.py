"""`make bench-drive`: error of the predicted byte at which an untrimmed drive runs out of spare area.

Runs 20 layouts of each profile.
"""

from __future__ import annotations

import sys

from opwatch.ftl import profiles
from opwatch.scenarios.scenario import scenario_of
from opwatch.scenarios.untrimmed import seeded, untrimmed_setup
from opwatch.scenarios.untrimmed_words import NEAR_RATIO
from opwatch.sweep.virtual import model_of
from tests.bench.figure import exit_status, sized

SEEDS = range(2, sized(22, 3))
# Rounds, and seconds per round: enough for a drive's largest spare area.
PROFILES = {"intel-545s-256": (80, 5), "intel-520-240": (80, 5), "enterprise-nvme-1920": (80, 10)}


def main() -> int:
    scenario = scenario_of("untrimmed-cliff")
    holds = True
    for name, (rounds, round_s) in PROFILES.items():
        chosen = scenario.with_setup({"rounds": rounds, "round_s": round_s})
        setup = untrimmed_setup(chosen.setup, chosen.io_bytes, chosen.queue_depth, 1)
        errors = [run.error_ratio for run in seeded(setup, model_of(profiles.load(name), 4096), SEEDS)]
        known = [abs(error) for error in errors if error is not None]
        worst = max(known, default=1.0)
        print(f"{name}: {len(known)} of {len(errors)} came, the worst {100 * worst:.2f} % off")
        holds = holds and len(known) == len(errors) and worst <= NEAR_RATIO
    return exit_status(holds=holds)


if __name__ == "__main__":
    sys.exit(main())
