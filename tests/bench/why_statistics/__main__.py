"""Measure false alarms and power of the period search on new series.

    python -m tests.bench.why_statistics [SERIES [SEED]]

Fails if more than 5 % of the series of noise have a period, or if stalls of one second per minute are
found in less than 90 % of the series of a quarter of an hour.
"""

from __future__ import annotations

import random
import sys

from opwatch.report.periods import find_period
from tests.bench.figure import choose_exit_status, choose_size
from tests.unit.support.noise import add_pulses, draw_ar1

_COUNT, _SHARES = 900, (0.0, 0.3, 0.5, 0.8)
_MAX_FALSE, _MIN_FOUND = 0.05, 0.9
_HEIGHT = 6.0


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else choose_size(200, 2)
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1 << 30)
    print(f"{count} series of {_COUNT} s, seed {seed}")
    holds = True
    for share in _SHARES:
        false = found = 0
        for number in range(count):
            chance = random.Random(seed + number)
            noise = draw_ar1(chance, _COUNT, share)
            false += find_period(noise) is not None
            stalls = add_pulses(noise, first=60 * chance.random(), every=60, length=1, height=_HEIGHT)
            period = find_period(stalls)
            found += period is not None and abs(period.intervals - 60) <= 1
        print(f"correlation {share}: {false} periods in noise, {found} found at {_HEIGHT:g} deviations")
        holds = holds and false <= _MAX_FALSE * count and found >= _MIN_FOUND * count
    return choose_exit_status(holds=holds)


if __name__ == "__main__":
    sys.exit(main())
