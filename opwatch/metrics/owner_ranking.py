"""Metrics of control groups: the busiest ten of a disk, and the rest as `other`.

Each exported counter is a sum of growths, so that it never decreases. A control group that enters the ten
starts at zero: what it did before stays in `other`. One that leaves takes its sum along, because `other`
would show it as a burst; if it comes back, it continues from that sum.

Control groups are distinguished by their path as a label value. Paths that a format would write the same are
one control group here, because servers refuse an answer with duplicate series."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from opwatch.metrics.family import LabelValues, MetricSamples
from opwatch.metrics.label_text import clean_label, shorten_label
from opwatch.metrics.table import OWNER_BYTES, OWNER_DEPARTED, OWNER_REQUESTS, OWNER_SECONDS
from opwatch.owners.cells import OwnedCounts, OwnerKind, add_counts, subtract_counts
from opwatch.owners.containers import find_container
from opwatch.owners.sample import OwnerCounts, Owners, OwnerSample, compare_owners
from opwatch.trace.abi import LATENCY, SIZE, TargetSample
from opwatch.trace.hist import Histogram

MAX_OWNERS = 10
OTHER: LabelValues = ("other", "", "")
# Operations with series from the start; others get theirs with the first request.
_USUAL_OPS, _RARE_OPS = ("read", "write"), ("discard",)
OWNER_OPS = (*_USUAL_OPS, *_RARE_OPS)
# The rank follows the requests of about this time.
_MEMORY_S = 300.0
# A member is replaced after at least this time, and by a control group with this many times its score.
_MIN_TENURE_S = 300.0
_ADVANTAGE = 2.0
# A request counts like this many bytes, so that small requests are seen, too.
_REQUEST_BYTES = 4096
_MAX_CANDIDATES = 256
_NOTHING = OwnedCounts()
_NO_LATENCIES, _NO_SIZES = Histogram(LATENCY, ()), Histogram(SIZE, ())

Sums = dict[str, OwnedCounts]


@dataclass(slots=True)
class _PathGrowth:
    """What the control groups of a path label did in an interval. `path` is the unshortened path of one."""

    path: str
    ops: Sums = field(default_factory=dict)


@dataclass(slots=True)
class _Member:
    """An exported control group. `sums` are its counters by operation."""

    labels: LabelValues
    since_ns: int
    sums: Sums


@dataclass(slots=True)
class _Rank:
    """How much a control group did recently, and its sums if it was exported before."""

    score: float = 0.0
    sums: Sums = field(default_factory=dict)


class OwnerRanking:
    """The exported control groups of one disk. Call update_counts() with each sample of the disk, in
    order."""

    def __init__(self, most: int = MAX_OWNERS) -> None:
        self._most = most
        self._members: dict[str, _Member] = {}
        self._ranks: dict[str, _Rank] = {}
        self._other: Sums = {}
        self._departed: Sums = {}
        self._last: tuple[OwnerSample, TargetSample] | None = None

    def update_counts(self, owners: OwnerSample, sample: TargetSample) -> None:
        """Add what the owners did since the last sample, or since the disk was attached. Samples come in
        order."""
        now = owners, drop_histograms(sample)
        if self._last is None:
            self._last = OwnerSample(owners.by, ()), _make_zero(now[1])
        (then, begin), (_, end) = self._last, now
        growth = compare_owners(then, owners, begin, end)
        by_label = _group_by_label(growth)
        self._update_ranks(by_label, (end.end_ns - begin.end_ns) / 1e9)
        self._choose_members(by_label, end.end_ns)
        self._add_growth(by_label, growth)
        self._last = now

    def add_metrics(self, samples: MetricSamples, device: str) -> None:
        """Add the counters of the exported control groups and of the others."""
        _add_sums(samples, device, OTHER, self._other)
        for member in self._members.values():
            _add_sums(samples, device, member.labels, member.sums)
        for op, counts in self._departed.items():
            samples.add(OWNER_DEPARTED, counts.bytes, device, op)

    def _update_ranks(self, by_label: Mapping[str, _PathGrowth], elapsed_s: float) -> None:
        kept = 0.5 ** (max(elapsed_s, 0.0) / _MEMORY_S)
        for rank in self._ranks.values():
            rank.score *= kept
        for name, grown in by_label.items():
            total = add_counts(grown.ops.values())
            rank = self._ranks.setdefault(name, _Rank())
            rank.score += total.bytes + total.requests * _REQUEST_BYTES
        if len(self._ranks) > _MAX_CANDIDATES:
            others = sorted(set(self._ranks) - set(self._members), key=lambda name: self._ranks[name].score)
            for name in others[: len(self._ranks) - _MAX_CANDIDATES]:
                del self._ranks[name]

    def _choose_members(self, by_label: Mapping[str, _PathGrowth], now_ns: int) -> None:
        """Replace members by busier control groups. Only those that did something in this interval enter."""
        waiting = sorted(
            (name for name in by_label if name in self._ranks and name not in self._members),
            key=lambda name: -self._ranks[name].score,
        )
        for name in waiting:
            if len(self._members) >= self._most and not self._make_room(self._ranks[name].score, now_ns):
                return
            sums = self._ranks[name].sums
            for op, counts in sums.items():
                self._departed[op] = subtract_counts(self._departed[op], counts)
            self._members[name] = _Member(
                _make_labels(name, by_label[name].path), now_ns, self._start_sums(sums)
            )

    @staticmethod
    def _start_sums(earlier: Sums) -> Sums:
        return dict.fromkeys(_USUAL_OPS, _NOTHING) | earlier

    def _make_room(self, score: float, now_ns: int) -> bool:
        """Remove the weakest member if this score is clearly above its own. Return whether there is room."""
        removable = [
            name for name, one in self._members.items() if now_ns - one.since_ns >= _MIN_TENURE_S * 1e9
        ]
        weakest = min(removable, key=lambda name: self._ranks[name].score, default=None)
        if weakest is None or score <= _ADVANTAGE * self._ranks[weakest].score:
            return False
        sums = self._members.pop(weakest).sums
        self._ranks[weakest].sums = sums
        for op, counts in sums.items():
            self._departed[op] = add_counts((self._departed.get(op, _NOTHING), counts))
        return True

    def _add_growth(self, by_label: Mapping[str, _PathGrowth], growth: Owners) -> None:
        for op in OWNER_OPS:
            rest = [growth.other.get(op, _NOTHING)]
            rest += [one.ops.get(op, _NOTHING) for one in growth.owners if not _is_named(one)]
            for name, grown in by_label.items():
                counts = grown.ops.get(op)
                if counts is None:
                    continue
                member = self._members.get(name)
                if member is None:
                    rest.append(counts)
                else:
                    member.sums[op] = add_counts((member.sums.get(op, _NOTHING), counts))
            total = add_counts((self._other.get(op, _NOTHING), *rest))
            if op in _USUAL_OPS or any(total):
                self._other[op] = total


def _add_sums(samples: MetricSamples, device: str, labels: LabelValues, sums: Sums) -> None:
    for op, counts in sums.items():
        samples.add(OWNER_BYTES, counts.bytes, device, op, *labels)
        samples.add(OWNER_REQUESTS, counts.requests, device, op, *labels)
        samples.add(OWNER_SECONDS, counts.sum_ns / 1e9, device, op, *labels)


def _is_named(one: OwnerCounts) -> bool:
    return one.key.kind is OwnerKind.CGROUP and bool(one.name)


def _group_by_label(growth: Owners) -> dict[str, _PathGrowth]:
    """Return the growth of the exported operations by path label: a service that restarts has a new control
    group with the same path."""
    by_label: dict[str, _PathGrowth] = {}
    for one in growth.owners:
        ops = {op: counts for op, counts in one.ops.items() if op in OWNER_OPS}
        if ops and one.name and _is_named(one):
            grown = by_label.setdefault(shorten_label(clean_label(one.name)), _PathGrowth(one.name))
            for op, counts in ops.items():
                grown.ops[op] = add_counts((grown.ops.get(op, _NOTHING), counts))
    return by_label


def _make_labels(label: str, path: str) -> LabelValues:
    container = find_container(path)
    pod = container.pod if container and container.pod else ""
    return label, pod, shorten_label(container.number or "") if container else ""


def drop_histograms(sample: TargetSample) -> TargetSample:
    """Return the sample without its histograms, which take most of its memory."""
    ops = {
        op: counts._replace(
            latency=_NO_LATENCIES, queue=_NO_LATENCIES, sizes=_NO_SIZES, statuses=memoryview(b"")
        )
        for op, counts in sample.ops.items()
    }
    return TargetSample(sample.begin_ns, sample.end_ns, ops)


def _make_zero(sample: TargetSample) -> TargetSample:
    """Return the sample of the disk's attachment, of which only the sums are used."""
    ops = {op: counts._replace(completed=0, bytes=0, sum_ns=0) for op, counts in sample.ops.items()}
    return TargetSample(0, 0, ops)
