"""Settings of a disk's queue: read once per second, recorded at the start and when they change."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.collectors.owners.cgroups import IoHierarchy
from opwatch.host.device import BlockDevice
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.reading.window import select_window
from opwatch.samples.entries import DiskAdded, IntervalEnded, QueueChanged, RunEnded, RunEntry
from opwatch.samples.sample import DiskSample, GroupSetting, QueueSettings
from opwatch.tools.runs import queue_settings
from opwatch.tools.runs.queue_settings import QueueSettingsWatch
from opwatch.why.witnessed import gather_witnesses
from tests.unit.compare.counted_disk import CountedDisk, write_recording

FIRST = QueueSettings("mq-deadline", 64, 75_000, groups=())


def make_device(folder: Path) -> BlockDevice:
    (folder / "queue").mkdir()
    for name, text in (
        ("scheduler", "none [mq-deadline] bfq"),
        ("nr_requests", "64"),
        ("wbt_lat_usec", "75000"),
    ):
        (folder / "queue" / name).write_text(f"{text}\n")
    return BlockDevice("sda", (8, 0), folder)


def make_watch(folder: Path) -> QueueSettingsWatch:
    """Return a watch that finds the control groups in `groups` below a folder."""
    (folder / "groups" / "db").mkdir(parents=True)
    return QueueSettingsWatch(IoHierarchy(2, folder / "groups"))


def test_settings_are_read_from_sysfs(tmp_path: Path) -> None:
    device, watch = make_device(tmp_path), make_watch(tmp_path)
    assert watch.read_first(device) == FIRST
    (tmp_path / "queue" / "wbt_lat_usec").unlink()
    assert watch.read_first(device) == replace(FIRST, wbt_lat_us=None)


def test_change_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_settings, "_EVERY_S", 0.0)
    device, watch = make_device(tmp_path), make_watch(tmp_path)
    disks = [(3, device, FIRST)]
    assert watch.report_changes(disks, 10) == []
    (tmp_path / "queue" / "nr_requests").write_text("4\n")
    assert watch.report_changes(disks, 20) == [QueueChanged(3, 20, replace(FIRST, nr_requests=4))]
    assert watch.report_changes(disks, 30) == []


def test_new_limit_of_a_group_is_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_settings, "_EVERY_S", 0.0)
    monkeypatch.setattr(queue_settings, "_GROUPS_SHARE", math.inf)
    device, watch = make_device(tmp_path), make_watch(tmp_path)
    disks = [(3, device, watch.read_first(device))]
    (tmp_path / "groups" / "db" / "io.max").write_text("8:0 rbps=max wbps=1048576 riops=max wiops=max\n")
    limited = replace(FIRST, groups=(GroupSetting("/db", "io.max", "wbps=1048576"),))
    assert watch.report_changes(disks, 10) == [QueueChanged(3, 10, limited)]
    (tmp_path / "groups" / "db" / "io.max").write_text("")
    assert watch.report_changes(disks, 20) == [QueueChanged(3, 20, FIRST)]


def test_settings_are_not_read_more_often_than_once_per_second(tmp_path: Path) -> None:
    device, watch = make_device(tmp_path), make_watch(tmp_path)
    assert watch.report_changes([(0, device, FIRST)], 10) == []
    (tmp_path / "queue" / "nr_requests").write_text("4\n")
    assert watch.report_changes([(0, device, FIRST)], 20) == []


def generate_change(seconds: int, at: int) -> Iterator[RunEntry]:
    """Yield a run whose disk gets fewer tags after a second."""
    disk = CountedDisk("sda")
    disk.disk = replace(disk.disk, settings=FIRST)

    def take_sample(second: int) -> DiskSample:
        return disk.make_sample(second)

    yield DiskAdded(0, take_sample(0))
    for second in range(1, seconds + 1):
        disk.add_second({"read": {100_000: 10}})
        sample = take_sample(second)
        if second == at:
            yield QueueChanged(0, sample.reading.sample.end_ns, replace(FIRST, nr_requests=4))
        yield IntervalEnded({0: sample})
    yield RunEnded({0: take_sample(seconds)})


def test_recording_has_the_settings_and_their_change(tmp_path: Path) -> None:
    entries = list(generate_change(90, 40))
    write_recording(tmp_path / "run.opw", entries)
    with closing(RecordedRun(tmp_path / "run.opw")) as run:
        assert list(run.iter_entries()) == entries
        disk = gather_witnesses(run.iter_entries()).disks["sda"]
    settings = disk.list_settings()
    assert settings
    assert [one.nr_requests for one in settings] == [64] * 39 + [4] * 51


def test_later_part_of_a_run_starts_with_the_changed_settings() -> None:
    entries = list(generate_change(90, 40))
    middle_ns = next(one for one in entries if isinstance(one, QueueChanged)).at_ns + 10**10
    disk = gather_witnesses(select_window(entries, middle_ns, None)).disks["sda"]
    settings = disk.list_settings()
    assert settings
    assert {one.nr_requests for one in settings} == {4}
