from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest

from opwatch.errors import OpwatchError
from opwatch.host.device import BlockDevice, Leaf
from opwatch.trace import abi
from opwatch.trace.stat import StatSample
from opwatch.trace.tracer_set import MAX_PARTS, TracerSet
from opwatch.trace.tracing import SettledReadings
from opwatch.trace.trust import Reading, account_losses
from tests.unit.support.samples import Op, make_sample
from tests.unit.support.tracers import FakeAttacher, FakeTracer


def make_leaf(name: str) -> Leaf:
    device = BlockDevice(name, (8, 0), Path("/nowhere") / name)
    return Leaf(device, device)


def make_leaves(count: int) -> list[Leaf]:
    return [make_leaf(f"disk{number}") for number in range(count)]


@pytest.mark.parametrize(("count", "parts"), [(1, 1), (64, 1), (65, 2), (70, 2), (200, 4)])
def test_many_disks_are_spread_over_several_tracers(count: int, parts: int) -> None:
    attaching = FakeAttacher()
    tracers = TracerSet(attaching)
    wanted = make_leaves(count)
    attaching.reads |= {watched.device.name: number for number, watched in enumerate(wanted)}
    places = tracers.add_leaves(wanted)
    assert len(attaching.tracers) == parts
    assert all(len(tracer.leaves) <= abi.MAX_TARGETS for tracer in attaching.tracers)
    readings = tracers.read()
    assert [readings[place].sample.ops["read"].completed for place in places] == list(range(count))
    assert len(tracers.list_programs()) == parts


def test_partitions_of_a_disk_stay_together(tmp_path: Path) -> None:
    parts = []
    for number in range(40):
        for disk in ("sda", "sdb"):
            folder = tmp_path / disk / f"{disk}{number}"
            folder.mkdir(parents=True)
            (folder / "partition").write_text("1")
            device = BlockDevice(folder.name, (8, number), folder)
            parts.append(Leaf(device, device))
    attaching = FakeAttacher()
    attaching.reads |= {watched.device.name: number for number, watched in enumerate(parts)}
    tracers = TracerSet(attaching)
    places = tracers.add_leaves(parts)
    disks = [{watched.device.disk.name for watched in tracer.leaves} for tracer in attaching.tracers]
    assert disks == [{"sda"}, {"sdb"}]
    readings = tracers.read_settled()
    assert [readings[place].sample.ops["read"].completed for place in places] == list(range(80))


def test_a_part_is_closed_with_its_last_disk() -> None:
    attaching = FakeAttacher(misses=3)
    tracers = TracerSet(attaching)
    first = tracers.add_leaves(make_leaves(2))
    [second] = tracers.add_leaves([make_leaf("late")])
    assert tracers.read_misses() == 6
    tracers.remove_leaf(first[0])
    assert set(tracers.read()) == {first[1], second}
    tracers.remove_leaf(second)
    assert [tracer.is_open for tracer in attaching.tracers] == [True, False]
    # Runs that the kernel skipped stay counted.
    assert tracers.read_misses() == 6
    assert tracers.read([second]) == {}
    tracers.remove_leaf(first[1])
    assert not attaching.tracers[0].is_open
    assert tracers.read() == {}


def test_the_same_disk_again_has_another_place() -> None:
    tracers = TracerSet(FakeAttacher())
    [first] = tracers.add_leaves([make_leaf("sda")])
    tracers.remove_leaf(first)
    [second] = tracers.add_leaves([make_leaf("sda")])
    assert first != second
    assert set(tracers.read()) == {second}


def test_misses_are_unknown_without_a_count_of_each_tracer() -> None:
    tracers = TracerSet(FakeAttacher(misses=None))
    tracers.add_leaves(make_leaves(1))
    assert tracers.read_misses() is None


def test_all_tracers_are_attached_or_none() -> None:
    attaching = FakeAttacher()
    attaching.fails = "no room"
    tracers = TracerSet(attaching)
    with pytest.raises(OpwatchError, match=attaching.fails):
        tracers.add_leaves(make_leaves(70))
    assert [tracer.is_open for tracer in attaching.tracers] == [False]
    assert tracers.read() == {}


def test_number_of_tracers_is_limited() -> None:
    tracers = TracerSet(FakeAttacher())
    places = [tracers.add_leaves([make_leaf(f"disk{number}")])[0] for number in range(MAX_PARTS)]
    with pytest.raises(OpwatchError, match=rf"^{MAX_PARTS} "):
        tracers.add_leaves([make_leaf("late")])
    tracers.remove_leaf(places[0])
    tracers.add_leaves([make_leaf("late")])


def test_disks_beyond_the_limit_are_refused() -> None:
    tracers = TracerSet(FakeAttacher(), 100)
    first, *_ = tracers.add_leaves(make_leaves(99))
    with pytest.raises(OpwatchError, match=r"^101 .*\b100\b"):
        tracers.add_leaves(make_leaves(2))
    tracers.add_leaves(make_leaves(1))
    with pytest.raises(OpwatchError, match=r"^101 .*\b100\b"):
        tracers.add_leaves(make_leaves(1))
    tracers.remove_leaf(first)
    tracers.add_leaves(make_leaves(1))


class LateKernel(FakeTracer):
    """The kernel counts the fifth write only after the second read of the statistics, as on a preempted
    CPU."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        super().__init__(leaves, {})
        self._stats = itertools.chain((4, 4), itertools.repeat(5))
        self._counted = SettledReadings(self._make_stat)

    def _make_stat(self) -> StatSample:
        return StatSample(0, 0, {"write": next(self._stats)}, {})

    def read(self) -> list[Reading]:
        before = self._make_stat()
        counts = make_sample(1, write=Op([1000] * 5, [4096] * 5))
        return [self._counted.settle_reading(Reading(counts, before, self._make_stat()))]


def test_a_first_reading_is_not_ahead_of_the_kernel() -> None:
    tracers = TracerSet(LateKernel)
    places = tracers.add_leaves([make_leaf("sda")])
    first = tracers.read_first(places)[places[0]]
    [last] = tracers.read().values()
    assert account_losses(first, last, 0).drift["write"].drift == 0
