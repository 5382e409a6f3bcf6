"""Which causes are named for synthetic runs, over seeds, and what remains unknown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from opwatch.why.candidate import CauseName
from opwatch.why.decision import CauseVerdict, decide_causes
from opwatch.why.drives import DriveWitness
from opwatch.why.slowness import find_slowness
from opwatch.why.witnessed import WitnessedRun
from tests.unit.why.witnessed_runs import (
    MS,
    Change,
    Second,
    draw_bursts,
    list_names,
    make_disk,
    make_drive,
    make_seconds,
    make_slowness,
)

SECONDS = 120
SEEDS = range(20)
DriveMaker = Callable[[Sequence[Second], Sequence[int]], DriveWitness]


def change_by(**values: float | dict[str, float]) -> Change:
    """Return a change that sets these fields of a second."""

    def change(second: Second) -> None:
        for name, value in values.items():
            setattr(second, name, value)

    return change


def make_collecting_drive(seconds: Sequence[Second], places: Sequence[int]) -> DriveWitness:
    """Return a drive that writes five times as much to NAND in these places."""
    for at, one in enumerate(seconds):
        one.nand_per_s = one.writes * 4096 * (5.0 if at in places else 1.1)
    return make_drive(seconds)


def throttle_drive(seconds: Sequence[Second], places: Sequence[int]) -> DriveWitness:
    return make_drive(seconds, throttled=places)


def poll_drive(seconds: Sequence[Second], places: Sequence[int]) -> DriveWitness:
    return make_drive(seconds, polled=places)


def decide(seed: int, change: Change, drive: DriveMaker | None = None, op: str = "read") -> CauseVerdict:
    places = draw_bursts(SECONDS, seed)
    seconds = make_seconds(SECONDS, seed, places, change)
    witness = drive(seconds, places) if drive else None
    return decide_causes(make_slowness(make_disk(seconds), op, witness))


def share_owners(neighbour: float) -> dict[str, float]:
    return {"postgres": 1000.0, "backup": neighbour}


SLOW = {"read_ns": 2 * MS}
CASES: list[tuple[CauseName, Change, DriveMaker | None]] = [
    (CauseName.FLUSHES, change_by(**SLOW, flushes=500), None),
    (CauseName.DISCARDS, change_by(**SLOW, discards=50, behind=0.9), None),
    (CauseName.ERRORS, change_by(**SLOW, errors=3), None),
    (CauseName.READ_BEHIND_WRITE, change_by(**SLOW, writes=30_000), None),
    (CauseName.LARGE_REQUESTS, change_by(**SLOW, large_bytes=5e8, write_bytes=5e8), None),
    (CauseName.SATURATION, change_by(**SLOW, reads=9000, depth=18), None),
    (CauseName.HOST_CPU, change_by(**SLOW, cpu=0.9), None),
    (CauseName.GARBAGE_COLLECTION, change_by(**SLOW), make_collecting_drive),
    (CauseName.THERMAL, change_by(**SLOW), throttle_drive),
    (CauseName.POLLING, change_by(**SLOW), poll_drive),
    (CauseName.IO_MAX, change_by(throttle_ns=20 * MS), None),
    (CauseName.SCHEDULER, change_by(queue_ns=20 * MS), None),
    (CauseName.KERNEL_WORK, change_by(**SLOW, kernel=500, flushes=100), None),
]


@pytest.mark.parametrize(("cause", "change", "drive"), CASES, ids=[case[0].value for case in CASES])
def test_cause_is_named_in_most_runs_and_no_other(
    cause: CauseName, change: Change, drive: DriveMaker | None
) -> None:
    answers = Counter(tuple(list_names(decide(seed, change, drive))) for seed in SEEDS)
    assert answers[(cause,)] >= 0.8 * len(SEEDS), answers
    assert sum(count for names, count in answers.items() if names and cause not in names) == 0, answers


def test_slow_seconds_without_a_witness_are_unknown() -> None:
    verdicts = [decide(seed, change_by(**SLOW)) for seed in SEEDS]
    assert [list_names(verdict) for verdict in verdicts] == [[]] * len(SEEDS)
    assert all(verdict.unknown == 1.0 and verdict.needs for verdict in verdicts)


def test_nothing_is_slow_in_runs_without_a_burst() -> None:
    found = 0
    for seed in range(100):
        disk = make_disk(make_seconds(SECONDS, seed))
        run = WitnessedRun(disks={disk.label: disk})
        found += any(find_slowness(run, disk, op) for op in ("read", "write"))
    assert found <= 2


def test_witness_at_other_times_is_not_a_cause() -> None:
    named = 0
    for seed in range(50):
        places, others = draw_bursts(SECONDS, seed), set(draw_bursts(SECONDS, seed + 1000))
        seconds = make_seconds(SECONDS, seed, places, change_by(**SLOW))
        for at in others:
            seconds[at].flushes = 500
        named += bool(list_names(decide_causes(make_slowness(make_disk(seconds), "read"))))
    assert named <= 1


def test_witness_is_not_a_cause_when_it_usually_has_no_effect() -> None:
    seconds = make_seconds(SECONDS, 3, draw_bursts(SECONDS, 3), change_by(**SLOW, flushes=500))
    for at in range(0, SECONDS, 3):
        seconds[at].flushes = 500
    assert list_names(decide_causes(make_slowness(make_disk(seconds), "read"))) == []


def test_single_episode_does_not_prove_a_coincidence() -> None:
    seconds = make_seconds(SECONDS, 3, range(50, 60), change_by(**SLOW, flushes=500))
    verdict = decide_causes(make_slowness(make_disk(seconds), "read"))
    assert list_names(verdict) == []
    assert any("only 1 episode" in need for need in verdict.needs)


def test_neighbour_replaces_its_own_writes() -> None:
    places = draw_bursts(SECONDS, 4)
    seconds = make_seconds(SECONDS, 4, places, change_by(**SLOW, writes=20_000))
    for at, one in enumerate(seconds):
        one.owners = share_owners(20_000.0 if at in places else 10.0)
    assert list_names(decide_causes(make_slowness(make_disk(seconds), "read"))) == [CauseName.NEIGHBOUR]


def test_two_witnesses_of_the_same_seconds_cannot_be_told_apart() -> None:
    verdict = decide(4, change_by(**SLOW, flushes=500, cpu=0.9))
    (cause,) = verdict.causes
    assert {one.candidate.name for one in cause.found} == {CauseName.FLUSHES, CauseName.HOST_CPU}
    assert not cause.is_certain


def test_two_causes_of_different_seconds_are_both_named() -> None:
    places = draw_bursts(240, 4, count=12)
    seconds = make_seconds(240, 4, places, change_by(**SLOW))
    starts = [at for at in places if at - 1 not in places]
    for number, start in enumerate(starts):
        for at in range(start, start + 4):
            if number % 2:
                seconds[at].flushes = 500
            else:
                seconds[at].cpu = 0.9
    verdict = decide_causes(make_slowness(make_disk(seconds), "read"))
    assert set(list_names(verdict)) <= {CauseName.FLUSHES, CauseName.HOST_CPU}
    assert len(list_names(verdict)) >= 1


@pytest.mark.parametrize("seed", SEEDS)
def test_shares_and_layers_add_up(seed: int) -> None:
    places = draw_bursts(SECONDS, seed)
    seconds = make_seconds(SECONDS, seed, places, change_by(**SLOW, queue_ns=1 * MS, flushes=500))
    slow = make_slowness(make_disk(seconds), "read")
    verdict = decide_causes(slow)
    assert math.isclose(math.fsum(cause.share for cause in verdict.causes) + verdict.unknown, 1.0)
    counted = [at for at, is_slow in enumerate(slow.slow) if is_slow]
    count = math.fsum(slow.series.count[at] for at in counted)
    spent = math.fsum(math.fsum(slow.times.sums[layer][at] for layer in slow.times.sums) for at in counted)
    excess = spent - count * math.fsum(slow.usual.values())
    assert math.isclose(math.fsum(slow.total_excess.values()), excess, rel_tol=1e-9)


def test_queue_time_is_needed_when_it_was_not_recorded() -> None:
    seconds = make_seconds(SECONDS, 1, draw_bursts(SECONDS, 1), change_by(queue_ns=20 * MS))
    disk = make_disk(seconds, has_queue=False)
    assert find_slowness(WitnessedRun(disks={disk.label: disk}), disk, "read") is None
