"""Work for hundreds of block devices: the number of calls grows linearly."""

from __future__ import annotations

import argparse
import cProfile
import io
import pstats
from collections.abc import Callable

import pytest

from opwatch.collectors.audit.live_discards import LiveDiscards
from opwatch.collectors.firmware.live import LiveWaf
from opwatch.host.usage import Usage, parse_mountinfo
from opwatch.samples.membership import Membership
from opwatch.samples.selection import Selection
from opwatch.sinks.lines import TextLines
from opwatch.tools.commands import devices
from opwatch.tools.runs import checking
from opwatch.tools.runs.watching import DiskWatcher
from opwatch.trace.tracer_set import TracerSet
from opwatch.trim.check.deleted import DeletedFiles
from opwatch.trim.check.prediction import FreeExtents
from opwatch.trim.check.schedule import Schedule
from tests.unit.support.shown_watch import ShownWatch
from tests.unit.support.sysfs import Tree
from tests.unit.support.tracers import FakeAttacher

# Limit for ten times as many devices; sorting and name lookups add a little.
MAX_RATIO = 12
_QUEUE = {"discard_max_bytes": "4096", "discard_granularity": "512", "iostats": "1"}


def add_plain_disks(tree: Tree, count: int) -> None:
    """Disks, each with its own mount."""
    for number in range(count):
        tree.add_disk(f"sd{number}", f"8:{number}", tags=[1], queue=_QUEUE)


def add_stacked_disks(tree: Tree, count: int) -> None:
    """Every second disk is below a dm device."""
    for number in range(count // 2):
        tree.add_disk(f"sd{number}", f"8:{number}", tags=[1], queue=_QUEUE)
        tree.add_disk(f"dm-{number}", f"253:{number}", queue=_QUEUE, attributes={"dm/uuid": "LVM-x"})
        tree.stack_device(f"dm-{number}", f"sd{number}")


def add_multipath_disks(tree: Tree, count: int) -> None:
    """NVMe multipath: a head and a hidden path each."""
    for number in range(count // 2):
        tree.add_disk(f"nvme{number}n1", f"259:{number}", queue=_QUEUE)
        tree.add_disk(f"nvme{number}c0n1", None, tags=[1], queue=_QUEUE)


# The small number of devices; the other tree has ten times as many.
KINDS: dict[str, tuple[Callable[[Tree, int], None], int]] = {
    "plain": (add_plain_disks, 40),
    "stacked": (add_stacked_disks, 20),
    "heads": (add_multipath_disks, 20),
}


@pytest.fixture(scope="module", params=list(KINDS))
def trees(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Tree]:
    """Return a tree with few devices and a tree with many."""
    build, few = KINDS[request.param]
    built = []
    for count in (few, 10 * few):
        tree = Tree(tmp_path_factory.mktemp(f"{request.param}{count}"))
        build(tree, count)
        built.append(tree)
    return built


def _make_usage(tree: Tree) -> Usage:
    disks = [disk for disk in tree.devices.iter_disks() if not disk.is_hidden]
    rows = [
        f"{number + 100} 27 {disk.dev[0]}:{disk.dev[1]} / /m/{number} rw - ext4 /dev/{disk.name} rw"
        for number, disk in enumerate(disks)
    ]
    return Usage(parse_mountinfo("\n".join(rows)), [], {}, canonical=lambda path: path)


def _measure_call_ratio(work: Callable[[Tree], object], trees: list[Tree]) -> float:
    """Return the ratio of calls with many devices to calls with few."""
    calls: list[int] = []
    for tree in trees:
        profile = cProfile.Profile()
        profile.runcall(work, tree)
        calls.append(int(pstats.Stats(profile).total_calls))  # type: ignore[attr-defined]
    return calls[1] / calls[0]


def test_devices_work_grows_linearly(trees: list[Tree]) -> None:
    parser = argparse.ArgumentParser()
    devices.add_arguments(parser)
    usages = {id(tree): _make_usage(tree) for tree in trees}

    def show_devices(tree: Tree) -> None:
        out = io.StringIO()
        assert devices.show_devices(tree.devices, usages[id(tree)], parser.parse_args([]), out) == 0
        assert len(out.getvalue().splitlines()) > 10

    assert 5 < _measure_call_ratio(show_devices, trees) <= MAX_RATIO


def test_trim_check(trees: list[Tree], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "measure_free_space", lambda *_: FreeExtents())

    def check_all(run: checking.CheckRun) -> None:
        assert len([run.check_subject(subject) for subject in run.find_all()]) >= 10

    runs = {}
    for tree in trees:
        runs[id(tree)] = checking.CheckRun(0, tree.devices, _make_usage(tree), Schedule())
        runs[id(tree)].__dict__["deleted"] = DeletedFiles((), ())
    assert 5 < _measure_call_ratio(lambda tree: check_all(runs[id(tree)]), trees) <= MAX_RATIO


def _start_watch(tree: Tree) -> ShownWatch:
    membership = Membership(tree.devices, Selection(tree.devices, None))
    attaching = FakeAttacher()
    live = LiveWaf(tree.devices, lambda _: {}, 5)
    watching = DiskWatcher(membership, TracerSet(attaching), live, LiveDiscards(lambda _: False))
    return ShownWatch(watching, TextLines(io.StringIO()))


def test_watch_start_grows_linearly(trees: list[Tree]) -> None:
    assert 5 < _measure_call_ratio(lambda tree: _start_watch(tree).close(), trees) <= MAX_RATIO


def test_watch_polls_and_rows_grow_linearly(trees: list[Tree]) -> None:
    """Run with unchanged devices, and after a change."""
    running = {id(tree): _start_watch(tree) for tree in trees}

    def poll_twice(tree: Tree) -> None:
        watching = running[id(tree)]
        for _ in range(2):
            watching.scan_disks()
            watching.read_interval()

    assert 5 < _measure_call_ratio(poll_twice, trees) <= MAX_RATIO
    for tree in trees:
        tree.add_disk("late", "9:9", tags=[1], queue=_QUEUE)
    assert 5 < _measure_call_ratio(poll_twice, trees) <= MAX_RATIO
    for watching in running.values():
        watching.close()
