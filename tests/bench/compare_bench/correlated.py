"""Measure how often `opwatch compare` reports a difference between equal runs with correlated seconds.

In the seeded pairs, rate and latency are autocorrelated or switch between two states. The table goes into
docs/method-compare.md.

    python -m tests.bench.compare_bench.correlated [PAIRS [SECONDS]]
"""

from __future__ import annotations

import functools
import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import NormalDist

from opwatch.compare.comparison import RunComparison, compare_runs
from opwatch.compare.differences import FAMILY_ERROR_RATE
from opwatch.compare.estimates import MISSED_STATE_DIVISOR
from opwatch.compare.pairing import pair_disks
from opwatch.compare.sampling import sample_run
from opwatch.counters.catalogue.families import Catalogue
from tests.section import Section
from tests.unit.compare.counted_disk import Second, generate_entries

PAIRS, SECONDS = 200, 60
TABLE = Section("method-compare.md", "correlated")
SHARES = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98)
# Mean time in each of two states, as a share of the run.
STATES = (1 / 60, 1 / MISSED_STATE_DIVISOR, 1 / 20, 1 / 12, 1 / 6, 1 / 3, 1 / 2, 1.0)
# Mean time that a deviation lasts under noise, as a share of the run.
NOISY = (1 / MISSED_STATE_DIVISOR, 1 / 20, 1 / 12, 1 / 3)
_RATE, _LATENCY_NS, _SPREAD, _STEPS = 1000.0, 200e3, 0.1, 500
_LATENCIES = [math.exp(NormalDist(0, 0.5).inv_cdf((step + 0.5) / _STEPS)) for step in range(_STEPS)]
# Standard deviation of the noise per second, independent of the state.
_NOISE = 0.3

Mood = Callable[[random.Random, int], Iterator[float]]


def draw_correlated(share: float, chance: random.Random, seconds: int) -> Iterator[float]:
    """Yield deviations with this correlation between consecutive seconds."""
    mood = chance.gauss(0, 1)
    for _ in range(seconds):
        mood = share * mood + math.sqrt(1 - share**2) * chance.gauss(0, 1)
        yield mood


def draw_correlated_with_noise(part: float, chance: random.Random, seconds: int) -> Iterator[float]:
    """Yield deviations: half of the variance lasts `part` of a run on average, the other half is independent
    noise."""
    for mood in draw_correlated(_compute_correlation(part, seconds), chance, seconds):
        yield mood + chance.gauss(0, 1)


def _compute_correlation(part: float, seconds: int) -> float:
    """Return the share of a deviation that is left after a second if it lasts `part` of a run on average."""
    return 1 - 1 / (part * seconds)


def draw_two_states(part: float, chance: random.Random, seconds: int) -> Iterator[float]:
    """Yield deviations of two states; each state lasts `part` of a run on average."""
    state = chance.choice((-1, 1))
    for _ in range(seconds):
        if chance.random() < 1 / (part * seconds):
            state = -state
        yield state + _NOISE * chance.gauss(0, 1)


def make_run(mood: Mood, seed: int, seconds: int) -> list[Second]:
    """Return a run with independent deviations of rate and latency."""
    chance = random.Random(seed)
    moods = zip(mood(chance, seconds), mood(chance, seconds), strict=True)
    made = list[Second]()
    for of_rate, of_latency in moods:
        count = max(round(_RATE * math.exp(_SPREAD * of_rate)), 1)
        scale = _LATENCY_NS * math.exp(_SPREAD * of_latency)
        made.append({"read": Counter(round(scale * one) for one in chance.choices(_LATENCIES, k=count))})
    return made


def compare_pair(mood: Mood, seed: int, seconds: int) -> RunComparison:
    """Compare two equal runs as the command does."""
    runs = [sample_run(generate_entries(make_run(mood, 2 * seed + number, seconds))) for number in (0, 1)]
    files = ["a", "b"]
    return compare_runs(runs, files, pair_disks(runs, (), files), (), lambda: Catalogue(()))


@dataclass
class Tally:
    """Counts of pairs reported to differ in any figure, and of figures refused as too correlated."""

    pairs: int = 0
    false: int = 0
    figures: int = 0
    refused: int = 0

    def add_comparison(self, comparison: RunComparison) -> None:
        rows = [
            row for disk in comparison.disks for row in disk.rows if row.op == "read" and row.metric != "max"
        ]
        self.pairs += 1
        self.false += any(row.differences[0].is_detected for row in rows)
        self.figures += len(rows)
        self.refused += sum(
            any((estimate.reason or "").startswith("too correlated") for estimate in row.estimates)
            for row in rows
        )


def measure_pairs(mood: Mood, pairs: int, seconds: int) -> Tally:
    tally = Tally()
    for seed in range(pairs):
        tally.add_comparison(compare_pair(mood, seed, seconds))
    return tally


def main() -> int:
    words = [*sys.argv[1:3], *(str(PAIRS), str(SECONDS))[len(sys.argv[1:3]) :]]
    return run_bench(int(words[0]), int(words[1]))


def run_bench(pairs: int, seconds: int) -> int:
    """Measure and print everything; return 1 if the guaranteed error rate is exceeded."""
    kinds: list[tuple[str, Mood, bool]] = [
        (f"correlation {share:g} from second to second", functools.partial(draw_correlated, share), True)
        for share in SHARES
    ]
    kinds += [
        (
            f"two states, {part * seconds:g} s each",
            functools.partial(draw_two_states, part),
            part <= 1 / MISSED_STATE_DIVISOR,
        )
        for part in STATES
    ]
    kinds += [
        (
            f"correlation {_compute_correlation(part, seconds):.2g} ({part * seconds:g} s) under "
            "noise of the same size",
            functools.partial(draw_correlated_with_noise, part),
            part <= 1 / MISSED_STATE_DIVISOR,
        )
        for part in NOISY
    ]
    rows = [
        f"{pairs} pairs of equal runs of {seconds} s each (`python -m tests.bench.compare_bench.correlated "
        f"{pairs} {seconds}`):",
        "",
        "| runs | reported to differ in any figure | promised | figures refused as too correlated |",
        "|---|---|---|---|",
    ]
    is_kept = True
    for name, mood, is_promised in kinds:
        tally = measure_pairs(mood, pairs, seconds)
        rate = tally.false / tally.pairs
        # Limit of the false share, including two standard deviations of chance.
        most = FAMILY_ERROR_RATE + 2 * math.sqrt(FAMILY_ERROR_RATE * (1 - FAMILY_ERROR_RATE) / tally.pairs)
        is_kept = is_kept and (rate <= most or not is_promised)
        promised = f"{FAMILY_ERROR_RATE:.0%}" if is_promised else "no"
        rows.append(f"| {name} | {rate:.1%} | {promised} | {tally.refused / tally.figures:.0%} |")
        print(rows[-1], flush=True)
    print("\n".join(rows))
    if pairs >= PAIRS:
        TABLE.write_body("\n".join(rows))
    return int(not is_kept)


if __name__ == "__main__":
    sys.exit(main())
