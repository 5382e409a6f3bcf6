"""Causes that a layer's time shows: named with the settings and idle CPUs that they need, else unknown."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from opwatch.owners.cells import OwnerKey, OwnerKind
from opwatch.samples.sample import GroupSetting, QueueSettings
from opwatch.why.candidate import CauseName
from opwatch.why.decision import CauseVerdict, decide_causes
from opwatch.why.drives import DriveWitness
from opwatch.why.slowness import find_slowness
from opwatch.why.waits import explain_unmeasured_limit
from opwatch.why.witnessed import OpSeries, OwnerSeries, SlowSpan, WitnessedDisk, WitnessedRun
from tests.unit.why.witnessed_runs import (
    MS,
    US,
    S,
    Second,
    collect_names,
    draw_bursts,
    list_names,
    make_disk,
    make_drive,
    make_seconds,
    make_slowness,
)

SECONDS = 120
SETTINGS = QueueSettings("mq-deadline", 64, 75_000)


def slow_down(cpu: float = 0.1) -> Callable[[Second], None]:
    """Return a change to slow requests, with this share of busy CPUs."""

    def change(second: Second) -> None:
        second.read_ns, second.cpu = 2 * MS, cpu

    return change


def report_drive_times(seconds: list[Second]) -> DriveWitness:
    """Return a drive that reports 80 us per read, however long the host waits."""
    shares = tuple(min(80 * US / one.read_ns, 1.0) for one in seconds)
    return replace(make_drive(seconds), drive_shares={"read": shares})


def decide_path(seed: int, cpu: float, places: Iterable[int] | None = None) -> CauseVerdict:
    chosen = draw_bursts(SECONDS, seed) if places is None else places
    seconds = make_seconds(SECONDS, seed, chosen, slow_down(cpu))
    return decide_causes(make_slowness(make_disk(seconds), "read", report_drive_times(seconds)))


def test_path_is_named_while_the_cpus_are_as_busy_as_otherwise() -> None:
    assert collect_names(decide_path(3, 0.1)) == {CauseName.PATH}


def test_path_is_named_on_saturated_cpus_if_all_requests_were_late() -> None:
    seconds = make_seconds(SECONDS, 3, draw_bursts(SECONDS, 3), slow_down(0.99))
    for one in seconds:
        one.cpu = 0.99
    verdict = decide_causes(make_slowness(make_disk(seconds), "read", report_drive_times(seconds)))
    assert collect_names(verdict) == {CauseName.PATH}


def test_busy_cpus_are_named_instead_of_the_path() -> None:
    assert collect_names(decide_path(3, 0.8)) == {CauseName.HOST_CPU}


def test_path_is_unknown_if_only_some_of_the_requests_were_late() -> None:
    seconds = make_seconds(SECONDS, 3, draw_bursts(SECONDS, 3), slow_down())
    disk = make_disk(seconds)
    disk.ops["read"].p10_ns = array("d", [50 * US] * SECONDS)
    assert not decide_causes(make_slowness(disk, "read", report_drive_times(seconds))).causes


def test_flushes_are_named_instead_of_the_path_on_which_requests_wait_for_them() -> None:
    def change(second: Second) -> None:
        second.read_ns, second.flushes = 2 * MS, 100

    seconds = make_seconds(SECONDS, 3, draw_bursts(SECONDS, 3), change)
    verdict = decide_causes(make_slowness(make_disk(seconds), "read", report_drive_times(seconds)))
    assert collect_names(verdict) == {CauseName.FLUSHES}


def flush_by_turns() -> tuple[list[Second], DriveWitness]:
    """Return flushes that slow down the drive and the path by turns."""

    def change(second: Second) -> None:
        second.read_ns, second.flushes = 2 * MS, 100

    places = draw_bursts(180, 3, count=9)
    starts = [at for at in places if at - 1 not in places]
    in_path = {start + more for start in starts[::2] for more in range(4)}
    seconds = make_seconds(180, 3, places, change)
    shares = tuple(0.05 if at in in_path else 0.95 for at in range(180))
    return seconds, replace(make_drive(seconds), drive_shares={"read": shares})


def test_slow_intervals_of_another_layer_do_not_count_against_a_witness() -> None:
    """The drive and the path grow by turns, because their shares are those of a whole poll."""
    seconds, drive = flush_by_turns()
    verdict = decide_causes(make_slowness(make_disk(seconds), "read", drive))
    assert collect_names(verdict) == {CauseName.FLUSHES}
    assert verdict.unknown < 0.2


def test_cause_in_several_layers_is_named_once() -> None:
    seconds, drive = flush_by_turns()
    slow = make_slowness(make_disk(seconds), "read", drive)
    verdict = decide_causes(slow)
    assert list_names(verdict) == [CauseName.FLUSHES]
    assert verdict.causes[0].share + verdict.unknown == pytest.approx(1, abs=1e-9)
    assert len({slow.find_layer(number) for number in range(len(slow.episodes))}) == 2


def test_path_is_unknown_in_a_few_slow_seconds() -> None:
    verdict = decide_path(3, 0.1, range(50, 54))
    assert not verdict.causes
    assert any("slow intervals are in episodes" in need for need in verdict.needs)


def test_runs_of_a_busy_host_without_a_fault_name_no_cause() -> None:
    named = 0
    for seed in range(100):
        chance = random.Random(seed)
        seconds = make_seconds(SECONDS, seed)
        for one in seconds:
            one.cpu = chance.uniform(0.6, 1.0)
        for at in chance.sample(range(SECONDS), chance.randrange(1, 9)):
            seconds[at].read_ns *= chance.uniform(1.2, 3.0)
            seconds[at].queue_ns *= chance.uniform(1.0, 20.0)
            seconds[at].cpu = min(seconds[at].cpu + chance.uniform(0, 0.3), 1.0)
        disk = make_disk(seconds)
        run = WitnessedRun(disks={disk.label: disk})
        for op in ("read", "write"):
            slow = find_slowness(run, disk, op, report_drive_times(seconds) if op == "read" else None)
            named += bool(slow and decide_causes(slow).causes)
    assert named <= 2


def make_waiting(
    field: str, settings: QueueSettings | None, depth: float = 0.2, cpu: float = 0.1
) -> WitnessedDisk:
    """Return a disk whose requests wait in a layer during bursts."""

    def change(second: Second) -> None:
        setattr(second, field, 20 * MS)
        second.depth, second.cpu = depth, cpu

    seconds = make_seconds(SECONDS, 5, draw_bursts(SECONDS, 5), change)
    disk = make_disk(seconds)
    disk.settings = [(0, settings)] if settings else []
    return disk


@pytest.mark.parametrize(
    ("settings", "cpu", "names"),
    [
        (SETTINGS, 0.1, {CauseName.SCHEDULER}),
        (None, 0.1, set()),
        (replace(SETTINGS, scheduler="none"), 0.1, set()),
    ],
)
def test_scheduler_is_named_if_the_disk_has_one(
    settings: QueueSettings | None, cpu: float, names: set[CauseName]
) -> None:
    disk = make_waiting("queue_ns", settings, cpu=cpu)
    assert collect_names(decide_causes(make_slowness(disk, "read"))) == names


def test_scheduler_is_not_named_while_the_cpus_are_busier() -> None:
    disk = make_waiting("queue_ns", SETTINGS, cpu=0.9)
    assert CauseName.SCHEDULER not in collect_names(decide_causes(make_slowness(disk, "read")))


@pytest.mark.parametrize(
    ("settings", "depth", "names"),
    [(SETTINGS, 64, {CauseName.TAGS}), (SETTINGS, 20, set()), (None, 64, set())],
)
def test_tags_are_named_if_all_of_them_were_used(
    settings: QueueSettings | None, depth: float, names: set[CauseName]
) -> None:
    disk = make_waiting("admission_ns", settings, depth)
    assert collect_names(decide_causes(make_slowness(disk, "read"))) == names


@pytest.mark.parametrize(
    ("settings", "names"),
    [(SETTINGS, {CauseName.WRITE_BACK_THROTTLING}), (replace(SETTINGS, wbt_lat_us=0), set()), (None, set())],
)
def test_write_back_throttling_is_named_if_it_is_on(
    settings: QueueSettings | None, names: set[CauseName]
) -> None:
    disk = make_waiting("admission_ns", settings)
    for at in range(len(disk)):
        disk.ops["read"].admission_ns[at] = 1000.0
    assert collect_names(decide_causes(make_slowness(disk, "write"))) == names


LIMIT = GroupSetting("/db", "io.max", "riops=50")
WEIGHT, TARGET = GroupSetting("/db", "io.weight", "10"), GroupSetting("/web", "io.latency", "target=5000")


@pytest.mark.parametrize(
    ("groups", "names"),
    [((LIMIT,), {CauseName.IO_MAX}), ((WEIGHT,), set()), ((), set()), (None, set())],
)
def test_io_max_is_named_if_a_group_has_a_limit(
    groups: tuple[GroupSetting, ...] | None, names: set[CauseName]
) -> None:
    disk = make_waiting("throttle_ns", replace(SETTINGS, groups=groups))
    verdict = decide_causes(make_slowness(disk, "read"))
    assert collect_names(verdict) == names
    assert bool(verdict.needs) is not bool(names)


def test_limit_of_a_group_without_requests_is_not_in_the_evidence() -> None:
    limits = tuple(GroupSetting(group, "io.max", "riops=50") for group in ("/dbx", "/db", "/idle"))
    disk = make_waiting("throttle_ns", replace(SETTINGS, groups=limits))
    disk.owners = {OwnerKey(OwnerKind.CGROUP, 1): OwnerSeries.make_idle("/db/main", SECONDS)}
    [cause] = decide_causes(make_slowness(disk, "read")).causes
    evidence = cause.found[0].candidate.evidence
    assert "/db has io.max" in evidence
    assert not any(group in evidence for group in ("/dbx", "/idle"))


def add_waiting_owner(disk: WitnessedDisk, name: str, share: float, field: str) -> None:
    owner = OwnerSeries.make_idle(name, SECONDS)
    layer = field.removesuffix("_ns")
    for op, series in disk.ops.items():
        owner.waits[op, layer] = array("d", (share * value for value in getattr(series, field)))
    disk.owners = {**(disk.owners or {}), OwnerKey(OwnerKind.CGROUP, len(disk.owners or {}) + 1): owner}


def test_io_max_is_that_of_the_groups_whose_requests_waited() -> None:
    limits = tuple(GroupSetting(group, "io.max", "riops=50") for group in ("/busy", "/db", "/web"))
    disk = make_waiting("throttle_ns", replace(SETTINGS, groups=limits))
    for name, share in (("/busy/main", 0.0), ("/db/main", 0.75), ("/web", 0.2)):
        add_waiting_owner(disk, name, share, "throttle_ns")
    [cause] = decide_causes(make_slowness(disk, "read")).causes
    found = cause.found[0].candidate
    assert [name for name, _ in found.waited] == ["/db/main", "/web"]
    assert [share for _, share in found.waited] == pytest.approx([0.75, 0.2])
    assert "/db/main 75 %" in found.evidence
    assert "/busy has" not in found.evidence


def test_wait_for_admission_names_the_owners_that_waited() -> None:
    disk = make_waiting("admission_ns", replace(SETTINGS, io_cost="enable=1 ctrl=auto", groups=(WEIGHT,)))
    for name, share in (("/db", 0.9), ("/web", 0.02)):
        add_waiting_owner(disk, name, share, "admission_ns")
    [cause] = decide_causes(make_slowness(disk, "read")).causes
    assert [name for name, _ in cause.found[0].candidate.waited] == ["/db"]


def test_limit_that_was_removed_before_the_waits_is_not_named() -> None:
    disk = make_waiting("throttle_ns", replace(SETTINGS, groups=(LIMIT,)))
    disk.settings.append((min(draw_bursts(SECONDS, 5)) * S, replace(SETTINGS, groups=())))
    assert not collect_names(decide_causes(make_slowness(disk, "read")))


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        (replace(SETTINGS, io_cost="enable=1 ctrl=auto", groups=(WEIGHT,)), {CauseName.IO_COST}),
        (replace(SETTINGS, groups=(TARGET,)), {CauseName.IO_LATENCY}),
        (replace(SETTINGS, groups=(WEIGHT,)), set()),
        (SETTINGS, set()),
    ],
)
def test_waits_before_allocation_are_named_by_the_settings_of_groups(
    settings: QueueSettings, names: set[CauseName]
) -> None:
    verdict = decide_causes(make_slowness(make_waiting("admission_ns", settings), "read"))
    assert collect_names(verdict) == names
    assert any("io.latency" in need for need in verdict.needs) is (settings.groups is None)


def test_iocost_is_not_named_while_the_cpus_are_busier() -> None:
    settings = replace(SETTINGS, io_cost="enable=1 ctrl=auto", groups=())
    disk = make_waiting("admission_ns", settings, cpu=0.9)
    assert not collect_names(decide_causes(make_slowness(disk, "read")))


def test_tags_and_iocost_cannot_be_told_apart_while_all_tags_are_used() -> None:
    settings = replace(SETTINGS, io_cost="enable=1 ctrl=auto", groups=())
    verdict = decide_causes(make_slowness(make_waiting("admission_ns", settings, depth=64), "read"))
    assert [len(cause.found) for cause in verdict.causes] == [2]
    assert collect_names(verdict) == {CauseName.IO_COST, CauseName.TAGS}


def test_limit_whose_waits_were_not_measured_is_reported() -> None:
    seconds = make_seconds(SECONDS, 1)
    disk = make_disk(seconds, has_queue=False)
    disk.settings = [(0, replace(SETTINGS, groups=(LIMIT,)))]
    disk.ops["flush"] = OpSeries.make_idle(SECONDS)
    assert "riops=50" in (explain_unmeasured_limit(disk) or "")
    disk.lacks = ("throttle: the kernel refuses it",)
    assert "refuses" in (explain_unmeasured_limit(disk) or "")
    disk.settings = [(0, SETTINGS)]
    assert explain_unmeasured_limit(disk) is None
    measured = make_disk(make_seconds(SECONDS, 1))
    assert explain_unmeasured_limit(measured) is None


def make_polled(*, is_inside: bool) -> CauseVerdict:
    """Return the answer for polls each 10 s, and a slow second with each; the requests are slow in the poll,
    or half a second after it."""
    polled = range(5, SECONDS, 10)
    seconds = make_seconds(SECONDS, 2, polled, slow_down())
    disk = make_disk(seconds)
    after_ns = 5 * MS if is_inside else 500 * MS
    begins = [round(at * S + after_ns + 100 * US * number) for at in polled for number in range(10)]
    disk.slow_requests = [SlowSpan("read", begin, begin + round(2 * MS)) for begin in begins]
    polls = tuple((at * S, at * S + round(30 * MS)) for at in polled)
    drive = replace(make_drive(seconds, polled=polled), polls_ns=polls)
    return decide_causes(make_slowness(disk, "read", drive))


def test_regular_polls_are_named_if_the_slow_requests_were_in_flight_during_them() -> None:
    assert collect_names(make_polled(is_inside=True)) == {CauseName.POLLING}


def test_regular_polls_are_not_named_if_the_slow_requests_came_later() -> None:
    assert CauseName.POLLING not in collect_names(make_polled(is_inside=False))


def decide_kernel(usual: float, during: float) -> CauseVerdict:
    """Return the answer for writes of the kernel that are slow for 3 s each 30 s, with these rates."""

    def change(second: Second) -> None:
        second.writes, second.write_ns, second.kernel = during, 1 * MS, during

    places = [at + more for at in range(4, SECONDS, 30) for more in range(3)]
    seconds = make_seconds(SECONDS, 2, places, change)
    for at, one in enumerate(seconds):
        one.kernel = one.kernel if at in places else usual
    disk = make_disk(seconds)
    assert disk.owners
    for owner in disk.owners.values():
        owner.device_ns = array("d", (one.kernel * one.write_ns for one in seconds))
    return decide_causes(make_slowness(disk, "write"))


def test_regular_work_of_the_kernel_is_named_if_its_own_requests_are_the_slow_ones() -> None:
    assert collect_names(decide_kernel(10, 3000)) == {CauseName.KERNEL_WORK}


def test_work_of_the_kernel_is_not_named_if_it_is_the_same_as_otherwise() -> None:
    assert CauseName.KERNEL_WORK not in collect_names(decide_kernel(1000, 1000))


def change_settings(disk: WitnessedDisk, seed: int, settings: QueueSettings) -> None:
    """Give a disk other settings during the bursts."""
    places = set(draw_bursts(SECONDS, seed))
    for at in range(1, SECONDS):
        if (at in places) != (at - 1 in places):
            disk.settings.append(((at + 1) * S, settings if at in places else SETTINGS))


def test_fewer_tags_during_the_slow_seconds_are_named() -> None:
    disk = make_waiting("admission_ns", SETTINGS)
    change_settings(disk, 5, replace(SETTINGS, nr_requests=4))
    assert collect_names(decide_causes(make_slowness(disk, "read"))) == {CauseName.TAGS}


def test_fewer_tags_at_other_times_are_not_named() -> None:
    disk = make_waiting("admission_ns", SETTINGS)
    change_settings(disk, 77, replace(SETTINGS, nr_requests=4))
    assert not collect_names(decide_causes(make_slowness(disk, "read")))


def test_witnesses_of_the_device_are_no_candidates_while_it_is_as_fast_as_otherwise() -> None:
    def change(second: Second) -> None:
        second.queue_ns, second.flushes, second.writes = 20 * MS, 500, 1500

    disk = make_disk(make_seconds(SECONDS, 5, draw_bursts(SECONDS, 5), change))
    assert collect_names(decide_causes(make_slowness(disk, "read"))) == {CauseName.SCHEDULER}


def test_another_scheduler_during_the_slow_seconds_is_named() -> None:
    disk = make_waiting("queue_ns", SETTINGS)
    change_settings(disk, 5, replace(SETTINGS, scheduler="bfq"))
    assert collect_names(decide_causes(make_slowness(disk, "read"))) == {CauseName.SCHEDULER}


def make_queued_load(depth: float) -> WitnessedDisk:
    """Return a disk with more reads in bursts, which wait in the queue, and for a slower device."""

    def change(second: Second) -> None:
        second.reads, second.depth = 1.5 * second.reads, depth
        second.queue_ns, second.read_ns = 20 * MS, 5 * MS

    disk = make_disk(make_seconds(SECONDS, 5, draw_bursts(SECONDS, 5), change))
    disk.settings = [(0, SETTINGS)]
    return disk


def test_another_scheduler_is_named_although_the_device_was_slower_too() -> None:
    disk = make_queued_load(depth=1.5)
    change_settings(disk, 5, replace(SETTINGS, scheduler="bfq"))
    assert collect_names(decide_causes(make_slowness(disk, "read"))) == {CauseName.SCHEDULER}


def test_another_scheduler_at_other_times_is_not_named() -> None:
    disk = make_queued_load(depth=1.5)
    change_settings(disk, 77, replace(SETTINGS, scheduler="bfq"))
    assert not collect_names(decide_causes(make_slowness(disk, "read")))


@pytest.mark.parametrize(("depth", "names"), [(1.5, set()), (30.0, {CauseName.SATURATION})])
def test_load_that_waits_in_the_queue_is_saturation_only_if_the_device_is_full(
    depth: float, names: set[CauseName]
) -> None:
    assert collect_names(decide_causes(make_slowness(make_queued_load(depth), "read"))) == names
