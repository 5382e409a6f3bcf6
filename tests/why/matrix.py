"""What `opwatch why` answers to runs whose cause is known, as a table in docs/method-why.md.

    python -m tests.why.matrix --out FOLDER [--seeds N] [--first SEED] [--causes C...] [--shapes S...]
                               [--jobs N] [--write]

Makes the runs that are not in FOLDER yet (root; 140 s each), asks for the causes, and prints the table.
`--jobs` makes several runs at once, each on its own drive; runs in which the host was too slow are left out.
`--write` also writes the table into the page. Fails above the bounds on wrong answers.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from opwatch.errors import OpwatchError
from opwatch.why.candidate import CauseName
from tests.section import Section
from tests.why.causes import CAUSES
from tests.why.plan import LOADS, SHAPES
from tests.why.runs import WhyRun, load_run, name_run

SECTION = Section("method-why.md", "answers to runs whose cause is known")
_NOTHING_SLOW = 6
_MAX_WRONG_SHARE, _MAX_NAMED_NULL_SHARE, _MIN_RECALL = 0.03, 0.02, 0.8
# The right answers per cause. A slow die has no cause of its own in the answer.
RIGHT: Mapping[str, frozenset[CauseName]] = {
    "none": frozenset(),
    "gc": frozenset({CauseName.GARBAGE_COLLECTION}),
    "slc-full": frozenset({CauseName.SLC_CACHE}),
    "thermal": frozenset({CauseName.THERMAL}),
    "stall": frozenset({CauseName.HOUSEKEEPING}),
    "log-stall": frozenset({CauseName.POLLING}),
    "sleep": frozenset({CauseName.SLEEP}),
    "slow-die": frozenset(),
    "way": frozenset({CauseName.PATH}),
    "flush-storm": frozenset({CauseName.FLUSHES}),
    "discards": frozenset({CauseName.DISCARDS}),
    "read-behind-write": frozenset({CauseName.READ_BEHIND_WRITE}),
    "saturation": frozenset({CauseName.SATURATION}),
    "large-among-small": frozenset({CauseName.LARGE_REQUESTS}),
    "neighbour": frozenset({CauseName.NEIGHBOUR}),
    "scheduler": frozenset({CauseName.SCHEDULER}),
    "tags": frozenset({CauseName.TAGS}),
    "errors": frozenset({CauseName.ERRORS}),
    "journal": frozenset({CauseName.KERNEL_WORK}),
}


class Outcome(StrEnum):
    """What an answer is, compared with the injected cause."""

    RIGHT = "right"
    # The right cause and others, which the answer says cannot be told apart.
    AMONG = "right or another"
    WRONG = "wrong"
    UNKNOWN = "unknown"
    NOT_SLOW = "nothing slow"


@dataclass
class Row:
    """The answers to the runs of one cause; `left_out` are runs in which the host was a cause of its own."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    left_out: int = 0

    @property
    def count(self) -> int:
        return self.outcomes.total()


def judge_answer(cause: str, document: Mapping[str, Any] | None) -> tuple[Outcome, list[str]]:
    """Return the outcome of an answer, and the wrong causes that it names. None: nothing was slow."""
    if document is None or not document["slow"]:
        return Outcome.NOT_SLOW, []
    right = {name.value for name in RIGHT[cause]}
    groups = [set(named["names"]) for slow in document["slow"] for named in slow["causes"]]
    wrong = sorted({name for group in groups if not group & right for name in group})
    if wrong:
        return Outcome.WRONG, wrong
    if any(group <= right for group in groups):
        return Outcome.RIGHT, []
    return (Outcome.AMONG if groups else Outcome.UNKNOWN), []


