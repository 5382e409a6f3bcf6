"""Measure the error rates of `opwatch compare`: false differences and missed differences.

Pairs of seeded runs are written as recordings by the real writer and read back. The table goes into
docs/method-compare.md.

    python -m tests.bench.compare_bench [PAIRS [FIRST_SEED [FOLDER]]]

Recordings are kept in FOLDER and reused.
"""

from __future__ import annotations

import functools
import math
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import NormalDist, fmean, median, pstdev

from opwatch.compare.comparison import RunComparison, compare_runs
from opwatch.compare.differences import FAMILY_ERROR_RATE, START_ALLOWANCE, Statement
from opwatch.compare.pairing import pair_disks
from opwatch.compare.sampling import sample_run
from opwatch.counters.catalogue.families import load_standard_catalogue
from opwatch.recording.reading.reader import RecordedRun
from tests.section import Section
from tests.unit.compare.counted_disk import Second, generate_entries, write_recording

from . import bursty_runs, virtual_drive_runs

PAIRS, SECONDS, LONGER, FIRST_SEED = 200, 60, 300, 20_261_122
WORSE = 1.10
MAX_FALSE, MIN_RIGHT = 0.05, 0.95
TABLE = Section("method-compare.md", "measured")

Making = Callable[[int, int, float], Iterator[Second]]
_HALF, _LASTING = (functools.partial(bursty_runs.generate_run, lasting=lasting) for lasting in (0.5, 0.8))
KINDS: dict[str, tuple[Making, int]] = {
    f"the simulated drive ({virtual_drive_runs.PROFILE}) in virtual time": (
        virtual_drive_runs.generate_run,
        SECONDS,
    ),
    "lasting bursts, correlation 0.5 per second": (_HALF, SECONDS),
    "lasting bursts, correlation 0.8 per second": (_LASTING, SECONDS),
    "lasting bursts, correlation 0.5 per second, longer runs": (_HALF, LONGER),
    "lasting bursts, correlation 0.8 per second, longer runs": (_LASTING, LONGER),
}


@dataclass
class Tally:
    """The results for pairs that do not differ, and for pairs whose p99 differs."""

    pairs: int = 0
    false: int = 0
    right: int = 0
    false_by_metric: Counter[str] = field(default_factory=Counter)
    unknown: int = 0
    # Logarithms of the p99 ratios, and the number of figures that share the chance of an error.
    equal: list[float] = field(default_factory=list, repr=False)
    worse: list[float] = field(default_factory=list, repr=False)
    judged: list[int] = field(default_factory=list, repr=False)

    def add_comparison(self, comparison: RunComparison) -> None:
        """Add a comparison of a run with an equal one and with a worse one."""
        self.pairs += 1
        rows = [row for disk in comparison.disks for row in disk.rows]
        claimed = {f"{row.op} {row.metric}" for row in rows if row.differences[0].is_detected}
        self.false += bool(claimed)
        self.false_by_metric.update(claimed)
        self.judged.append(sum(row.differences[1].statement is not Statement.UNKNOWN for row in rows))
        ((equal, p99),) = [row.differences for row in rows if (row.op, row.metric) == ("read", "p99")]
        self.right += p99.statement is Statement.HIGHER
        self.unknown += p99.statement is Statement.UNKNOWN
        self.equal.append(math.log(equal.ratio or 1.0))
        self.worse.append(math.log(p99.ratio or 1.0))

    def find_detectable_share(self) -> float:
        """Return the share of worse runs that an observer would find who knows the standard deviation of p99.

        The deviation comes from all pairs that do not differ. A comparison of only two runs cannot reliably
        find more.
        """
        scatter = math.hypot(pstdev(self.equal), fmean(self.equal))
        chance = FAMILY_ERROR_RATE / median(self.judged)
        limit = NormalDist().inv_cdf(1 - chance / 2) * scatter + START_ALLOWANCE
        return sum(one > limit for one in self.worse) / len(self.worse)


def compare_recorded_runs(paths: Sequence[Path]) -> RunComparison:
    """Compare the runs as the command does: each one with the first."""
    runs = []
    for path in paths:
        recording = RecordedRun(path)
        runs.append(sample_run(recording.iter_entries()))
        recording.close()
    files = [path.name for path in paths]
    return compare_runs(runs, files, pair_disks(runs, (), files), (), load_standard_catalogue)


def record_run(folder: Path, kind: str, seed: int, worse: float) -> Path:
    """Return the path of a run's recording, which is written if missing."""
    path = folder / f"{list(KINDS).index(kind)}-{seed}-{worse:g}.opw"
    if not path.exists():
        begun = path.with_suffix(".begun")
        begun.unlink(missing_ok=True)
        making, seconds = KINDS[kind]
        write_recording(begun, generate_entries(making(seed, seconds, worse)))
        begun.rename(path)
    return path


def measure_pairs(kind: str, pairs: int, seed: int, folder: Path) -> Tally:
    tally = Tally()
    for pair in range(pairs):
        paths = [
            record_run(folder, kind, seed + 2 * pair + number, worse)
            for number, worse in ((0, 1.0), (1, 1.0), (1, WORSE))
        ]
        tally.add_comparison(compare_recorded_runs(paths))
        if pair % 20 == 19:
            print(f"{kind}: {pair + 1} pairs, {tally.false} false, {tally.right} detected", flush=True)
    return tally


def format_table(tallies: dict[str, Tally], seed: int) -> list[str]:
    rows = [
        f"On {datetime.now(UTC):%Y-%m-%d}, seeds from {seed}:",
        "",
        "| runs | length | pairs | equal pairs reported to differ in any figure | bound | "
        "read p99 10 % worse, detected | bound | known variation |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind, tally in tallies.items():
        false, right = tally.false / tally.pairs, tally.right / tally.pairs
        is_kept = false <= MAX_FALSE, right >= MIN_RIGHT
        words = ["" if kept else ", missed" for kept in is_kept]
        rows.append(
            f"| {kind} | {KINDS[kind][1]} s | {tally.pairs} | "
            f"{tally.false} ({100 * false:.1f} %{words[0]}) | {MAX_FALSE:.0%} | "
            f"{tally.right} ({100 * right:.1f} %{words[1]}) | {MIN_RIGHT:.0%} | "
            f"{100 * tally.find_detectable_share():.1f} % |"
        )
    return rows


def main() -> int:
    pairs, seed = (
        int(word) for word in (sys.argv[1:3] + [str(PAIRS), str(FIRST_SEED)][len(sys.argv[1:3]) :])
    )
    with tempfile.TemporaryDirectory() as temporary:
        return run_bench(pairs, seed, Path(sys.argv[3] if sys.argv[3:] else temporary))


def run_bench(pairs: int, seed: int, folder: Path) -> int:
    tallies = {}
    for kind in KINDS:
        begun = time.monotonic()
        tallies[kind] = measure_pairs(kind, pairs, seed, folder)
        print(f"{kind}: {tallies[kind]}, {time.monotonic() - begun:.0f} s", flush=True)
    rows = format_table(tallies, seed)
    print("\n".join(rows))
    if pairs >= PAIRS:
        TABLE.write_body("\n".join(rows))
    return int(
        any(
            tally.false > MAX_FALSE * tally.pairs or tally.right < MIN_RIGHT * tally.pairs
            for tally in tallies.values()
        )
    )


if __name__ == "__main__":
    sys.exit(main())
