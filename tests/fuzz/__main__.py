"""All fuzz targets in Python, each with its share of the inputs; `make fuzz-all`.

    python -m tests.fuzz [INPUTS [SEED]]

Prints for each how many inputs it got and how fast. The first that breaks a rule raises, with its seed.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable

from tests.fuzz import counters, formats, history, rules, trim, trim_tables

# What an input costs decides how many of them there are: all together take about as long for each.
TARGETS: dict[str, tuple[Callable[[int, int], None], float]] = {
    "counters": (lambda inputs, seed: counters.Fuzz(seed).run(inputs), 0.35),
    "formats": (lambda inputs, seed: formats.Fuzz(seed).run(inputs), 0.3),
    "trim": (lambda inputs, seed: trim.Fuzz(seed).run(inputs), 0.2),
    "trim_tables": (trim_tables.run, 0.1),
    "history": (history.run, 0.05),
}
_STEP = 20_000


def main() -> int:
    inputs = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns() % (1 << 32)
    # A pause of the collector is none of the input's.
    gc.disable()
    rules.BOUND.seconds = rules.STRICT_S
    for name, (run, share) in TARGETS.items():
        wanted, done, begin = round(inputs * share), 0, time.process_time()
        while done < wanted:
            count = min(_STEP, wanted - done)
            try:
                run(count, seed + done)
            except BaseException:
                print(f"{name}: failed within {count} inputs from seed {seed + done}", flush=True)
                raise
            done += count
            gc.collect()
        rate = done / max(time.process_time() - begin, 1e-9)
        print(
            f"{name:<12} {done:>10} inputs from seed {seed}, {rate:>7.0f} a second: nothing found", flush=True
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
