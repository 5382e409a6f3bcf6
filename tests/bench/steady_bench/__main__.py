"""Judge new series with a known long-run mean, and count wrong results.

    python -m tests.bench.steady_bench [SERIES [SEED]]

Half of the series are made up, half come from a second flash translation layer. Fails if more than 1 % of the
series that are said to be steady are off by more than 2 % and more than their printed error, if one is off by
more than 10 %, or if less than 95 % of steady noise is recognized.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from tests.bench.figure import choose_exit_status, choose_size

from .flash import build_ftl, draw_case, make_flash_series, run_case
from .outcomes import OutcomeTable
from .series import KINDS, make_series

_WRONG_RATIO, _RECOGNIZED_RATIO = 0.01, 0.95


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else choose_size(400, 32)
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1 << 30)
    print(f"{count} series, seed {seed}")
    program, table = build_ftl(Path("build")), OutcomeTable()
    for number in range(count // 2):
        table.add_series(make_series(KINDS[number % len(KINDS)], seed + number))
        case = draw_case(seed + number)
        table.add_series(make_flash_series(case, run_case(program, case)))
    for row in table.format_rows():
        print(row)
    for outcome in table.outcomes:
        if outcome.is_off():
            print(f"off: {outcome.describe()}")
    return choose_exit_status(holds=is_good(table))


def is_good(table: OutcomeTable) -> bool:
    steady = [one for one in table.outcomes if one.is_steady]
    noise = [one for one in table.outcomes if one.series.kind == "noise"]
    recognized = sum(one.is_steady for one in noise)
    seen = [one for one in steady if one.is_visible]
    return (
        sum(one.is_off() for one in seen) <= _WRONG_RATIO * len(steady)
        and not any(one.is_off(0.10) for one in seen)
        and recognized >= _RECOGNIZED_RATIO * len(noise)
    )


if __name__ == "__main__":
    sys.exit(main())
