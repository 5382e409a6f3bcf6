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

from opwatch.compare.comparing import RunComparison, compared
from opwatch.compare.differences import FAMILY_CHANCE
from opwatch.compare.estimates import MISSED_PART
from opwatch.compare.pairing import paired
from opwatch.compare.sampling import sampled
from opwatch.counters.catalogue.families import Catalogue
from tests.section import Section
from tests.unit.compare.counted_disk import Second, entries

PAIRS, SECONDS = 200, 60
TABLE = Section("method-compare.md", "correlated")
SHARES = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98)
# Mean time in each of two states, as a share of the run.
STATES = (1 / 60, 1 / MISSED_PART, 1 / 20, 1 / 12, 1 / 6, 1 / 3, 1 / 2, 1.0)
# Mean time that a deviation lasts under noise, as a share of the run.
NOISY = (1 / MISSED_PART, 1 / 20, 1 / 12, 1 / 3)
_RATE, _LATENCY_NS, _SPREAD, _STEPS = 1000.0, 200e3, 0.1, 500
_LATENCIES = [math.exp(NormalDist(0, 0.5).inv_cdf((step + 0.5) / _STEPS)) for step in range(_STEPS)]
# Standard deviation of the noise per second, independent of the state.
_NOISE = 0.3

Mood = Callable[[random.Random, int], Iterator[float]]


def share_lasts(share: float, chance: random.Random, seconds: int) -> Iterator[float]:
    """Yield deviations with this correlation between consecutive seconds."""
    mood = chance.gauss(0, 1)
    for _ in range(seconds):
        mood = share * mood + math.sqrt(1 - share**2) * chance.gauss(0, 1)
        yield mood


def lasts_under_noise(part: float, chance: random.Random, seconds: int) -> Iterator[float]:
    """Yield deviations: half of the variance lasts `part` of a run on average, the other half is independent
    noise."""
    for mood in share_lasts(_share_of(part, seconds), chance, seconds):
        yield mood + chance.gauss(0, 1)


def _share_of(part: float, seconds: int) -> float:
    """Return the share of a deviation that is left after a second if it lasts `part` of a run on average."""
    return 1 - 1 / (part * seconds)


def states_last(part: float, chance: random.Random, seconds: int) -> Iterator[float]:
    """Yield deviations of two states; each state lasts `part` of a run on average."""
    state = chance.choice((-1, 1))
    for _ in range(seconds):
        if chance.random() < 1 / (part * seconds):
            state = -state
        yield state + _NOISE * chance.gauss(0, 1)


def run_of(mood: Mood, seed: int, seconds: int) -> list[Second]:
    """Return a run with independent deviations of rate and latency."""
    chance = random.Random(seed)
    moods = zip(mood(chance, seconds), mood(chance, seconds), strict=True)
    made = list[Second]()
    for of_rate, of_latency in moods:
        count = max(round(_RATE * math.exp(_SPREAD * of_rate)), 1)
        scale = _LATENCY_NS * math.exp(_SPREAD * of_latency)
        made.append({"read": Counter(round(scale * one) for one in chance.choices(_LATENCIES, k=count))})
    return made


def compare(mood: Mood, seed: int, seconds: int) -> RunComparison:
    """Compare two equal runs as the command does."""
    runs = [sampled(entries(run_of(mood, 2 * seed + number, seconds))) for number in (0, 1)]
    files = ["a", "b"]
    return compared(runs, files, paired(runs, (), files), (), lambda: Catalogue(()))


@dataclass
class Tally:
    """Counts of pairs reported to differ in any figure, and of figures refused as too correlated."""

    pairs: int = 0
    false: int = 0
    figures: int = 0
    refused: int = 0

    def add(self, comparison: RunComparison) -> None:
        rows = [
            row for disk in comparison.disks for row in disk.rows if row.op == "read" and row.metric != "max"
        ]
        self.pairs += 1
        self.false += any(row.differences[0].is_real for row in rows)
        self.figures += len(rows)
        self.refused += sum(
            any(
                (estimate.reason or "").startswith(("too correlated", "its ups"))
                for estimate in row.estimates
            )
            for row in rows
        )


def measure(mood: Mood, pairs: int, seconds: int) -> Tally:
    tally = Tally()
    for seed in range(pairs):
        tally.add(compare(mood, seed, seconds))
    return tally


def main() -> int:
    words = [*sys.argv[1:3], *(str(PAIRS), str(SECONDS))[len(sys.argv[1:3]) :]]
    return run(int(words[0]), int(words[1]))


def run(pairs: int, seconds: int) -> int:
    """Measure and print everything; return 1 if the promise is broken where it applies."""
    kinds: list[tuple[str, Mood, bool]] = [
        (f"correlation {share:g} from second to second", functools.partial(share_lasts, share), True)
        for share in SHARES
    ]
    kinds += [
        (
            f"two states, {part * seconds:g} s each",
            functools.partial(states_last, part),
            part <= 1 / MISSED_PART,
        )
        for part in STATES
    ]
    kinds += [
        (
            f"correlation {_share_of(part, seconds):.2g} ({part * seconds:g} s) under noise of the same size",
            functools.partial(lasts_under_noise, part),
            part <= 1 / MISSED_PART,
        )
        for part in NOISY
    ]
    rows = [
        f"{pairs} pairs of equal runs of {seconds} s each (`python -m tests.bench.compare_bench.correlated "
        f"{pairs} {seconds}`):",
        "",
        "| runs | said to differ in any figure | promised | figures refused as too correlated |",
        "|---|---|---|---|",
    ]
    is_kept = True
    for name, mood, is_promised in kinds:
        tally = measure(mood, pairs, seconds)
        rate = tally.false / tally.pairs
        # Limit of the false share, including two standard deviations of chance.
        most = FAMILY_CHANCE + 2 * math.sqrt(FAMILY_CHANCE * (1 - FAMILY_CHANCE) / tally.pairs)
        is_kept = is_kept and (rate <= most or not is_promised)
        promised = f"{FAMILY_CHANCE:.0%}" if is_promised else "no"
        rows.append(f"| {name} | {rate:.1%} | {promised} | {tally.refused / tally.figures:.0%} |")
        print(rows[-1], flush=True)
    print("\n".join(rows))
    if pairs >= PAIRS:
        TABLE.write("\n".join(rows))
    return int(not is_kept)


if __name__ == "__main__":
    sys.exit(main())
