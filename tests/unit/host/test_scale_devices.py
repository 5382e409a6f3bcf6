"""Work for 1,000 block devices: the number of calls grows linearly."""

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
from opwatch.sinks.lines import Lines
from opwatch.tools.commands import devices
from opwatch.tools.commands.trim import check as trim_check
from opwatch.tools.watching import Watching
from opwatch.trace.tracer_set import TracerSet
from opwatch.trim.check.deleted import DeletedFiles
from opwatch.trim.check.forecast import Space
from opwatch.trim.check.schedule import Schedule
from tests.unit.support.shown_watch import ShownWatch
from tests.unit.support.sysfs import Tree
from tests.unit.support.tracers import Attaching

# Limit for ten times as many devices; sorting and name lookups add a little.
MOST = 12
_QUEUE = {"discard_max_bytes": "4096", "discard_granularity": "512", "iostats": "1"}


def plain(tree: Tree, count: int) -> None:
    """Disks, each with its own mount."""
    for number in range(count):
        tree.disk(f"sd{number}", f"8:{number}", tags=[1], queue=_QUEUE)


def stacked(tree: Tree, count: int) -> None:
    """Every second disk is below a dm device."""
    for number in range(count // 2):
        tree.disk(f"sd{number}", f"8:{number}", tags=[1], queue=_QUEUE)
        tree.disk(f"dm-{number}", f"253:{number}", queue=_QUEUE, attributes={"dm/uuid": "LVM-x"})
        tree.stack(f"dm-{number}", f"sd{number}")


def heads(tree: Tree, count: int) -> None:
    """NVMe multipath: a head and a hidden path each."""
    for number in range(count // 2):
        tree.disk(f"nvme{number}n1", f"259:{number}", queue=_QUEUE)
        tree.disk(f"nvme{number}c0n1", None, tags=[1], queue=_QUEUE)


# The small number of devices; the other tree has ten times as many.
KINDS: dict[str, tuple[Callable[[Tree, int], None], int]] = {
    "plain": (plain, 100),
    "stacked": (stacked, 20),
    "heads": (heads, 20),
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


def _usage(tree: Tree) -> Usage:
    disks = [disk for disk in tree.devices.disks() if not disk.is_hidden]
    rows = [
        f"{number + 100} 27 {disk.dev[0]}:{disk.dev[1]} / /m/{number} rw - ext4 /dev/{disk.name} rw"
        for number, disk in enumerate(disks)
    ]
    return Usage(parse_mountinfo("\n".join(rows)), [], {}, canonical=lambda path: path)


def _ratio(work: Callable[[Tree], object], trees: list[Tree]) -> float:
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
    usages = {id(tree): _usage(tree) for tree in trees}

    def work(tree: Tree) -> None:
        out = io.StringIO()
        assert devices.show(tree.devices, usages[id(tree)], parser.parse_args([]), out) == 0
        assert len(out.getvalue().splitlines()) > 10

    assert 5 < _ratio(work, trees) <= MOST


def test_trim_check(trees: list[Tree], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trim_check, "free_space", lambda *_: Space())

    def work(run: trim_check.CheckRun) -> None:
        assert len([run.check(subject) for subject in run.everything()]) >= 10

    runs = {}
    for tree in trees:
        runs[id(tree)] = trim_check.CheckRun(0, tree.devices, _usage(tree), Schedule())
        runs[id(tree)].__dict__["deleted"] = DeletedFiles((), ())
    assert 5 < _ratio(lambda tree: work(runs[id(tree)]), trees) <= MOST


def _watching(tree: Tree) -> ShownWatch:
    membership = Membership(tree.devices, Selection(tree.devices, None))
    attaching = Attaching()
    live = LiveWaf(tree.devices, lambda _: {}, 5)
    watching = Watching(membership, TracerSet(attaching), live, LiveDiscards(lambda _: False))
    return ShownWatch(watching, Lines(io.StringIO()))


def test_a_watch_begins(trees: list[Tree]) -> None:
    assert 5 < _ratio(lambda tree: _watching(tree).close(), trees) <= MOST


def test_watch_polls_and_rows_grow_linearly(trees: list[Tree]) -> None:
    """Run with unchanged devices, and after a change."""
    running = {id(tree): _watching(tree) for tree in trees}

    def work(tree: Tree) -> None:
        watching = running[id(tree)]
        for _ in range(2):
            watching.look()
            watching.interval()

    assert 5 < _ratio(work, trees) <= MOST
    for tree in trees:
        tree.disk("late", "9:9", tags=[1], queue=_QUEUE)
    assert 5 < _ratio(work, trees) <= MOST
    for watching in running.values():
        watching.close()
