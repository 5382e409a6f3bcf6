"""Recordings that a flight recorder writes when rules fire: constant firing neither fills the disk nor stops
the recorder."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from opwatch.recording.ring import incidents
from opwatch.recording.ring.incidents import IncidentFolder
from opwatch.rules.watch import Firing, RuleWatch
from opwatch.samples.entries import EventReported
from opwatch.tools import cli
from opwatch.tools.commands import flight
from opwatch.tools.commands.flight import catching
from opwatch.tools.commands.flight.catching import Catcher

_MIDNIGHT = datetime(2026, 11, 28).astimezone()
NO_ENTRY = cast(EventReported, None)


class FakeClock:
    """A fake of both clocks."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return _MIDNIGHT + timedelta(seconds=self.seconds)


class FakeWriter:
    """A fake of the process that dumps the ring."""

    def __init__(self, argv: list[str], **_: object) -> None:
        path = Path(argv[argv.index("-o") + 1])
        path.write_text("a recording")
        count = len(list(path.parent.iterdir()))
        os.utime(path, (count, count))

    def poll(self) -> int:
        return 0

    def wait(self, timeout: float) -> int:
        return 0


class FakeRing:
    """A fake of the run kept in the ring."""

    def __init__(self, path: Path) -> None:
        self.path, self.notes = path, list[str]()

    def add_event(self, kind: str, words: str) -> None:
        self.notes.append(words)


class FakeRules:
    """Fires on request."""

    def __init__(self) -> None:
        self.fires = False

    def process_news(self, _: object) -> list[Firing]:
        return [Firing("error", "sda", 1, "errors on sda: 1 of read")] if self.fires else []


class FakePresenter:
    def process_entry(self, _: object) -> Iterator[object]:
        yield None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    clock = FakeClock()
    monkeypatch.setattr(catching, "time", clock)
    monkeypatch.setattr(catching, "RunPresenter", FakePresenter)
    monkeypatch.setattr(subprocess, "Popen", FakeWriter)
    monkeypatch.setattr(incidents, "datetime", clock)
    return clock


def list_write_times(folder: Path) -> list[float]:
    """Return the wall-clock times at which recordings were written."""
    times = (datetime.strptime(name[:19], "%Y-%m-%dT%H-%M-%S").astimezone() for name in os.listdir(folder))
    return sorted((time - _MIDNIGHT).total_seconds() for time in times)


def make_catcher(tmp_path: Path, rules: FakeRules, most: int, keep_s: float = 900.0) -> Catcher:
    fake: Any = rules
    kept: Any = FakeRing(tmp_path / "ring")
    return Catcher(fake, kept, IncidentFolder(tmp_path / "caught", most), after_s=30.0, keep_s=keep_s)


def run_seconds(
    one: Catcher, clock: FakeClock, seconds: int, rules: FakeRules, fires: Callable[[int], bool]
) -> None:
    for second in range(seconds):
        clock.seconds += 1.0
        rules.fires = fires(second)
        one.process_entry(NO_ENTRY)


def test_newest_recordings_are_kept_when_a_rule_fires_all_day(tmp_path: Path, clock: FakeClock) -> None:
    rules = FakeRules()
    one = make_catcher(tmp_path, rules, most=20)
    run_seconds(one, clock, 86_400, rules, lambda second: second % 60 == 0)
    times = list_write_times(tmp_path / "caught")
    assert len(times) == 20
    assert times[-1] > 86_400 - 400


def test_recordings_are_spaced_to_cover_hours(tmp_path: Path, clock: FakeClock) -> None:
    rules = FakeRules()
    one = make_catcher(tmp_path, rules, most=20)
    run_seconds(one, clock, 6000, rules, lambda second: True)
    times = list_write_times(tmp_path / "caught")
    assert times[0] == 31
    assert {later - earlier for earlier, later in pairwise(times)} == {300}


def test_short_ring_spaces_recordings_by_half_its_length(tmp_path: Path, clock: FakeClock) -> None:
    """A firing must still be inside the ring when its recording is written."""
    rules = FakeRules()
    one = make_catcher(tmp_path, rules, most=50, keep_s=100.0)
    run_seconds(one, clock, 1000, rules, lambda second: True)
    assert {later - earlier for earlier, later in pairwise(list_write_times(tmp_path / "caught"))} == {50}


def test_pending_firing_is_written_at_the_end(tmp_path: Path, clock: FakeClock) -> None:
    rules = FakeRules()
    one = make_catcher(tmp_path, rules, most=20)
    run_seconds(one, clock, 100, rules, lambda second: second in (0, 50))
    assert len(os.listdir(tmp_path / "caught")) == 1
    one.write_pending()
    assert len(os.listdir(tmp_path / "caught")) == 2


def test_only_recordings_of_a_flight_recorder_are_removed(tmp_path: Path) -> None:
    folder = IncidentFolder(tmp_path / "caught", 2)
    for at, name in enumerate(
        (
            "notes.txt",
            "mine.opw",
            "2026-11-28T00-00-01-sda.opw",
            "2026-11-28T00-00-02-nvme0n1.opw",
            "2026-11-28T00-00-03-sda.opw",
        )
    ):
        (tmp_path / "caught" / name).write_text("x")
        os.utime(tmp_path / "caught" / name, (at, at))
    (tmp_path / "caught" / "2025-11-28T00-00-03-sda.opw").symlink_to(tmp_path / "precious")
    (tmp_path / "caught" / "2024-11-28T00-00-03-sda.opw").mkdir()
    assert [path.name for path in folder.make_room()] == [
        "2026-11-28T00-00-01-sda.opw",
        "2026-11-28T00-00-02-nvme0n1.opw",
    ]
    assert sorted(os.listdir(tmp_path / "caught")) == [
        "2024-11-28T00-00-03-sda.opw",
        "2025-11-28T00-00-03-sda.opw",
        "2026-11-28T00-00-03-sda.opw",
        "mine.opw",
        "notes.txt",
    ]
    assert IncidentFolder(tmp_path / "caught", 20).make_room() == []


def test_recording_name_is_recognised_for_removal(tmp_path: Path) -> None:
    folder = IncidentFolder(tmp_path / "caught", 1)
    for device in ("nvme0n1", "cciss/c0d0", "dm-3"):
        path = folder.new_path(device)
        assert path.parent == tmp_path / "caught"
        path.write_text("x")
        assert folder.make_room() == [path]


def test_unit_of_systemd_has_rules_that_can_be_read() -> None:
    unit = (Path(__file__).parents[3] / "tools/deploy/systemd/opwatch-flight.service").read_text()
    [line] = re.findall("^ExecStart=(.*)", unit, re.MULTILINE)
    command, args = cli.parse(shlex.split(line)[1:])
    assert command.run is flight.run
    assert len(RuleWatch.from_texts(args.when).rules) >= 2
    assert "error" in args.when
