"""Live names of senders: only discards on watched disks cause a walk of all control groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from opwatch.collectors.audit import live_discards
from opwatch.collectors.audit.live_discards import LiveDiscards
from opwatch.host.device import Leaf
from opwatch.trim.audit.flow import Origin, SenderKind, Trace
from tests.unit.support.sysfs import Tree
from tests.unit.support.tracers import FakeTracer


def make_origin(disk: str, count: int, cgroup: int = 7) -> Origin:
    sizes = {"bytes": 4096 * count, "min_bytes": 4096, "max_bytes": 4096, "below_granule": 0}
    return Origin(disk, "8:0", "fstrim", cgroup, "discard", SenderKind.OTHER, count, **sizes)


class FakeDiscardTracer:
    """Returns the current counts of all disks."""

    now: ClassVar[Trace]

    def __init__(self, *_: object, **__: object) -> None:
        self.is_open = True

    def read_trace(self) -> Trace:
        return self.now

    def close(self) -> None:
        self.is_open = False


@pytest.fixture(name="walks")
def _walks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect one entry per walk of all control groups."""
    walks: list[int] = []

    def walk_groups() -> dict[int, str]:
        walks.append(1)
        return {7: "system.slice"}

    FakeDiscardTracer.now = Trace(flows=())
    monkeypatch.setattr(live_discards, "DiscardTracer", FakeDiscardTracer)
    monkeypatch.setattr(live_discards, "read_cgroup_names", walk_groups)
    return walks


def watch_discards(tree: Tree) -> LiveDiscards:
    tree.add_disk("sda", "8:0")
    discards = LiveDiscards(lambda _: True)
    leaf = Leaf(tree["sda"], tree["sda"])
    tracer: Any = FakeTracer([leaf], {})
    discards.add_leaves({0: leaf}, tracer)
    return discards


def test_groups_on_unwatched_disks_are_not_looked_up(tmp_path: Path, walks: list[int]) -> None:
    discards = watch_discards(Tree(tmp_path))
    walks.clear()
    FakeDiscardTracer.now = Trace(flows=(), origins=(make_origin("sdb", 1),))
    assert discards.read_samples()[0].trace.origins == ()
    assert not walks


def test_groups_on_a_watched_disk_are_looked_up_on_discards(tmp_path: Path, walks: list[int]) -> None:
    discards = watch_discards(Tree(tmp_path))
    for count in (1, 2):
        walks.clear()
        FakeDiscardTracer.now = Trace(flows=(), origins=(make_origin("sda", count),))
        assert discards.read_samples()[0].cgroups == {7: "system.slice"}
        assert len(walks) == 1
    discards.read_samples()
    assert len(walks) == 1


def test_unchanged_counts_reuse_the_sample(tmp_path: Path, walks: list[int]) -> None:
    discards = watch_discards(Tree(tmp_path))
    FakeDiscardTracer.now = Trace(flows=(), origins=(make_origin("sda", 1),))
    first = discards.read_samples()[0]
    assert discards.read_samples()[0] is first
    FakeDiscardTracer.now = Trace(flows=(), origins=(make_origin("sda", 1),), misses=1)
    assert discards.read_samples()[0].trace.misses == 1


def test_a_disk_that_left_is_in_no_sample(tmp_path: Path, walks: list[int]) -> None:
    discards = watch_discards(Tree(tmp_path))
    assert list(discards.read_samples()) == [0]
    discards.remove_leaf(0)
    assert discards.read_samples() == {}
    assert walks
