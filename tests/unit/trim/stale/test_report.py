"""Reports on stale space: the figures, and reasons for missing figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.sinks.trim_stale import format_spare
from opwatch.trim.history.saved import Checkpoint
from opwatch.trim.layers.remap import Landing
from opwatch.trim.space.extents import Extents
from opwatch.trim.stale.estimate import estimate_share
from opwatch.trim.stale.judgement import ReadDevice, StaleJudgement, StaleOptions
from opwatch.trim.stale.remembered import DeviceFreeSpace, StaleSpace, TrustedHistory
from opwatch.trim.stale.report import _NO_ONE_DRIVE, Flash, build_history_report, build_reading_report
from opwatch.trim.stale.sentinel import ReadsAs
from opwatch.trim.stale.stale import Bounds, Calibration, Count, Spare, estimate_spare

MIB = 1 << 20
FREE = Extents.from_pairs([(0, 40 * MIB)])
LANDING = Landing("sda", FREE)
FLASH = Flash(100 * MIB, 100 * MIB, 128 * MIB, "as given")
READS_ZEROS = Calibration(ReadsAs.ZEROS, "sentinel", ("it read as zeros",))
DRIVE = ReadDevice(LANDING, 100 * MIB, 4096, 0, READS_ZEROS)
# Every block was read, and every fourth block contained data.
JUDGED = StaleJudgement(
    drives=(DRIVE,),
    unit_bytes=4096,
    free_bytes=40 * MIB,
    judged_bytes=40 * MIB,
    share=estimate_share(2560, 10240, 10240, 0.95),
    taken=0,
    unreadable=0,
    count=None,
    mapped=None,
    seconds=1.0,
    notes=(),
)
CHECKPOINT = Checkpoint(1, 2 * 10**18, "boot", 3, 4, 5, 6, 0, 0, 10**18)
HISTORY = TrustedHistory(
    Path("/var/lib/x"), CHECKPOINT, Extents.from_pairs([(0, 70 * MIB)]), Extents(), (), ("a gap",)
)
PART = DeviceFreeSpace(LANDING, 100 * MIB, 4096, 0, 10 * MIB, 0, HISTORY)


def test_stale_report_has_the_share_and_the_cost() -> None:
    report = build_reading_report("/m", "ext4", StaleOptions(), JUDGED, FLASH)
    assert report.stale and report.spare
    assert (report.stale.value, report.reason, report.spare_reason) == (10 * MIB, None, None)
    assert report.spare.holding.value == 70 * MIB
    assert report.spare.op.value == pytest.approx(128 / 70 - 1)
    assert (report.lower_bound or "").startswith("all-zero ")


@pytest.mark.parametrize(
    ("judged", "flash", "why"),
    [
        (JUDGED, None, _NO_ONE_DRIVE),
        (replace(JUDGED, drives=(DRIVE, DRIVE)), FLASH, _NO_ONE_DRIVE),
        (JUDGED, replace(FLASH, physical_bytes=None), "--physical SIZE"),
        (JUDGED, replace(FLASH, physical_bytes=MIB), " T "),
    ],
)
def test_unknown_cost_has_a_reason(judged: StaleJudgement, flash: Flash | None, why: str) -> None:
    report = build_reading_report("/m", "ext4", StaleOptions(), judged, flash)
    assert report.stale is not None
    assert report.spare is None
    assert why in (report.spare_reason or "")


@pytest.mark.parametrize(
    ("judged", "why"),
    [
        (replace(JUDGED, share=estimate_share(0, 0, 10240, 0.95)), "block"),
        (replace(JUDGED, judged_bytes=0), "zeros"),
        (replace(JUDGED, count=Count(90 * MIB, 99 * MIB, 99 * MIB, 9 * MIB)), "(NUSE)"),
    ],
)
def test_unknown_stale_space_has_a_reason(judged: StaleJudgement, why: str) -> None:
    report = build_reading_report("/m", "ext4", StaleOptions(), judged, FLASH)
    assert (report.stale, report.spare, report.lower_bound) == (None, None, None)
    assert "stale" in (report.spare_reason or "")
    assert why in (report.reason or "")


def test_drives_that_cannot_be_judged_are_reported() -> None:
    report = build_reading_report("/m", "ext4", StaleOptions(), replace(JUDGED, judged_bytes=30 * MIB), FLASH)
    assert [note for note in report.notes if "conclusive" in note]


def test_a_history_gives_figures_without_an_estimate() -> None:
    report = build_history_report("/m", "ext4", StaleSpace((PART,), 0.5, ("a note",)), FLASH)
    assert report.spare
    assert (report.stale.value, report.spare.holding.value) == (10 * MIB, 70 * MIB)
    assert report.notes == ("a note", "a gap")


def test_flash_figures_need_the_history_of_the_drive() -> None:
    part = replace(PART, remembered=None, held_bytes=0, unknown_bytes=40 * MIB)
    report = build_history_report("/m", "ext4", StaleSpace((part,), 0.5, ()), FLASH)
    assert (report.stale.value, report.stale.high, report.spare) == (None, 40 * MIB, None)
    assert report.spare_reason == _NO_ONE_DRIVE


@pytest.mark.parametrize(
    ("op", "words"),
    [
        (Bounds(121.95, 121.0, 123.0), "more than 1000 % now"),
        (Bounds(9.0, 8.0, 12.0), "800.0 % or more now"),
        (Bounds(0.5, 0.25, 0.75), "50.0 (25.0 to 75.0) % now"),
    ],
)
def test_the_op_of_a_nearly_empty_drive_is_bounded(op: Bounds, words: str) -> None:
    figures = estimate_spare(1100, 600, Bounds(3.0, 2.0, 4.0), 0)
    assert isinstance(figures, Spare)
    printed = " ".join(" ".join(format_spare(replace(figures, op=op), None, "as given")).split())
    assert words in printed
    assert ("nearly" in printed) == (op.low > 10)
