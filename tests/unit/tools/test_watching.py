"""A watch with disks that come and go: rows, events and messages."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from opwatch.collectors.audit.live_discards import LiveDiscards
from opwatch.collectors.firmware.live import LiveWaf
from opwatch.samples.membership import Membership
from opwatch.samples.selection import Selection
from opwatch.sinks.jsonl import JsonLines
from opwatch.sinks.lines import TextLines
from opwatch.tools.runs.watching import DiskWatcher
from opwatch.trace.tracer_set import TracerSet
from opwatch.trace.trust import Reading
from tests.unit.samples.test_membership import remove_device, restack_device
from tests.unit.support.shown_watch import ShownWatch, format_from_file
from tests.unit.support.sysfs import Tree, make_machine, write_attributes
from tests.unit.support.tracers import FakeAttacher


class Watch:
    """A Watching on a fake sysfs, with fake tracers."""

    made: ClassVar[list[Watch]] = []

    def __init__(self, tree: Tree, *names: str, plain: bool = False, wait_s: float = 0.0) -> None:
        self.attaching = FakeAttacher()
        self.reads = self.attaching.reads
        self.out = io.StringIO()
        membership = Membership(tree.devices, Selection(tree.devices, names), wait_s)
        live = LiveWaf(tree.devices, lambda _: {}, 5)
        sink = TextLines(self.out) if plain else JsonLines(self.out)
        discards = LiveDiscards(lambda _: False)
        self.plain = plain
        watching = DiskWatcher(membership, TracerSet(self.attaching), live, discards)
        self.watching = ShownWatch(watching, sink)
        self.made.append(self)

    def read_documents(self, kind: str) -> list[dict[str, Any]]:
        documents = [json.loads(line) for line in self.out.getvalue().splitlines()]
        return [document for document in documents if document["type"] == kind]

    def scan_and_write(self) -> None:
        self.watching.scan_disks()
        self.watching.read_interval()


@pytest.fixture(autouse=True)
def _same_from_a_file() -> Iterator[None]:
    """After each test, the run read back from a file must print the same bytes."""
    Watch.made.clear()
    yield
    assert Watch.made
    for watch in Watch.made:
        assert format_from_file(watch.watching.entries, plain=watch.plain) == watch.out.getvalue()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = make_machine(tmp_path)
    for name in ("dm-7", "dm-8"):
        made.add_disk(name, f"253:{name[-1]}", attributes={"dm/uuid": "LVM-x"})
    made.stack_device("dm-7", "sda")
    return made


def test_counts_of_removed_disks_are_in_the_summary(tree: Tree, capfd: pytest.CaptureFixture[str]) -> None:
    watch = Watch(tree, "dm-7")
    watch.reads["sda"] = 3
    watch.scan_and_write()
    watch.reads |= {"sda": 5, "sdb": 100}
    restack_device(tree, "dm-7", "sdb")
    watch.scan_and_write()
    watch.reads |= {"sda": 1000, "sdb": 107}
    assert watch.watching.find_vanished() is None
    watch.watching.end_watch(with_rest=True)
    first, second = watch.read_documents("summary")
    assert (first["device"], first["origin"], first["ops"]["read"]["count"]) == ("sda", "dm-7", 5)
    assert (second["device"], second["origin"], second["ops"]["read"]["count"]) == ("sdb", "dm-7", 7)
    assert first["leaving"]["why"] == "unused"
    assert first["arrival"] is second["leaving"] is None
    assert second["arrival"]["unseen_requests"] is None
    intervals = [(line["device"], line["ops"]["read"]["count"]) for line in watch.read_documents("interval")]
    assert intervals == [("sda", 3), ("sda", 2), ("sdb", 0), ("sdb", 7)]
    events = watch.read_documents("event")
    assert [(line["event"], line["device"]) for line in events] == [("left", "sda"), ("came", "sdb")]
    said = " ".join(capfd.readouterr().err.split())
    for line in events:
        assert line["text"] in said
        assert line["text"].startswith(f"{line['device']} ") and "dm-7" in line["text"]


def test_new_disk_is_announced_once_and_is_in_the_summary(tree: Tree) -> None:
    watch = Watch(tree, "dm-7")
    tree.stack_device("dm-7", "sdb")
    watch.scan_and_write()
    watch.scan_and_write()
    unexplained = watch.watching.end_watch(with_rest=True)
    late = [line for line in watch.read_documents("interval") if line["device"] == "sdb"]
    assert [line["arrival"] is None for line in late] == [False, True]
    reason = late[0]["arrival"]["reason"]
    [words] = [line for line in late[0]["unexplained"] if line not in late[1]["unexplained"]]
    assert reason and words.endswith(f": {reason}")
    assert words in watch.read_documents("summary")[1]["unexplained"]
    assert f"sdb (of dm-7): {words}" in unexplained


def test_replaced_disk_is_always_reported(tree: Tree) -> None:
    write_attributes(tree["loop0"].sysfs, {"diskseq": "5"})
    watch = Watch(tree, "loop0")
    watch.reads["loop0"] = 3
    watch.scan_and_write()
    watch.reads["loop0"] = 5
    write_attributes(tree["loop0"].sysfs, {"diskseq": "6", "loop/backing_file": "/another"})
    assert watch.watching.find_vanished() == "loop0"
    unexplained = watch.watching.end_watch(with_rest=True)
    [summary] = watch.read_documents("summary")
    assert summary["leaving"]["why"] == "replaced"
    doubt = summary["leaving"]["doubt"]
    assert re.search(r"\d\d:\d\d:\d\d", doubt)
    assert doubt in summary["unexplained"]
    assert [line for line in unexplained if doubt in line]


def test_disk_that_is_replaced_before_its_last_reading_is_reported(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scan sees that the disk is gone; another one then has its number, and counts in the reading."""
    write_attributes(tree["loop0"].sysfs, {"diskseq": "5"})
    watch = Watch(tree, "loop0")
    watch.scan_and_write()
    read = TracerSet.read

    def read_replaced(tracers: TracerSet, wanted: Collection[int] | None = None) -> dict[int, Reading]:
        replaced = {"size": "2048", "diskseq": "6", "loop/backing_file": "/another"}
        write_attributes(tree["loop0"].sysfs, replaced)
        return read(tracers, wanted)

    write_attributes(tree["loop0"].sysfs, {"size": "0"})
    monkeypatch.setattr(TracerSet, "read", read_replaced)
    watch.watching.scan_disks()
    [left] = watch.read_documents("event")
    assert left["event"] == "left" and "was replaced" in left["text"]


