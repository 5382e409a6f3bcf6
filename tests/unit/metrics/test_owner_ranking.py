"""Control groups of a disk: exact sums, counters that never decrease, a bounded number of series."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field

import pytest

from opwatch.metrics.family import MetricSamples, MetricValue
from opwatch.metrics.formats import ExpositionFormat, encode
from opwatch.metrics.owner_ranking import MAX_OWNERS, OwnerRanking
from opwatch.metrics.table import OWNER_BYTES, OWNER_DEPARTED, OWNER_REQUESTS, OWNER_SECONDS
from opwatch.owners.cells import OwnedCounts, OwnerGrouping, OwnerKind, add_counts
from opwatch.owners.sample import OwnerRow, OwnerSample
from opwatch.trace.abi import TargetSample
from tests.unit.support.samples import Op, make_sample

POD = "7f3c1f0e-1111-2222-3333-444455556666"
IN_POD = f"/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/cri-containerd-{'ab' * 32}.scope"
OTHER = ("other", "", "")
FAMILIES = (OWNER_REQUESTS, OWNER_BYTES, OWNER_SECONDS)


@dataclass
class Disk:
    """A disk with counts by (path, number of the control group) and operation. A path of None is no owner."""

    counts: dict[tuple[str | None, int], dict[str, OwnedCounts]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(OwnedCounts))
    )
    now_s: float = 0

    def do_io(
        self, path: str | None, requests: int, op: str = "read", number: int = 0, size: int = 4096
    ) -> None:
        more = OwnedCounts(requests, requests * size, requests * 1000)
        ops = self.counts[path, number]
        ops[op] = add_counts((ops[op], more))

    def sum_op(self, op: str) -> OwnedCounts:
        return add_counts(ops[op] for ops in self.counts.values())

    def take_sample(self, evicted: frozenset[str] = frozenset()) -> tuple[OwnerSample, TargetSample]:
        self.now_s += 15
        rows = tuple(
            OwnerRow(OwnerKind.CGROUP, hash(path) % 2**32 + number, 0, path, dict(ops))
            for (path, number), ops in self.counts.items()
            if path and path not in evicted
        )
        totals = {op: self.sum_op(op) for op in ("read", "write", "discard", "flush")}
        ops = {
            op: Op(scalars={"completed": total.requests, "bytes": total.bytes, "sum_ns": total.sum_ns})
            for op, total in totals.items()
        }
        return OwnerSample(OwnerGrouping.CGROUP, rows), make_sample(int(self.now_s * 1e9), **ops)


Rows = dict[str, dict[tuple[str, ...], MetricValue]]


def collect(ranking: OwnerRanking) -> Rows:
    samples = MetricSamples()
    ranking.add_metrics(samples, "sda")
    rows = {name: dict(rows) for name, rows in samples.rows.items()}
    assert {name: len(found) for name, found in rows.items()} == {
        name: len(found) for name, found in samples.rows.items()
    }
    return rows


def check_sums(disk: Disk, rows: Rows) -> None:
    """Check that all series and the departed bytes add up to the disk."""
    for op in ("read", "write"):
        series = [value for labels, value in rows[OWNER_BYTES.name].items() if labels[1] == op]
        departed = rows.get(OWNER_DEPARTED.name, {}).get(("sda", op), 0)
        assert sum(series) + departed == disk.sum_op(op).bytes  # type: ignore[arg-type, operator]


def test_owners_and_others_add_up_to_the_disk() -> None:
    disk, ranking = Disk(), OwnerRanking()
    disk.do_io("/a", 10)
    disk.do_io(None, 3)
    disk.do_io(IN_POD, 7, "write")
    ranking.update_counts(*disk.take_sample())
    rows = collect(ranking)
    assert rows[OWNER_REQUESTS.name] == {
        ("sda", "read", *OTHER): 3,
        ("sda", "write", *OTHER): 0,
        ("sda", "read", "/a", "", ""): 10,
        ("sda", "write", "/a", "", ""): 0,
        ("sda", "read", IN_POD, POD, "ab" * 32): 0,
        ("sda", "write", IN_POD, POD, "ab" * 32): 7,
    }
    assert rows[OWNER_SECONDS.name]["sda", "read", "/a", "", ""] == 10_000 / 1e9
    check_sums(disk, rows)


def test_discards_have_series_from_the_first_on_and_flushes_none() -> None:
    disk, ranking = Disk(), OwnerRanking()
    disk.do_io("/a", 1, "flush")
    disk.do_io("/b", 1, "discard", size=1 << 20)
    ranking.update_counts(*disk.take_sample())
    rows = collect(ranking)[OWNER_BYTES.name]
    assert {labels[1:3] for labels in rows} == {
        ("read", "other"),
        ("write", "other"),
        ("read", "/b"),
        ("write", "/b"),
        ("discard", "/b"),
    }
    assert rows["sda", "discard", "/b", "", ""] == 1 << 20


def test_control_group_with_the_same_path_continues_the_series() -> None:
    disk, ranking = Disk(), OwnerRanking()
    for number in range(3):
        disk.do_io("/system.slice/a.service", 5, number=number)
        ranking.update_counts(*disk.take_sample())
    rows = collect(ranking)
    assert rows[OWNER_REQUESTS.name]["sda", "read", "/system.slice/a.service", "", ""] == 15
    check_sums(disk, rows)


def test_evicted_owner_does_not_make_counters_decrease() -> None:
    disk, ranking = Disk(), OwnerRanking()
    disk.do_io("/a", 10)
    ranking.update_counts(*disk.take_sample())
    disk.do_io("/a", 5)
    ranking.update_counts(*disk.take_sample(evicted=frozenset({"/a"})))
    rows = collect(ranking)
    assert rows[OWNER_REQUESTS.name]["sda", "read", "/a", "", ""] == 10
    assert rows[OWNER_REQUESTS.name]["sda", "read", *OTHER] == 5
    check_sums(disk, rows)


def fill_ranking(disk: Disk, ranking: OwnerRanking) -> None:
    for number in range(MAX_OWNERS):
        disk.do_io(f"/old{number}", 10 + number)
    ranking.update_counts(*disk.take_sample())


def list_owners(ranking: OwnerRanking) -> set[str]:
    return {labels[2] for labels in collect(ranking)[OWNER_BYTES.name]}


def test_busier_control_group_replaces_the_weakest_after_its_tenure() -> None:
    disk, ranking = Disk(), OwnerRanking()
    fill_ranking(disk, ranking)
    for _ in range(10):
        disk.do_io("/new", 1000)
        ranking.update_counts(*disk.take_sample())
    assert "/new" not in list_owners(ranking)
    before = collect(ranking)[OWNER_BYTES.name]
    for _ in range(20):
        disk.do_io("/new", 1000)
        ranking.update_counts(*disk.take_sample())
        check_sums(disk, collect(ranking))
    rows = collect(ranking)
    assert list_owners(ranking) == {"other", "/new", *(f"/old{number}" for number in range(1, MAX_OWNERS))}
    # What it did before stays in `other`, and the one that left is in no series.
    assert rows[OWNER_BYTES.name]["sda", "read", *OTHER] >= before["sda", "read", *OTHER]  # type: ignore[operator]
    assert rows[OWNER_BYTES.name]["sda", "read", "/new", "", ""] < disk.sum_op("read").bytes // 2  # type: ignore[operator]
    assert rows[OWNER_DEPARTED.name]["sda", "read"] == 10 * 4096


def test_slightly_busier_control_group_does_not_replace_a_member() -> None:
    disk, ranking = Disk(), OwnerRanking()
    fill_ranking(disk, ranking)
    for _ in range(100):
        for number in range(MAX_OWNERS):
            disk.do_io(f"/old{number}", 100)
        disk.do_io("/new", 150)
        ranking.update_counts(*disk.take_sample())
    assert "/new" not in list_owners(ranking)


def test_returning_control_group_continues_from_its_sum() -> None:
    disk, ranking = Disk(), OwnerRanking(most=1)
    disk.do_io("/a", 10)
    ranking.update_counts(*disk.take_sample())
    owners = []
    for name in ("/b", "/a"):
        for _ in range(60):
            disk.do_io(name, 1000)
            ranking.update_counts(*disk.take_sample())
            check_sums(disk, collect(ranking))
        owners.append(list_owners(ranking))
    assert owners == [{"other", "/b"}, {"other", "/a"}]
    rows = collect(ranking)
    assert rows[OWNER_BYTES.name]["sda", "read", "/a", "", ""] > 10 * 4096  # type: ignore[operator]


@pytest.mark.parametrize("seed", range(5))
def test_a_thousand_control_groups_coming_and_going(seed: int) -> None:
    rng = random.Random(seed)
    disk, ranking = Disk(), OwnerRanking()
    before: Rows = {}
    ever: dict[tuple[str, tuple[str, ...]], MetricValue] = {}
    for step in range(150):
        for _ in range(rng.randrange(25)):
            path = rng.choice((None, f"/steady{rng.randrange(12)}", f"/job{step * 10 + rng.randrange(10)}"))
            op, size = rng.choice(("read", "write", "flush")), rng.choice((512, 4096, 1 << 20))
            disk.do_io(path, rng.randrange(1, 200), op, rng.randrange(2), 0 if op == "flush" else size)
        gone = frozenset(f"/job{number}" for number in range(step * 10 - 30))
        ranking.update_counts(*disk.take_sample(evicted=gone))
        rows = collect(ranking)
        check_sums(disk, rows)
        for family in FAMILIES:
            assert len(rows[family.name]) <= 2 * (MAX_OWNERS + 1)
            for labels, value in rows[family.name].items():
                key = family.name, labels
                if labels in before.get(family.name, {}):
                    assert value >= ever[key]  # type: ignore[operator]
                ever[key] = value
        before = rows
    assert len({labels[2] for _, labels in ever}) > MAX_OWNERS + 2


def test_increases_of_all_series_are_the_disks_increase() -> None:
    rng = random.Random(7)
    disk, ranking = Disk(), OwnerRanking(most=3)
    total, summed = OwnedCounts(), 0
    before: dict[tuple[str, ...], MetricValue] = {}
    for step in range(200):
        for _ in range(8):
            disk.do_io(f"/{(step // 40 + rng.randrange(6)) % 12}", rng.randrange(1, 500))
        ranking.update_counts(*disk.take_sample())
        rows = collect(ranking)[OWNER_BYTES.name]
        # A series that is new or back has no increase yet.
        summed = sum(value - before[labels] for labels, value in rows.items() if labels in before)  # type: ignore[operator, misc]
        now = disk.sum_op("read")
        new = sum(labels not in before for labels in rows)
        if before and not new:
            assert summed == now.bytes - total.bytes
        total, before = now, rows


def test_long_names_are_shortened() -> None:
    disk, ranking = Disk(), OwnerRanking()
    for number in range(3):
        disk.do_io("/" + "x" * 4096 + f"/{number}" + "y" * 200, 5)
    ranking.update_counts(*disk.take_sample())
    names = list_owners(ranking)
    assert len(names) == 4
    assert max(map(len, names)) == 256


def test_paths_that_a_format_writes_the_same_are_one_series() -> None:
    disk, ranking = Disk(), OwnerRanking()
    for path in ("/a\x1b", "/a\\x1b", "/a\udcff", "/a\\udcff"):
        disk.do_io(path, 5)
    ranking.update_counts(*disk.take_sample())
    samples = MetricSamples()
    ranking.add_metrics(samples, "sda")
    text = encode(samples, ExpositionFormat.TEXT).decode()
    lines = [line.rpartition(" ")[0] for line in text.splitlines()]
    series = [line for line in lines if line.startswith(OWNER_REQUESTS.name)]
    assert len(series) == len(set(series)) == 6
    assert max(value for _, value in samples.rows[OWNER_REQUESTS.name]) == 10
    check_sums(disk, collect(ranking))
