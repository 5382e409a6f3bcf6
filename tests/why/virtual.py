"""What `opwatch why` answers to runs in virtual time whose cause is known, as a table in docs/method-why.md.

    python -m tests.why.virtual [--seeds N] [--first SEED] [--checks C...] [--jobs N] [--write]

Each seed has a load level and a load shape in turn. Virtual time gives many runs in minutes, and no host
disturbs them; runs in real time (matrix.py) show what a real host adds. Fails if a bound is missed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from math import fsum

from opwatch.why.answer import explain_unknown_queue
from opwatch.why.candidate import CauseName
from opwatch.why.decision import CauseVerdict, decide_causes, list_onsets, select_episodes
from opwatch.why.layers import StackLayer
from opwatch.why.slowness import EXAMINED_OPS, Slowness, find_peaks, find_slowness
from opwatch.why.statistics.axis import Axis, find_axis
from opwatch.why.witnessed import NAN
from tests.bench.figure import choose_exit_status, choose_size
from tests.section import Section
from tests.why.causes import CAUSES
from tests.why.matrix import RIGHT, Row, check_bounds, format_matrix, judge_answer
from tests.why.plan import LOADS, SHAPES
from tests.why.virtual_run import VIRTUAL_CAUSES, make_virtual_run
from tests.why.virtual_witness import Witnesses, witness_run

SECTION = Section("method-why.md", "answers to runs in virtual time")
# Causes whose usual load is steady also get this one.
_OTHER_SHAPE = "steps"
_SECONDS = choose_size(120, 24)
_NULL_RUNS_PER_SEED = 5
_MAX_THIRD_SHARE, _MIN_AXIS_SHARE = 0.03, 0.9
PAIRS = (
    *(("thermal", "flush-storm"), ("thermal", "neighbour"), ("thermal", "discards"), ("thermal", "way")),
    *(("way", "flush-storm"), ("way", "neighbour"), ("way", "saturation"), ("way", "discards")),
    *(("flush-storm", "neighbour"), ("flush-storm", "discards"), ("flush-storm", "large-among-small")),
    *(("discards", "neighbour"), ("discards", "saturation"), ("errors", "neighbour"), ("errors", "way")),
    *(("stall", "way"), ("stall", "neighbour"), ("log-stall", "flush-storm"), ("log-stall", "neighbour")),
    ("gc", "way"),
)


@dataclass(frozen=True)
class Order:
    """A run to make."""

    causes: tuple[str, ...]
    load: str
    seed: int
    shape: str | None = None


@dataclass(frozen=True)
class Reply:
    """The groups of causes that were named for a run, what would decide the rest, and whether it was slow."""

    order: Order
    groups: tuple[tuple[str, ...], ...]
    needs: tuple[str, ...]
    is_slow: bool

    def to_document(self) -> dict[str, object]:
        """Return the parts of the answer's document that are judged."""
        return {"slow": [{"causes": [{"names": group} for group in self.groups]}] if self.is_slow else []}


def _explain(found: Witnesses) -> Iterator[tuple[Slowness, CauseVerdict]]:
    for op in EXAMINED_OPS:
        if slowness := find_slowness(found.run, found.disk, op, found.drive):
            yield slowness, decide_causes(slowness)


def _reply(order: Order, found: Witnesses) -> Reply:
    answers = list(_explain(found))
    groups = [
        tuple(one.candidate.name.value for one in cause.found)
        for _, verdict in answers
        for cause in verdict.causes
    ]
    needs = [need for _, verdict in answers for need in verdict.needs]
    needs += [note] if (note := explain_unknown_queue(found.disk)) else []
    return Reply(order, tuple(groups), tuple(dict.fromkeys(needs)), bool(answers))


def _witness(order: Order) -> Witnesses:
    return witness_run(make_virtual_run(order.causes, order.load, order.seed, order.shape, _SECONDS))


def ask_run(order: Order) -> Reply:
    """Make a run, and return the answer to it."""
    return _reply(order, _witness(order))


def _forget_nand(found: Witnesses) -> Witnesses:
    return replace(found, drive=replace(found.drive, nand_per_s=None, reason="it does not count them"))


def _forget_heat(found: Witnesses) -> Witnesses:
    return replace(found, drive=replace(found.drive, throttled=None, temperature=None))


def _forget_drive_time(found: Witnesses) -> Witnesses:
    return replace(found, drive=replace(found.drive, drive_shares={}))


def _forget_settings(found: Witnesses) -> Witnesses:
    found.disk.settings.clear()
    return found


def _forget_owners(found: Witnesses) -> Witnesses:
    found.disk.owners = None
    return found


def _forget_queue(found: Witnesses) -> Witnesses:
    for series in found.disk.ops.values():
        for at in range(len(found.disk)):
            series.queue_ns[at] = series.admission_ns[at] = NAN
    return found