def test_removed_path_does_not_end_the_watch(tree: Tree) -> None:
    watch = Watch(tree, "nvme1n1")
    watch.reads |= {"nvme1c1n1": 3, "nvme1c2n1": 4}
    remove_device(tree, "nvme1c1n1")
    watch.scan_and_write()
    assert watch.watching.find_vanished() is None
    watch.watching.end_watch(with_rest=False)
    counts = {line["device"]: line["ops"]["read"]["count"] for line in watch.read_documents("summary")}
    assert counts == {"nvme1c1n1": 3, "nvme1c2n1": 4}


def test_disk_that_cannot_be_watched_is_reported_only_once(
    tree: Tree, capfd: pytest.CaptureFixture[str]
) -> None:
    watch = Watch(tree, "dm-7")
    watch.attaching.fails = "ENOSPC"
    tree.stack_device("dm-7", "sdb")
    for number in range(3):
        tree.add_disk(f"sdy{number}", f"65:{number}", tags=[32])
        watch.scan_and_write()
    [event] = watch.read_documents("event")
    assert (event["event"], event["device"]) == ("not_watched", "sdb")
    assert event["text"].endswith(": ENOSPC")
    assert capfd.readouterr().err.count(event["text"]) == 1
    assert [line for line in watch.watching.end_watch(with_rest=False) if event["text"] in line]


