"""What an answer lacks: histograms, the time before the device, a steady clock; several disks at once."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import replace

from opwatch.counters.catalogue.families import Catalogue
from opwatch.samples.entries import IntervalEnded
from opwatch.why.answer import answer_why
from opwatch.why.candidate import CauseName
from opwatch.why.decision import CauseVerdict
from opwatch.why.witnessed import NAN, WitnessedDisk, WitnessedRun, gather_witnesses
from tests.unit.compare.counted_disk import Second as Counted
from tests.unit.compare.counted_disk import generate_entries
from tests.unit.why.witnessed_runs import MS, Second, draw_bursts, list_names, make_disk, make_seconds

SECONDS = 120


def no_catalogue() -> Catalogue:
    raise AssertionError("no drive was polled")


def make_run(*disks: WitnessedDisk) -> WitnessedRun:
    return WitnessedRun(disks={disk.label: disk for disk in disks})


def make_slow_disk(label: str, seed: int, change: Callable[[Second], None]) -> WitnessedDisk:
    places = draw_bursts(SECONDS, seed)
    return make_disk(make_seconds(SECONDS, seed, places, change), label=label)


def add_flushes(second: Second) -> None:
    second.flushes = 500
    second.read_ns = second.write_ns = 5 * MS


def add_neighbour(second: Second) -> None:
    second.owners = {"victim": 1000, "neighbour": 9000}
    second.read_ns = second.write_ns = 5 * MS


def test_disk_without_histograms_is_not_examined() -> None:
    disk = make_disk(make_seconds(SECONDS, 1))
    for series in disk.ops.values():
        series.p99_ns = array("d", [NAN] * SECONDS)
    answer = answer_why(make_run(disk), no_catalogue)
    assert not answer.slow
    assert not answer.examined
    assert "no latency histograms" in answer.not_examined[0]


def test_fast_disk_without_queue_times_has_a_note() -> None:
    disks = (make_disk(make_seconds(SECONDS, 1), has_queue=has, label=f"sd{has:d}") for has in (True, False))
    answer = answer_why(make_run(*disks), no_catalogue)
    assert [note for note in answer.notes if "before the device" in note] == [
        "sd0: the time before the device was not measured: record with --queue"
    ]


def test_intervals_around_a_clock_jump_are_left_out() -> None:
    usual: Counted = {"read": {100_000: 900, 300_000: 30}}
    entries = list(generate_entries([usual] * 60))
    swapped = [entries[30], entries[29]]
    assert all(isinstance(one, IntervalEnded) for one in swapped)
    run = gather_witnesses([*entries[:29], *swapped, *entries[31:]])
    assert run.clock_jumps == 1
    assert any("clock" in note for note in answer_why(run, no_catalogue).notes)


def test_each_disk_has_its_own_cause() -> None:
    base = {"victim": 1000.0, "neighbour": 10.0}
    noisy = draw_bursts(SECONDS, 5)
    seconds = [replace(one, owners=dict(base)) for one in make_seconds(SECONDS, 5)]
    for at in noisy:
        add_neighbour(seconds[at])
    run = make_run(make_slow_disk("sda", 3, add_flushes), make_disk(seconds, label="sdb"))
    answer = answer_why(run, no_catalogue)
    named: dict[str, CauseVerdict] = {one.slowness.disk.label: one.verdict for one in answer.slow}
    assert {label: list_names(verdict) for label, verdict in named.items()} == {
        "sda": [CauseName.FLUSHES],
        "sdb": [CauseName.NEIGHBOUR],
    }