@dataclass(frozen=True)
class Removal:
    """A witness that is removed from the runs of a cause, and what the answer must ask for."""

    cause: str
    what: str
    forget: Callable[[Witnesses], Witnesses]
    need: str
    # What is true without the witness as well, if the answer asks for it.
    allowed: frozenset[CauseName] = frozenset()
    is_optional: bool = False  # what is allowed is proved without the witness, so that none need be asked for

    def is_right(self, reply: Reply) -> bool:
        """Return whether nothing but what is allowed is named, and the answer asks for the witness."""
        names = {name for group in reply.groups for name in group}
        is_asked = any(self.need in need for need in reply.needs)
        is_asked |= self.is_optional and bool(names)
        return names <= {one.value for one in self.allowed} and (is_asked or not reply.is_slow)


REMOVALS = (
    Removal(
        "gc",
        "NAND bytes",
        _forget_nand,
        "NAND bytes are unknown",
        # A period in bytes whatever the rate needs no NAND bytes.
        frozenset({CauseName.GARBAGE_COLLECTION}),
        is_optional=True,
    ),
    Removal("thermal", "log 02h", _forget_heat, "thermal throttling is unknown"),
    Removal("way", "log D0h", _forget_drive_time, "log D0h"),
    Removal("tags", "times of `--queue`", _forget_queue, "record with --queue"),
    Removal("scheduler", "times of `--queue`", _forget_queue, "record with --queue"),
    Removal("tags", "settings of the queue", _forget_settings, "settings of the disk's queue"),
    Removal("scheduler", "settings of the queue", _forget_settings, "settings of the disk's queue"),
    Removal(
        "neighbour",
        "owners of requests",
        _forget_owners,
        "record with --by",
        frozenset({CauseName.SATURATION, CauseName.READ_BEHIND_WRITE}),
    ),
)


def ask_without(removal: Removal, order: Order) -> Reply:
    """Make a run, and return the answer without a witness."""
    return _reply(order, removal.forget(_witness(order)))


def find_run_axis(order: Order) -> Axis:
    """Make a run, and return what the episodes of the slowest operation follow."""
    answers = list(_explain(_witness(order)))
    if not answers:
        return Axis.UNKNOWN
    slowness = max((one for one, _ in answers), key=lambda one: fsum(one.total_excess.values()))
    # The host's own episodes are not those of the drive.
    inside = [at for at in range(len(slowness.episodes)) if slowness.find_layer(at) is StackLayer.DRIVE]
    part = select_episodes(slowness, inside)
    axes = [find_axis(*list_onsets(one)[:2]).axis for one in (part, find_peaks(part))]
    return next((axis for axis in axes if axis is not Axis.UNKNOWN), Axis.UNKNOWN)


@dataclass
class Report:
    """The Markdown lines of a check, and the bounds that it misses."""

    lines: list[str]
    missed: list[str] = field(default_factory=list)


Map = Callable[[Callable[[Order], object], Iterable[Order]], Iterable[object]]


def plan_orders(causes: Sequence[tuple[str, ...]], seeds: Sequence[int]) -> Iterator[Order]:
    """Yield a run per cause and seed. Each seed has another load level, every second one another shape."""
    loads = tuple(LOADS)
    for number, seed in enumerate(seeds):
        for names in causes:
            is_plain = all(CAUSES[name].shape == "steady" for name in names)
            shape = _OTHER_SHAPE if number % 2 and is_plain else None
            yield Order(names, loads[number % len(loads)], seed, shape)


def check_causes(seeds: Sequence[int], run_all: Map) -> Report:
    """Compare the answers with the causes, one cause per run."""
    rows: dict[str, Row] = {}
    for reply in _ask_all(
        run_all, ask_run, plan_orders([(name,) for name in VIRTUAL_CAUSES if name != "none"], seeds)
    ):
        cause = reply.order.causes[0]
        outcome, wrong = judge_answer(cause, reply.to_document())
        row = rows.setdefault(cause, Row())
        row.outcomes[outcome] += 1
        row.wrong.update(wrong)
    return Report(list(format_matrix(rows)), check_bounds(rows))


def check_nulls(seeds: Sequence[int], run_all: Map) -> Report:
    """Count the runs without a cause for which one is named, over all load levels and shapes."""
    kinds = list(product(LOADS, SHAPES))
    count = _NULL_RUNS_PER_SEED * len(seeds)
    orders = [Order(("none",), *_pick(kinds, seeds[0] + number)) for number in range(count)]
    named = Counter(
        name for reply in _ask_all(run_all, ask_run, orders) for group in reply.groups[:1] for name in group
    )
    limit = count // 50
    lines = [f"A cause is named in {named.total()} of {count} runs without one{_list_names(named)}."]
    return Report(
        lines, [f"more than {limit} runs without a cause have one"] if named.total() > limit else []
    )


def _pick(kinds: Sequence[tuple[str, str]], seed: int) -> tuple[str, int, str]:
    load, shape = kinds[seed % len(kinds)]
    return load, seed, shape


