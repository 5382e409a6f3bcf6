"""Polls between and during rounds, for every way to read a drive's health."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from opwatch.collectors.firmware.counting import CounterPoller
from opwatch.errors import RefusedError
from opwatch.guard.budget import Health
from opwatch.host.device import Devices
from opwatch.tools.acting.sweep.level import LevelRun
from tests.unit.sweep.test_journal import REQUEST


def start_level(celsius: int, *, reads_pages: bool) -> tuple[LevelRun, list[str]]:
    """Start the first round of a level on a drive of this temperature; return the level and its messages."""
    announced: list[str] = []

    def poll_drive(keep: Callable[[object], None] = lambda _: None) -> None:
        keep(SimpleNamespace(after=5, answers=()))

    counting = SimpleNamespace(
        reads_pages=reads_pages,
        poll_counters=poll_drive,
        read_written=dict,
        latest=SimpleNamespace(readings={"temperature": SimpleNamespace(value=celsius)}),
    )
    bench: Any = SimpleNamespace(
        state=SimpleNamespace(request=REQUEST, announced_bytes=0),
        claim=SimpleNamespace(path="/proc/1/fd/3"),
        counting=counting,
        before=Health(),
        disk=SimpleNamespace(name="sda"),
        keeper=SimpleNamespace(record_poll=lambda _: None),
        announce=lambda _, kind, __: announced.append(kind),
    )
    run = LevelRun(bench, 0)
    course: Any = SimpleNamespace(trail=SimpleNamespace(add_poll=lambda _: None, moments=[0]))
    run._course = course
    trace: Any = SimpleNamespace(read_settled=lambda: None)
    run._record_counters(trace)
    return run, announced


@pytest.mark.parametrize("reads_pages", [True, False])
def test_round_is_not_started_on_a_hot_drive(reads_pages: bool) -> None:
    run, announced = start_level(REQUEST.budget.celsius, reads_pages=reads_pages)
    trace: Any = None
    with pytest.raises(RefusedError, match=r"70 °C.* 70 °C"):
        run.begin_round(trace)
    assert announced == []


def test_smartctl_is_asked_less_often_under_load(tmp_path: Path) -> None:
    folder = tmp_path / "block" / "sda" / "device"
    folder.mkdir(parents=True)
    (tmp_path / "class" / "block").mkdir(parents=True)
    (tmp_path / "class" / "block" / "sda").symlink_to(folder.parent)
    (folder.parent / "size").write_text("8\n")
    devices = Devices(tmp_path)
    disk = devices.by_name("sda")
    assert disk
    catalogue: Any = None
    counting = CounterPoller(devices, disk, catalogue)
    assert not counting.reads_pages
    assert counting.busy_poll_s == 10
    counting.reads_pages = True
    assert counting.busy_poll_s == 1