def test_period_without_a_watch_stays_unexplained(tree: Tree) -> None:
    watch = Watch(tree, "dm-7")
    watch.attaching.fails = "ENOSPC"
    tree.stack_device("dm-7", "sdb")
    watch.watching.scan_disks()
    watch.attaching.fails = None
    tree.add_disk("sdy", "65:9", tags=[32])
    watch.watching.scan_disks()
    refused, came = watch.read_documents("event")
    assert (refused["event"], came["event"]) == ("not_watched", "came")
    assert [line for line in watch.watching.end_watch(with_rest=False) if refused["text"] in line]


def test_lines_have_the_time_of_the_change(tree: Tree) -> None:
    watch = Watch(tree, "dm-7", plain=True)
    watch.reads["sda"] = 3
    restack_device(tree, "dm-7", "sdb")
    watch.scan_and_write()
    reason = watch.attaching.tracers[-1].read()[0].no_witness
    watch.watching.end_watch(with_rest=False)
    text = watch.out.getvalue()
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert "(unused)" in text
    assert ", since " in text
    words = " ".join(text.split())
    late = [line for line in text.splitlines() if " sdb (of dm-7): idle, since " in line]
    assert len(late) == 1
    assert re.search(rf"! drift unknown: {reason}; [^!]*\bunknown\b", words)


def test_disk_since_the_last_poll_is_in_the_summary(tree: Tree) -> None:
    """A command reloads a table, does its I/O and ends, all between two polls."""
    watch = Watch(tree, "dm-7")
    restack_device(tree, "dm-7", "sdb")
    unexplained = watch.watching.end_watch(with_rest=True)
    first, second = watch.read_documents("summary")
    assert (first["device"], second["device"]) == ("sda", "sdb")
    assert second["arrival"]["unseen_requests"] is None
    assert {f"sdb (of dm-7): {line}" for line in second["unexplained"]} <= set(unexplained)


def test_returning_named_drive_has_a_row_per_stay(tree: Tree, capfd: pytest.CaptureFixture[str]) -> None:
    watch = Watch(tree, "loop0", "sda", wait_s=60)
    watch.reads["loop0"] = 3
    watch.scan_and_write()
    loop = tree["loop0"].sysfs
    write_attributes(loop, {"size": "0"})
    watch.scan_and_write()
    assert watch.watching.find_absent() == "loop0"
    assert watch.watching.find_vanished() is None
    watch.scan_and_write()
    write_attributes(loop, {"size": "2048"})
    watch.scan_and_write()
    watch.reads["loop0"] = 8
    watch.scan_and_write()
    assert watch.watching.find_absent() is None
    watch.watching.end_watch(with_rest=True)
    summaries = [line for line in watch.read_documents("summary") if line["device"] == "loop0"]
    assert [(line["leaving"] or {}).get("why") for line in summaries] == ["gone", None]
    assert [line["ops"]["read"]["count"] for line in summaries] == [3, 5]
    left, came = watch.read_documents("event")
    assert (left["event"], came["event"]) == ("left", "came")
    assert "1m" in left["text"].split()
    said = " ".join(capfd.readouterr().err.split())
    assert left["text"] in said and came["text"] in said


def test_another_drive_with_the_name_is_reported_and_not_watched(
    tree: Tree, capfd: pytest.CaptureFixture[str]
) -> None:
    watch = Watch(tree, "loop0", "sda", wait_s=60)
    write_attributes(tree["loop0"].sysfs, {"size": "0"})
    watch.scan_and_write()
    write_attributes(tree["loop0"].sysfs, {"size": "2048", "loop/backing_file": "/another"})
    watch.reads["loop0"] = 1000
    watch.scan_and_write()
    watch.scan_and_write()
    watch.watching.end_watch(with_rest=True)
    [summary] = [line for line in watch.read_documents("summary") if line["device"] == "loop0"]
    assert summary["ops"]["read"]["count"] == 0
    left, refused = watch.read_documents("event")
    assert (left["event"], refused["event"]) == ("left", "not_watched")
    assert "/another" in refused["text"]
    assert " ".join(capfd.readouterr().err.split()).count(refused["text"]) == 1
