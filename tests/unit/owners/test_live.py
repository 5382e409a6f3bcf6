"""Owners from tracers as samples with names: groups by number, processes while they run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from opwatch.collectors.block import owners
from opwatch.collectors.block.blk import BlockTracer
from opwatch.collectors.block.owners import LiveOwners, make_group_notes
from opwatch.collectors.owners.processes import NamedProcess, find_process
from opwatch.owners.cells import OwnedCounts, OwnerGrouping, OwnerKey, OwnerKind, ReadCells

if TYPE_CHECKING:
    from opwatch.trace.tracer_set import TracerSet


ONE = OwnedCounts(1, 4096, 1000)


class FakeOwnerTracer(BlockTracer):
    """A tracer of one disk with owners set by the test."""

    def __init__(self, owned: ReadCells) -> None:
        self.owned = [owned]
        self.earlier = [{}]
        self.has_owner_waits = False


class _FakeTracerSet:
    def __init__(self, tracer: FakeOwnerTracer) -> None:
        self.tracer = tracer

    def with_places(self) -> list[tuple[FakeOwnerTracer, list[int]]]:
        return [(self.tracer, [7])]


def make_live_owners(owned: ReadCells, by: OwnerGrouping) -> LiveOwners:
    return LiveOwners(cast("TracerSet", _FakeTracerSet(FakeOwnerTracer(owned))), by)


def make_process_files(
    pid: int, ticks: int, name: str = "a (b) c", group: str = "/x.service"
) -> dict[str, str]:
    before = " ".join("0" for _ in range(19))
    return {"stat": f"{pid} ({name}) {before} {ticks} 0\n", "cgroup": f"1:name=systemd:/y\n0::{group}\n"}


def add_process(proc: Path, pid: int, files: dict[str, str]) -> None:
    (proc / str(pid)).mkdir()
    for name, text in files.items():
        (proc / str(pid) / name).write_text(text)


def test_process_is_identified_by_its_start_time(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    add_process(tmp_path, 5, make_process_files(5, 77))
    began_ns = 77 * 10**9 // ticks + 3
    assert find_process(5, began_ns, tmp_path) == NamedProcess("a (b) c", "/x.service")
    assert find_process(5, began_ns + 10**9, tmp_path) is None
    assert find_process(6, began_ns, tmp_path) is None
    add_process(tmp_path, 8, {"stat": "8 (cut", "cgroup": ""})
    assert find_process(8, 0, tmp_path) is None


def test_exited_process_keeps_its_thread_name() -> None:
    gone = OwnerKey(OwnerKind.PROCESS, 2**22 + 1, 5)
    owned = ReadCells({(gone, "read"): ONE, (None, "read"): ONE}, {gone: "dd"})
    samples = make_live_owners(owned, OwnerGrouping.PROCESS).read_owners([7])
    [row] = samples[7].rows
    assert (row.name, row.group, row.counts) == ("dd", None, {"read": ONE})
    assert make_live_owners(owned, OwnerGrouping.PROCESS).read_owners([8]) == {}


def test_owners_are_not_read_without_a_request() -> None:
    assert LiveOwners(cast("TracerSet", None), None).read_owners([7]) == {}


def test_missing_group_accounting_is_noted(tmp_path: Path) -> None:
    def get_group_note(by: OwnerGrouping | None) -> list[str]:
        return make_group_notes(by, tmp_path, proc=tmp_path)

    assert get_group_note(None) == get_group_note(OwnerGrouping.PROCESS) == []
    [note] = get_group_note(OwnerGrouping.CGROUP)
    assert note.startswith(f"{tmp_path} ") and "cgroup2" in note
    control = tmp_path / "cgroup.subtree_control"
    control.write_text("memory pids\n")
    [note] = get_group_note(OwnerGrouping.CGROUP)
    assert "write +io" in note
    control.write_text("io memory\n")
    assert get_group_note(OwnerGrouping.CGROUP) == []


def test_names_of_groups_that_come_and_go_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = iter(range(1000))
    clock = iter(range(0, 100_000, 10))
    monkeypatch.setattr(owners, "find_io_hierarchy", lambda: _ChangingHierarchy(next(batch)))
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    tracer = FakeOwnerTracer(ReadCells({}, {}))
    live = LiveOwners(cast("TracerSet", _FakeTracerSet(tracer)), OwnerGrouping.CGROUP, max_names=200)
    for number in range(50):
        keys = [OwnerKey(OwnerKind.CGROUP, number * 100 + index, 0) for index in range(100)]
        tracer.owned = [ReadCells({(key, "read"): ONE for key in keys}, {})]
        [sample] = live.read_owners([7]).values()
        assert {row.name for row in sample.rows} == {f"/{key.number}" for key in keys}
        assert live.name_count <= 600


class _ChangingHierarchy:
    """A hundred groups, others at each reading."""

    def __init__(self, batch: int) -> None:
        self._batch = batch

    def read_names(self) -> dict[int, str]:
        return {number: f"/{number}" for number in range(self._batch * 100, self._batch * 100 + 100)}