def ask_cause(recording: Path) -> dict[str, Any] | None:
    """Return the answer's document, or None if nothing was slow."""
    argv = [sys.executable, "-m", "opwatch", "why", str(recording), "--json", "-q"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode not in (0, _NOTHING_SLOW):
        raise OpwatchError(f"{' '.join(argv)}: {done.stderr}")
    document: dict[str, Any] | None = json.loads(done.stdout) if done.stdout else None
    return document


def add_run(rows: dict[str, Row], run: WhyRun, document: Mapping[str, Any] | None) -> None:
    """Count the answer to a run."""
    row = rows.setdefault(run.cause, Row())
    if not run.is_usable:
        row.left_out += 1
        return
    outcome, wrong = judge_answer(run.cause, document)
    row.outcomes[outcome] += 1
    row.wrong.update(wrong)


def format_matrix(rows: Mapping[str, Row]) -> Iterator[str]:
    """Yield the table as Markdown."""
    yield "| injected | runs | " + " | ".join(Outcome) + " | wrong answers | left out |"
    yield "|---|---|" + "---|" * len(Outcome) + "---|---|"
    for cause, row in sorted(rows.items(), key=lambda one: tuple(CAUSES).index(one[0])):
        counts = " | ".join(str(row.outcomes[outcome]) for outcome in Outcome)
        wrong = ", ".join(f"{name} {count}" for name, count in row.wrong.most_common())
        yield f"| {CAUSES[cause].what} | {row.count} | {counts} | {wrong} | {row.left_out} |"


def check_bounds(rows: Mapping[str, Row]) -> list[str]:
    """Return the bounds that the answers miss."""
    injected = {cause: row for cause, row in rows.items() if RIGHT[cause]}
    missed = [
        f"{cause}: named in {row.outcomes[Outcome.RIGHT]} of {row.count} runs"
        for cause, row in injected.items()
        if row.outcomes[Outcome.RIGHT] < _MIN_RECALL * row.count
    ]
    count, wrong = (
        sum(values)
        for values in (
            [row.count for row in rows.values()],
            [row.outcomes[Outcome.WRONG] for row in rows.values()],
        )
    )
    if wrong > _MAX_WRONG_SHARE * count:
        missed.append(f"wrong in {wrong} of {count} runs")
    null = rows.get("none", Row())
    if null.outcomes[Outcome.WRONG] > _MAX_NAMED_NULL_SHARE * null.count:
        missed.append(f"a cause is named in {null.outcomes[Outcome.WRONG]} of {null.count} runs without one")
    return missed


@dataclass(frozen=True)
class _Order:
    """A run to make, in a process of its own."""

    folder: Path
    cause: str
    load: str
    shape: str | None
    seed: int
    seconds: float

    @property
    def path(self) -> Path:
        return self.folder / f"{name_run(self.cause, self.seed, self.load, self.shape)}.json"

    def make(self) -> WhyRun:
        """Return the run; make it if it does not exist."""
        if not self.path.exists():
            words = [f"--cause={self.cause}", f"--load={self.load}", f"--seed={self.seed}"]
            words += [f"--shape={self.shape}"] if self.shape else []
            words += [f"--seconds={self.seconds}", f"--out={self.folder}"]
            argv = [sys.executable, "-m", "tests.why", *words]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            if done.returncode:
                raise OpwatchError(f"{' '.join(argv)}: {done.stderr}")
        return load_run(self.path)


def _iterate_runs(args: argparse.Namespace) -> Iterator[WhyRun]:
    """Yield the runs, and make those that do not exist."""
    seeds = range(args.first, args.first + args.seeds)
    orders = [
        _Order(args.out, cause, load, shape, seed, args.seconds)
        for seed in seeds
        for cause in args.causes
        for load in args.loads
        for shape in args.shapes or [None]
    ]
    with ThreadPoolExecutor(args.jobs) as pool:
        yield from pool.map(_Order.make, orders)


def _parse_arguments(argv: Iterable[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.why.matrix")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the runs")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--causes", nargs="+", choices=tuple(CAUSES), default=tuple(CAUSES))
    parser.add_argument("--loads", nargs="+", choices=tuple(LOADS), default=tuple(LOADS))
    parser.add_argument("--shapes", nargs="+", choices=tuple(SHAPES), help="the usual one of each cause")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--write", action="store_true", help="write the table into the page")
    return parser.parse_args(None if argv is None else list(argv))


def main(argv: Iterable[str] | None = None) -> int:
    args = _parse_arguments(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    rows: dict[str, Row] = {}
    for run in _iterate_runs(args):
        document = ask_cause(run.recording)
        add_run(rows, run, document)
        outcome, wrong = judge_answer(run.cause, document)
        print(f"{run.recording.stem}: {outcome.value} {', '.join(wrong)}", flush=True)
    lines = list(format_matrix(rows))
    print("\n".join(lines))
    if args.write:
        SECTION.write_body("\n".join(lines))
    missed = check_bounds(rows)
    for bound in missed:
        print(f"missed: {bound}")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
