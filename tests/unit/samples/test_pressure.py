"""The kernel's pressure totals: read from /proc, recorded, and kept with parts of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from opwatch.collectors.block import pressure
from opwatch.collectors.block.pressure import PressureClock
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.reading.window import select_window
from opwatch.samples.entries import DiskAdded, IntervalEnded, PressureRead, RunEnded, RunEntry
from opwatch.samples.pressure import PressureTotals
from opwatch.why.witnessed import gather_witnesses
from tests.unit.compare.counted_disk import CountedDisk, write_recording

IO = "some avg10=0.03 avg60=0.34 avg300=1.46 total=861701508\nfull avg10=0.00 avg60=0.00 total=95687151\n"
MEMORY = "some avg10=0.00 avg60=0.00 avg300=0.00 total=19571933\nfull avg10=0.00 total=4915319\n"
PAGES = "nr_free_pages 1\nnr_dirty 24\nnr_writeback 6\nnr_dirty_threshold 1121247\n"
DISKS = """ 254  0 vda 111899 24776 7331402 53299 1410479 2843280 2247 2488868 3 309640 2779370 20 7 4 56 2 3
 254  1 vda1 111 2 73 500 14 2 22 24 9 3 5000 20 7 4 56 2 3
   7  0 loop0 5 0 0 0 0 0 0 0 1 0 30 0 0 0 0 0 0
 251  0 zram0 5 0 0 0 0 0 0 0 0 0 9 0 0 0 0 0 0
"""


def make_clock(folder: Path) -> PressureClock:
    proc, sys = folder / "proc", folder / "sys"
    (proc / "pressure").mkdir(parents=True)
    for name, text in (
        ("pressure/io", IO),
        ("pressure/memory", MEMORY),
        ("vmstat", PAGES),
        ("diskstats", DISKS),
    ):
        (proc / name).write_text(text)
    for name, value in (("vda", "1"), ("loop0", "1"), ("zram0", "0")):
        for below in ("queue", "mq") if name != "zram0" else ("queue",):
            (sys / "block" / name / below).mkdir(parents=True)
        (sys / "block" / name / "queue" / "iostats").write_text(f"{value}\n")
    return PressureClock(proc, sys)


def test_totals_are_read_from_proc(tmp_path: Path) -> None:
    assert make_clock(tmp_path).read_totals() == PressureTotals(
        io_some_us=861701508,
        io_full_us=95687151,
        memory_some_us=19571933,
        memory_full_us=4915319,
        requests_ms=2779370 + 30 + 9,
        requests_in_flight=3 + 1,
        dirty_pages=30,
        dirty_background_pages=None,
        dirty_limit_pages=1121247,
    )


def test_disk_without_statistics_makes_the_time_of_requests_unknown(tmp_path: Path) -> None:
    clock = make_clock(tmp_path)
    (tmp_path / "sys" / "block" / "loop0" / "queue" / "iostats").write_text("0\n")
    totals = clock.read_totals()
    assert totals
    assert (totals.requests_ms, totals.requests_in_flight) == (None, None)
    assert totals.io_some_us


@pytest.mark.parametrize("text", ["", "some total=x\n", None])
def test_kernel_without_pressure_has_no_totals(tmp_path: Path, text: str | None) -> None:
    clock, file = make_clock(tmp_path), tmp_path / "proc" / "pressure" / "io"
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    assert clock.read_totals() is None


def test_totals_are_not_read_more_often_than_they_are_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = make_clock(tmp_path)
    assert clock.read_due()
    assert clock.read_due() is None
    monkeypatch.setattr(pressure, "EVERY_S", 0.0)
    again = PressureClock(tmp_path / "proc", tmp_path / "sys")
    assert again.read_due()
    assert again.read_due()


def generate_run(seconds: int) -> Iterator[RunEntry]:
    """Yield a run with readings each 5 s."""
    disk = CountedDisk("sda")
    yield DiskAdded(0, disk.make_sample(0))
    for second in range(1, seconds + 1):
        disk.add_second({"read": {100_000: 10}})
        sample = disk.make_sample(second)
        if second % 5 == 0:
            yield PressureRead(sample.reading.sample.end_ns, PressureTotals(1000 * second, None, 5, 6, 7, 0))
        yield IntervalEnded({0: sample})
    yield RunEnded({0: disk.make_sample(seconds)})


def test_recording_has_the_totals(tmp_path: Path) -> None:
    entries = list(generate_run(150))
    write_recording(tmp_path / "run.opw", entries)
    with closing(RecordedRun(tmp_path / "run.opw")) as run:
        assert list(run.iter_entries()) == entries
        assert gather_witnesses(run.iter_entries()).pressure == [
            entry for entry in entries if isinstance(entry, PressureRead)
        ]


def test_later_part_of_a_run_starts_with_the_last_totals() -> None:
    entries = list(generate_run(60))
    readings = [entry for entry in entries if isinstance(entry, PressureRead)]
    found = gather_witnesses(select_window(entries, readings[6].at_ns + 10**9, None)).pressure
    assert found == readings[6:]
