"""Run all Python fuzz targets, each with its share of the inputs; `make fuzz-all`.

    python -m tests.fuzz [INPUTS [SEED [BEGIN]]]

The targets take turns, and each round prints its progress. To continue a stopped run, pass its SEED, and in
BEGIN the number of inputs done. The first failing input raises an error with the seed to reproduce it.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable

from tests.bench.figure import choose_size
from tests.fuzz import (
    audits,
    broker,
    counters,
    experiments,
    formats,
    history,
    latency,
    loads,
    recordings,
    rule_texts,
    rules,
    trim,
    trim_tables,
    web,
    writes,
)

# Shares by cost per input, so that all targets take about the same time.
TARGETS: dict[str, tuple[Callable[[int, int], None], float]] = {
    "counters": (lambda inputs, seed: counters.CounterFuzzer(seed).run_inputs(inputs), 0.2),
    "latency": (latency.run, 0.04),
    "rules": (rule_texts.run, 0.05),
    "experiments": (experiments.run, 0.01),
    "formats": (lambda inputs, seed: formats.FormatFuzzer(seed).run_inputs(inputs), 0.3),
    "trim": (lambda inputs, seed: trim.TrimFuzzer(seed).run_inputs(inputs), 0.2),
    "trim_tables": (trim_tables.run, 0.1),
    "dm_answers": (trim_tables.run_answers, 0.1),
    "audits": (lambda inputs, seed: audits.make_audit_fuzzer(seed).run_inputs(inputs), 0.05),
    "writes": (lambda inputs, seed: writes.make_writes_fuzzer(seed).run_inputs(inputs), 0.02),
    "history": (history.run, 0.05),
    "loads": (loads.run, 0.05),
    "broker": (broker.run, 0.02),
    "web": (web.run, 0.1),
    "recordings": (lambda inputs, seed: recordings.RecordingFuzzer(seed).run_inputs(inputs), 0.01),
}
_ROUND = 100_000


def _run_turn(inputs: int, seed: int) -> None:
    """Run each target with its share of these inputs."""
    for name, (run, share) in TARGETS.items():
        count = round(inputs * share)
        for attempts_left in (2, 1, 0):
            try:
                run(count, seed)
                break
            except BaseException as error:
                print(f"{name}: failed within {count} inputs from seed {seed}: {error}", flush=True)
                # A slow input is slow each time. Retries exclude stalls of the machine.
                if not (attempts_left and isinstance(error, rules.TimeLimitExceeded)):
                    raise
        gc.collect()


def main() -> int:
    words = [int(word) for word in sys.argv[1:4]]
    inputs, seed, begin = (words + [10_000_000, time.time_ns() % (1 << 32), 0][len(words) :])[:3]
    # Garbage collection must not count as time of an input.
    gc.disable()
    rules.BOUND.seconds = choose_size(rules.STRICT_S, rules.LENIENT_S)
    done, since = begin, time.process_time()
    while done < inputs:
        count = min(_ROUND, inputs - done)
        _run_turn(count, seed + done)
        done += count
        rate = (done - begin) / (time.process_time() - since)
        print(f"{done:>10} of {inputs} inputs, seed {seed}, {rate:.0f} per second: no failure", flush=True)
    for name, (_, share) in TARGETS.items():
        print(f"{name:<12} {round((done - begin) * share):>10} inputs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
