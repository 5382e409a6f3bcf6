"""Write amplification of whole runs, on drives with known values."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from opwatch.compare.amplification import COUNTERS_REPLACED, NOT_READ, estimate_waf
from opwatch.compare.differences import Statement, compare_estimates
from opwatch.compare.estimates import Estimate
from opwatch.counters.looks.sample import FirmwareSample, Refusal, RefusalKind
from opwatch.waf.measure import NOT_THERE
from tests.unit.support.drive_readings import read_drive
from tests.unit.support.virtual_drive import CATALOGUE, OCP, PHISON, Model, VirtualDrive


def make_readings(
    seed: int, *, own_rate: float = 0.0, seconds: int = 90, model: Model = OCP
) -> list[FirmwareSample]:
    """Return a reading per second of a drive under writes; `own_rate` is the rate of additional NAND
    writes."""
    drive = VirtualDrive(model, 3)
    drive.chance.seed(seed)
    drive.rate, drive.own_rate = 40e6, own_rate
    drive.advance_time(5)
    made = [read_drive(drive, ("nvme0n1 1 2",))]
    for _ in range(seconds):
        drive.rate = 40e6 * drive.chance.uniform(0.8, 1.2)
        drive.advance_time(1)
        made.append(read_drive(drive, ("nvme0n1 1 2",)))
    return made


def estimate_from_readings(made: list[FirmwareSample]) -> Estimate:
    return estimate_waf(made, lambda: CATALOGUE)


def test_waf_covers_the_whole_run_with_its_error() -> None:
    drive = VirtualDrive(OCP, 3)
    drive.rate = 40e6
    drive.advance_time(5)
    begin, made = drive.read_truth(), [read_drive(drive, ("nvme0n1 1 2",))]
    for _ in range(90):
        drive.advance_time(1)
        made.append(read_drive(drive, ("nvme0n1 1 2",)))
    end, estimate = drive.read_truth(), estimate_from_readings(made)
    assert estimate.low <= (end.nand - begin.nand) / (end.host - begin.host) <= estimate.high
    assert estimate.has_scatter


def test_equal_drives_do_not_differ_and_others_do() -> None:
    first, same = estimate_from_readings(make_readings(1)), estimate_from_readings(make_readings(2))
    assert compare_estimates(first, same, 0.01).statement is Statement.NONE
    assert compare_estimates(first, first, 0.05).statement is Statement.NONE
    # About 6 MB/s of additional NAND writes, on 40 MB/s of host writes.
    more = compare_estimates(first, estimate_from_readings(make_readings(3, own_rate=6e6)), 0.01)
    assert more.statement is Statement.HIGHER
    assert more.change == pytest.approx(0.15, rel=0.4)


def test_the_error_of_the_counters_is_in_the_range() -> None:
    """A coarse counter over a minute shows no difference."""
    coarse = replace(OCP, name="C0h, 1 GB", nand_quantum=1)
    fine = estimate_from_readings(make_readings(1, model=coarse))
    wide = replace(fine, low=fine.low * 0.9, high=fine.high * 1.1)
    higher = estimate_from_readings(make_readings(3, own_rate=6e6))
    assert compare_estimates(fine, higher, 0.01).statement is Statement.HIGHER
    assert compare_estimates(wide, replace(higher, low=higher.low * 0.9), 0.01).statement is Statement.NONE


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ([], NOT_READ),
        (make_readings(1, seconds=0), NOT_THERE),
        # The bytes to write before the steps of the counter are small enough.
        (make_readings(1, seconds=1, model=PHISON), " 107374182401 "),
    ],
)
def test_missing_waf_has_a_reason(made: list[FirmwareSample], reason: str) -> None:
    estimate = estimate_from_readings(made)
    assert estimate.value is None
    assert estimate.reason
    assert reason in estimate.reason


def test_few_readings_have_a_value_without_a_verdict() -> None:
    estimate = estimate_from_readings(make_readings(1, seconds=30))
    assert estimate.value is not None
    assert estimate.reason
    assert re.search(r"\b3 .*\(5 needed\)$", estimate.reason)


def test_additional_path_changes_the_host_count() -> None:
    made = make_readings(1, seconds=20)
    made[10:] = [replace(look, counted_on=("nvme1n1 3 4",)) for look in made[10:]]
    assert estimate_from_readings(made).reason == COUNTERS_REPLACED


def test_refused_poll_is_left_out() -> None:
    made, refusal = make_readings(1), Refusal(RefusalKind.OTHER, "no")
    made[30] = replace(made[30], answers=(), refused=refusal)
    assert estimate_from_readings(made).value == pytest.approx(estimate_from_readings(make_readings(1)).value)
    assert estimate_from_readings([replace(look, answers=(), refused=refusal) for look in made]).value is None
