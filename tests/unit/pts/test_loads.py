"""The sequence of loads in SNIA's tests compared with the specification."""

from __future__ import annotations

import pytest

from opwatch.codec import decode, encode
from opwatch.errors import BadInput, UsageError
from opwatch.load.fio_arguments import LoadWindow
from opwatch.load.timed import TimedLoad, build_timed_arguments
from opwatch.pts.loads import MIN_LOAD_S, build_round_loads, build_stage_loads, find_unsupported_points
from opwatch.pts.order import NAMES, PtsOrder, find_parts
from opwatch.pts.planning import bound_test_bytes, make_part_levels, plan_part_steps
from opwatch.sweep.levels import LevelScale, OpLevel
from opwatch.sweep.plan import StepKind, SweepPace, SweepSpeed

_WINDOW = LoadWindow("/proc/1/fd/3", 64 << 20)


def test_names_match_the_six_tests() -> None:
    assert NAMES == ("wsat", "iops", "throughput", "latency", "hir", "xsr")
    assert [part.name for part in find_parts("throughput")] == ["throughput-128k", "throughput-1024k"]
    with pytest.raises(UsageError, match="unknown SNIA test 'ecw'; available: wsat, iops"):
        find_parts("ecw")


@pytest.mark.parametrize(("name", "seconds"), [("wsat", 60), ("iops", 56 * 60), ("latency", 9 * 60)])
def test_a_round_takes_a_minute_for_every_point(name: str, seconds: float) -> None:
    order = PtsOrder(name)
    assert sum(load.seconds for load in build_round_loads(order, order.parts[0], 512)) == seconds
    scaled = PtsOrder(name, scale=0.5)
    assert sum(load.seconds for load in build_round_loads(scaled, scaled.parts[0], 512)) == seconds / 2


def test_load_follows_its_class_and_test() -> None:
    by_class = {
        one: build_round_loads(PtsOrder("iops", one), PtsOrder("iops").parts[0], 512)[0]
        for one in ("enterprise", "client")
    }
    assert {one: (load.depth, load.threads) for one, load in by_class.items()} == {
        "enterprise": (32, 4),
        "client": (16, 2),
    }
    [single] = {
        (load.depth, load.threads)
        for load in build_round_loads(PtsOrder("latency"), PtsOrder("latency").parts[0], 512)
    }
    assert single == (1, 1)
    reads, writes = build_round_loads(PtsOrder("throughput"), PtsOrder("throughput").parts[0], 512)
    assert (reads.read_percent, writes.read_percent, writes.threads) == (100, 0, 1)


def test_larger_drive_blocks_leave_points_out() -> None:
    order = PtsOrder("iops")
    assert len(build_round_loads(order, order.parts[0], 4096)) == 49
    assert {point.block_bytes for point in find_unsupported_points(order.parts[0], 4096)} == {512}


def test_idle_recovery_has_bursts_pauses_and_a_recovery() -> None:
    order = PtsOrder("hir")
    loads = list(build_stage_loads(order, order.parts[0]))
    assert [(load.pause_s, load.seconds, load.times) for load in loads[::2]] == [
        (pause, 5, 360) for pause in (5, 10, 15, 25, 50)
    ]
    assert {(load.pause_s, load.seconds, load.times) for load in loads[1::2]} == {(0, 60, 30)}
    [conditioning] = build_round_loads(order, order.parts[0], 512)
    assert (conditioning.seconds, conditioning.block_bytes) == (60, 4096)
    short = next(build_stage_loads(PtsOrder("hir", scale=0.0001), order.parts[0]))
    assert (short.seconds, short.times) == (MIN_LOAD_S, 3)
    assert short.pause_s == pytest.approx(MIN_LOAD_S)


def test_cross_stimulus_recovery_has_three_phases_by_minute() -> None:
    order = PtsOrder("xsr")
    loads = list(build_stage_loads(order, order.parts[0]))
    assert [(load.block_bytes >> 10, load.is_random, load.seconds / 3600) for load in loads] == [
        (1024, False, 8),
        (8, True, 6),
        (1024, False, 8),
    ]
    assert {load.every_s for load in loads} == {60}
    assert not build_round_loads(order, order.parts[0], 512)


def test_order_is_read_back_and_invalid_orders_are_refused() -> None:
    order = PtsOrder("iops", "client", 0.01, 7, "me", {"device": "D", "firmware": None})
    assert decode(PtsOrder, encode(order), "it") == order
    for key, value in (("name", "foo"), ("class_name", "x"), ("scale", 0), ("scale", 2)):
        with pytest.raises(BadInput):
            decode(PtsOrder, encode(order) | {key: value}, "it")


def test_preconditioning_writes_twice_the_capacity_for_any_range() -> None:
    part = find_parts("iops")[0]
    for name, passes in (("enterprise", 2), ("client", 3)):
        order = PtsOrder("iops", name)
        assert order.count_fill_passes(part, 1 << 30) == passes
        assert passes * order.active_bytes(1 << 30) >= 2 << 30
    assert PtsOrder("wsat").count_fill_passes(find_parts("wsat")[0], 1 << 30) == 0


def test_a_plan_has_the_times_of_the_specification() -> None:
    order = PtsOrder("iops")
    levels = make_part_levels(order, OpLevel("all", 1 << 40, LevelScale(1 << 40)))
    steps = plan_part_steps(order, levels, SweepPace(), SweepSpeed(10**9, 10**8))
    [round_step] = [step for step in steps if step.kind is StepKind.ROUND]
    assert (round_step.seconds, round_step.at_least, round_step.at_most) == (56 * 60, 5, 25)
    # Half of all requests are writes: 0, 5, 35, 50, 65, 95 and 100 %.
    assert round_step.write_bytes == 28 * 60 * 10**8
    assert [step.at_most for step in steps if step.kind is StepKind.FILL] == [2]
    assert bound_test_bytes(find_parts("wsat")[0], 100) == 400
    assert bound_test_bytes(find_parts("iops")[0], 100) is None


def test_write_limit_stops_writes_but_not_reads() -> None:
    writes = list(build_timed_arguments(TimedLoad(0, 4096, True, 0.6, 32, 4), _WINDOW, 100 << 20, 7))
    assert writes.count("--rw=randwrite") == 4
    assert writes.count("--runtime=600ms") == 4
    assert writes.count(f"--io_size={25 << 20}") == 4
    assert {f"--randseed={seed}" for seed in (7, 8, 9, 10)} <= set(writes)
    assert "--time_based=1" not in writes
    mixed = list(build_timed_arguments(TimedLoad(50, 4096, True, 60, 32, 1), _WINDOW, 100 << 20, 7))
    assert {"--rw=randrw", "--rwmixread=50", f"--io_size={200 << 20}"} <= set(mixed)
    reads = list(build_timed_arguments(TimedLoad(100, 4096, False, 60, 32, 1), _WINDOW, 0, 7, 60.0))
    assert {"--rw=read", "--time_based=1", "--log_avg_msec=60000", "--write_lat_log=log"} <= set(reads)
    assert not any(word.startswith("--io_size") for word in reads)