def check_pairs(seeds: Sequence[int], run_all: Map) -> Report:
    """Count what is named of two causes that act at their own times in the same run."""
    counts, third = Counter[str](), Counter[str]()
    for reply in _ask_all(run_all, ask_run, plan_orders(PAIRS, seeds)):
        rights = [{name.value for name in RIGHT[cause]} for cause in reply.order.causes]
        wrong = [group for group in reply.groups if not any(right & set(group) for right in rights)]
        found = sum(any(right & set(group) for group in reply.groups) for right in rights)
        counts["a third" if wrong else ("none", "one", "both")[found]] += 1
        third.update(f"{' + '.join(reply.order.causes)}: {', '.join(group)}" for group in wrong)
    lines = [
        f"{len(PAIRS)} pairs of causes, {counts.total()} runs: both are named in {counts['both']}, one in "
        f"{counts['one']}, none in {counts['none']}, a third one in {counts['a third']}{_list_names(third)}."
    ]
    is_missed = counts["a third"] > _MAX_THIRD_SHARE * counts.total()
    return Report(lines, ["a third cause is named for pairs"] if is_missed else [])


def check_removals(seeds: Sequence[int], run_all: Map) -> Report:
    """Check that without the witness of a cause, the answer is unknown and asks for the witness."""
    lines, missed = (
        ["| injected | without | runs | unknown, with the remedy | others |", "|---|---|---|---|---|"],
        [],
    )
    for removal in REMOVALS:
        orders = plan_orders([(removal.cause,)], seeds)
        replies = list(_ask_all(run_all, partial(ask_without, removal), orders))
        bad = [one for one in replies if not removal.is_right(one)]
        named = Counter(
            ", ".join(name for group in one.groups for name in group) or "no remedy" for one in bad
        )
        lines.append(
            f"| {CAUSES[removal.cause].what} | {removal.what} | {len(replies)} | {len(replies) - len(bad)} | "
            f"{', '.join(f'{name} {count}' for name, count in named.items())} |"
        )
        missed += [f"{removal.cause} without {removal.what}: {len(bad)} of {len(replies)}"] if bad else []
    return Report(lines, missed)


def check_axes(seeds: Sequence[int], run_all: Map) -> Report:
    """Check whether regular episodes follow bytes or seconds, at rates that change and at constant ones."""
    lines, missed = (
        ["| injected | load | runs | bytes | seconds | cannot tell |", "|---|---|---|---|---|---|"],
        [],
    )
    cases = (
        *(("gc", shape, Axis.BYTES) for shape in ("doubled", "halved")),
        *(("stall", shape, Axis.SECONDS) for shape in ("doubled", "halved")),
        ("gc", "steady", Axis.UNKNOWN),
        ("stall", "steady", Axis.UNKNOWN),
    )
    for cause, shape, right in cases:
        orders = [replace(one, shape=shape) for one in plan_orders([(cause,)], seeds)]
        found = Counter(run_all(find_run_axis, orders))
        cells = (found[axis] for axis in (Axis.BYTES, Axis.SECONDS, Axis.UNKNOWN))
        lines.append(
            f"| {CAUSES[cause].what} | {SHAPES[shape]} | {len(orders)} | {' | '.join(map(str, cells))} |"
        )
        if found[right] < _MIN_AXIS_SHARE * len(orders):
            missed.append(f"{cause}, {shape} load: {right.value} in {found[right]} of {len(orders)}")
    return Report(lines, missed)


def _ask_all(run_all: Map, ask: Callable[[Order], Reply], orders: Iterable[Order]) -> Iterator[Reply]:
    for reply in run_all(ask, orders):
        assert isinstance(reply, Reply)
        order = reply.order
        words = ("+".join(order.causes), order.load, order.shape or "usual", str(order.seed))
        named = "; ".join(", ".join(group) for group in reply.groups) or "unknown"
        print(f"{'-'.join(words)}: {named}", file=sys.stderr, flush=True)
        yield reply


def _list_names(names: Mapping[str, int]) -> str:
    return f" ({', '.join(f'{name} {count}' for name, count in names.items())})" if names else ""


CHECKS: Mapping[str, Callable[[Sequence[int], Map], Report]] = {
    "causes": check_causes,
    "nulls": check_nulls,
    "pairs": check_pairs,
    "removals": check_removals,
    "axes": check_axes,
}


def _parse_arguments(argv: Iterable[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.why.virtual")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--checks", nargs="+", choices=tuple(CHECKS), default=tuple(CHECKS))
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--write", action="store_true", help="write the tables into the page")
    return parser.parse_args(None if argv is None else list(argv))


def main(argv: Iterable[str] | None = None) -> int:
    args = _parse_arguments(argv)
    seeds = range(args.first, args.first + args.seeds)
    with ProcessPoolExecutor(args.jobs) as pool:
        reports = [CHECKS[name](seeds, pool.map) for name in args.checks]
    text = "\n\n".join("\n".join(report.lines) for report in reports)
    print(text)
    if args.write:
        SECTION.write_body(text)
    missed = [bound for report in reports for bound in report.missed]
    for bound in missed:
        print(f"missed: {bound}")
    return choose_exit_status(holds=not missed)


if __name__ == "__main__":
    sys.exit(main())
