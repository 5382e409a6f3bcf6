"""Disks are attached as they come, and read until they leave or their tracer is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue

import pytest

from opwatch.collectors.firmware.counting import DriveAccess, OwnAccess
from opwatch.errors import OpwatchError
from opwatch.host.device import Leaf
from opwatch.metrics.family import DurationCounts, MetricSamples
from opwatch.owners.cells import OwnerGrouping
from opwatch.tools.exporter.disk_counters import CountingOptions, DiskCounters
from opwatch.trace.tracing import Tracer
from opwatch.trace.trust import Reading
from tests.unit.samples.test_membership import remove_device
from tests.unit.support.sysfs import Tree
from tests.unit.support.tracers import FakeTracer


class LossyTracer(FakeTracer):
    """A fake tracer that may be lost, as with a broker that ends."""

    is_lost = False

    def read(self) -> list[Reading]:
        if self.is_lost:
            raise OpwatchError("the broker is gone")
        return super().read()


class FakeAccess:
    """Access with fake tracers. `fails` makes attachments fail with this reason; `waits` delays them."""

    is_broker_up: bool | None = True
    drives: DriveAccess = OwnAccess()

    def __init__(self) -> None:
        self.tracers: list[LossyTracer] = []
        self.reads: dict[str, int] = {}
        self.fails = ""
        self.may_attach = threading.Event()
        self.may_attach.set()

    def attach_tracer(self, leaves: Sequence[Leaf], *, queue_time: bool, by: OwnerGrouping | None) -> Tracer:
        self.may_attach.wait(10)
        if self.fails:
            raise OpwatchError(self.fails)
        self.tracers.append(LossyTracer(leaves, self.reads))
        return self.tracers[-1]

    def close(self) -> None:
        """Nothing is held."""


class Bench:
    """Counters of a fake machine's disks. run_calls() makes the calls that wait for the loop."""

    def __init__(self, tree: Tree, *names: str) -> None:
        self.access = FakeAccess()
        self.messages: list[str] = []
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.counters = DiskCounters(
            *(self.access, tree.devices, names or None, CountingOptions(), self.calls.put),
            self.messages.append,
        )
        self.counters.start()

    def end_attaching(self) -> None:
        self.calls.get(timeout=10)()

    def read(self) -> MetricSamples:
        samples = MetricSamples()
        self.counters.add_metrics(samples)
        return samples

    def count_reads(self) -> dict[str, int]:
        """Return the number of reads of each watched device."""
        rows = self.read().rows.get("opwatch_io_duration_seconds", [])
        return {
            labels[0]: value.total
            for labels, value in rows
            if labels[1] == "read" and isinstance(value, DurationCounts)
        }

    def list_watched(self) -> dict[str, int]:
        return {labels[0]: int(value) for labels, value in self.read().rows.get("opwatch_watched", [])}  # type: ignore[arg-type]


@contextmanager
def run_counters(tree: Tree, *names: str) -> Iterator[Bench]:
    bench = Bench(tree, *names)
    try:
        yield bench
    finally:
        bench.access.may_attach.set()
        bench.counters.close()


def add_disk(tree: Tree, name: str) -> None:
    tree.add_disk(name, "259:99", tags=(64,), attributes={"diskseq": "99", "wwid": "naa.99"})


def test_counts_of_the_named_disk_are_served(tree: Tree) -> None:
    with run_counters(tree, "sda") as bench:
        bench.access.reads["sda"] = 7
        assert bench.count_reads() == {"sda": 7}
        assert bench.counters.is_ready


def test_new_disk_is_attached_beside_scrapes(tree: Tree) -> None:
    with run_counters(tree) as bench:
        before = bench.list_watched()
        bench.access.may_attach.clear()
        add_disk(tree, "sdq")
        while bench.counters.scan_disks() or bench.counters.is_unsettled:
            pass
        # The kernel takes its time, and scrapes go on.
        assert bench.list_watched() == before
        assert bench.counters.is_ready
        bench.access.may_attach.set()
        bench.end_attaching()
        assert bench.list_watched() == before | {"sdq": 1}
        remove_device(tree, "sdq")
        assert bench.counters.scan_disks()
        assert bench.list_watched() == before


@pytest.mark.parametrize("refusal", ["", "no room"])
def test_disk_that_leaves_during_its_attachment_is_forgotten(tree: Tree, refusal: str) -> None:
    with run_counters(tree) as bench:
        before = bench.list_watched()
        bench.access.may_attach.clear()
        bench.access.fails = refusal
        add_disk(tree, "sdq")
        while bench.counters.scan_disks() or bench.counters.is_unsettled:
            pass
        remove_device(tree, "sdq")
        bench.counters.scan_disks()
        bench.access.may_attach.set()
        bench.end_attaching()
        assert bench.list_watched() == before


def test_refused_disk_has_a_reason_until_it_can_be_watched(tree: Tree) -> None:
    with run_counters(tree, "sda") as bench:
        bench.access.tracers[0].is_lost = True
        bench.access.fails = "no room"
        assert bench.list_watched() == {"sda": 0}
        for _ in range(2):
            bench.counters.retry_refused()
            bench.end_attaching()
        assert bench.list_watched() == {"sda": 0}
        [(labels, _)] = bench.read().rows["opwatch_watch_refused_info"]
        assert labels == ("sda", "no room")
        assert not bench.counters.is_ready
        # Each trouble is reported once.
        assert len(bench.messages) == 2
        bench.access.fails = ""
        bench.counters.retry_refused()
        bench.end_attaching()
        assert bench.list_watched() == {"sda": 1}
        assert "opwatch_watch_refused_info" not in bench.read().rows


def test_nothing_is_retried_while_all_is_well(tree: Tree) -> None:
    with run_counters(tree, "sda") as bench:
        bench.counters.retry_refused()
        assert len(bench.access.tracers) == 1
        assert bench.calls.empty()


def test_disk_is_attached_later_if_the_system_has_no_thread_for_it(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with run_counters(tree) as bench:
        before = bench.list_watched()
        add_disk(tree, "sdq")
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            while bench.counters.scan_disks() or bench.counters.is_unsettled:
                pass
            assert bench.list_watched() == before | {"sdq": 0}
            remove_device(tree, "sdb")
            assert bench.counters.scan_disks()
        bench.counters.retry_refused()
        bench.end_attaching()
        assert bench.list_watched()["sdq"] == 1


def test_refusal_of_another_disk_under_a_name_ends_with_that_disk(tree: Tree) -> None:
    add_disk(tree, "sdq")
    with run_counters(tree, "sdq") as bench:
        remove_device(tree, "sdq")
        assert bench.counters.scan_disks()
        tree.add_disk("sdq", "259:98", tags=(64,), attributes={"diskseq": "98", "wwid": "naa.98"})
        while bench.counters.scan_disks() or bench.counters.is_unsettled:
            pass
        assert bench.list_watched() == {"sdq": 0}
        remove_device(tree, "sdq")
        bench.counters.scan_disks()
        assert bench.list_watched() == {}
