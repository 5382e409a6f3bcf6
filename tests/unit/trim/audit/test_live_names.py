"""Live names of senders: only discards on watched disks cause a walk of all control groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from opwatch.collectors.audit import live_discards
from opwatch.collectors.audit.live_discards import LiveDiscards
from opwatch.host.device import Leaf
from opwatch.trim.audit.flow import Origin, Trace, Who
from tests.unit.support.sysfs import Tree
from tests.unit.support.tracers import FakeTracer


def origin(disk: str, count: int, cgroup: int = 7) -> Origin:
    sizes = {"bytes": 4096 * count, "min_bytes": 4096, "max_bytes": 4096, "below_granule": 0}
    return Origin(disk, "8:0", "fstrim", cgroup, "discard", Who.OTHER, count, **sizes)


class Discarders:
    """Returns the current counts of all disks."""

    now: ClassVar[Trace]

    def __init__(self, *_: object, **__: object) -> None:
        self.is_open = True

    def read(self) -> Trace:
        return self.now

    def close(self) -> None:
        self.is_open = False


@pytest.fixture(name="walks")
def _walks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect one entry per walk of all control groups."""
    walks: list[int] = []

    def walk() -> dict[int, str]:
        walks.append(1)
        return {7: "system.slice"}

    Discarders.now = Trace(flows=())
    monkeypatch.setattr(live_discards, "DiscardTracer", Discarders)
    monkeypatch.setattr(live_discards, "cgroup_names", walk)
    return walks


def watched(tree: Tree) -> LiveDiscards:
    tree.disk("sda", "8:0")
    discards = LiveDiscards(lambda _: True)
    leaf = Leaf(tree["sda"], tree["sda"])
    tracer: Any = FakeTracer([leaf], {})
    discards.add({0: leaf}, tracer)
    return discards


def test_groups_on_unwatched_disks_are_not_looked_up(tmp_path: Path, walks: list[int]) -> None:
    discards = watched(Tree(tmp_path))
    walks.clear()
    Discarders.now = Trace(flows=(), origins=(origin("sdb", 1),))
    assert discards.read()[0].trace.origins == ()
    assert not walks


def test_groups_on_a_watched_disk_are_looked_up_on_discards(tmp_path: Path, walks: list[int]) -> None:
    discards = watched(Tree(tmp_path))
    for count in (1, 2):
        walks.clear()
        Discarders.now = Trace(flows=(), origins=(origin("sda", count),))
        assert discards.read()[0].cgroups == {7: "system.slice"}
        assert len(walks) == 1
    discards.read()
    assert len(walks) == 1


def test_unchanged_counts_reuse_the_sample(tmp_path: Path, walks: list[int]) -> None:
    discards = watched(Tree(tmp_path))
    Discarders.now = Trace(flows=(), origins=(origin("sda", 1),))
    first = discards.read()[0]
    assert discards.read()[0] is first
    Discarders.now = Trace(flows=(), origins=(origin("sda", 1),), misses=1)
    assert discards.read()[0].trace.misses == 1


def test_a_disk_that_left_is_in_no_sample(tmp_path: Path, walks: list[int]) -> None:
    discards = watched(Tree(tmp_path))
    assert list(discards.read()) == [0]
    discards.drop(0)
    assert discards.read() == {}
    assert walks
