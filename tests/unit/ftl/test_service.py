"""Simulated time: cliff, steps, queue depth, and the profiles' values."""

from __future__ import annotations

import errno
import itertools
import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.errors import UsageError
from opwatch.ftl import models, profiles
from opwatch.ftl.drive import Drive, ServiceOp, Workload, find_latencies_ns, pack_slots, unpack_slots

GIB = 1 << 30


def make_small_profile(name: str, **timing: int) -> profiles.Profile:
    profile = profiles.load_profile(name).scale_to(GIB)
    return replace(profile, timing=dict(profile.timing) | timing)


def compute_mean(values: list[float]) -> float:
    return sum(values) / len(values)


def test_slots_cover_every_latency() -> None:
    run = make_small_profile("ideal").create_drive().run_timed(Workload(rng=1), 0.2, interval_ns=10_000_000)
    assert sum(run.latency_slots) >= sum(interval.ios for interval in run.intervals) > 0
    p50, p999 = run.latency_ns(0.5), run.latency_ns(0.999)
    assert p50 is not None
    assert p999 is not None
    assert 0 < p50 <= p999


def test_percentile_is_the_end_of_the_slot_in_which_its_share_is_reached() -> None:
    # Slot 5 has latencies of 5 ns, and slot 64 those from 64 to 65 ns.
    slots = [0] * 5 + [90] + [0] * 58 + [9, 0, 1] + [0] * 10
    assert find_latencies_ns(slots, (0, 0.9, 0.91, 0.99, 0.991, 1)) == [5, 5, 65, 65, 69, 69]
    assert find_latencies_ns([0] * 100, (0, 0.5, 1)) == [None] * 3


def test_sum_of_packed_slots_has_the_sum_of_each_slot() -> None:
    layout = struct.Struct("=1920Q")
    one, other = [(7 * slot + 1) << 40 for slot in range(1920)], list(range(1920))
    summed = sum(pack_slots(layout.pack(*slots)) for slots in (one, other, other))
    assert unpack_slots(summed) == tuple(a + 2 * b for a, b in zip(one, other, strict=True))
    assert unpack_slots(0) == (0,) * 1920


def test_write_saturation_has_a_plateau_a_cliff_and_a_level() -> None:
    profile = make_small_profile("intel-520-240", throttle_after_ns=0)
    drive = profile.create_drive()
    run = drive.run_timed(Workload(rng=1), 60.0, interval_ns=100_000_000)
    iops = list(run.iter_iops())
    # The first drop: all of the physical bytes are written once.
    written = list(itertools.accumulate(interval.host_write_bytes for interval in run.intervals))
    physical = drive.read_geometry().physical_bytes
    cliff = next(
        i
        for i, interval in enumerate(run.intervals)
        if interval.nand_write_bytes > 1.01 * interval.host_write_bytes
    )
    assert written[cliff - 1] <= physical <= written[cliff + 1]
    assert compute_mean(iops[-100:]) < 0.5 * compute_mean(iops[: cliff // 2])


def test_throttling_is_a_second_step() -> None:
    profile = make_small_profile("intel-520-240", throttle_after_ns=40 * 10**9, throttle_permille=2000)
    drive = profile.create_drive()
    drive.fill_drive()
    iops = list(drive.run_timed(Workload(rng=1), 80.0).iter_iops())
    assert compute_mean(iops[45:80]) == pytest.approx(0.5 * compute_mean(iops[20:39]), rel=0.15)


def test_more_spare_area_gives_the_modelled_iops() -> None:
    profile = make_small_profile("intel-520-240", throttle_after_ns=0)
    alphas, rates = [], []
    for share in (1.0, 0.85):
        user = int(profile.drive["user_bytes"] * share) // 4096 * 4096
        drive = profile.with_user_bytes(user).create_drive()
        drive.fill_drive()
        run = drive.run_timed(Workload(rng=1), 120.0)
        alphas.append(profile.drive["physical_bytes"] / user)
        rates.append(compute_mean(list(run.iter_iops())[60:]))
    predicted = models.predict_fifo(alphas[0]) / models.predict_fifo(alphas[1])
    assert rates[1] / rates[0] == pytest.approx(predicted, rel=0.15)


def test_deeper_queues_do_more_reads() -> None:
    drive = make_small_profile("wd-blue-1tb").create_drive()
    drive.fill_drive()
    rates = [
        compute_mean(
            list(drive.run_timed(Workload(rng=1), 1.0, queue_depth=depth, read_ppm=10**6).iter_iops())
        )
        for depth in (1, 4, 32)
    ]
    assert rates[0] < rates[1] < rates[2]


def test_full_cache_causes_a_cliff() -> None:
    drive = make_small_profile("qlc-client-1000").create_drive()
    load = Workload(sequential=True)
    run = drive.run_timed(load, 1.5, io_bytes=131072, interval_ns=50_000_000)
    speed = list(run.iter_iops())
    assert compute_mean(speed[-5:]) < 0.5 * speed[0]


def test_equal_seeds_give_equal_runs() -> None:
    runs = [
        make_small_profile("wd-blue-1tb").create_drive().run_timed(Workload(rng=4), 0.5) for _ in range(2)
    ]
    assert runs[0] == runs[1]


@pytest.mark.parametrize("name", profiles.list_profiles())
def test_every_profile_makes_a_drive(name: str) -> None:
    profile = profiles.load_profile(name)
    assert profile.description
    assert profile.source
    drive = profile.create_drive()
    geometry = drive.read_geometry()
    assert 0.05 < geometry.spare_of_user_ratio < 0.5
    assert isinstance(profile.scale_to(GIB).create_drive(), Drive)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[drive", "mine: "),
        ("x = 1\n[drive]", r"\bx\b"),
        ("[timing]", "drive"),
        ('[drive]\npolicy = "best"', "greedy"),
        ("[drive]\nuser_bytes = 1.5", "user_bytes"),
        ("[drive]\nuser_bytes = 4096\n[timing]\ndies = 0", r"timing\.dies .*\b0"),
        ("[drive]\nuser_bytes = 4096\n[timing]\nhost_bytes_per_s = 0", "host_bytes_per_s"),
    ],
)
def test_invalid_profile_error_names_the_key(text: str, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        profiles.parse_profile("mine", text)


def test_a_timing_that_no_drive_can_have_is_refused() -> None:
    drive = "[drive]\nuser_bytes = 17179869184\nphysical_bytes = 18382458880\n[timing]\n"
    for timing in ("jitter_permille = 1001", f"buffer_bytes = {1 << 62}"):
        with pytest.raises(UsageError, match=r"mine: .*timing"):
            profiles.parse_profile("mine", drive + timing).create_drive()


def test_an_unknown_profile_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="ideal"):
        profiles.load_profile("no-such")
    with pytest.raises(UsageError, match=f"{tmp_path}/none.toml: {os.strerror(errno.ENOENT)}"):
        profiles.load_profile(str(tmp_path / "none.toml"))
    own = tmp_path / "own.toml"
    own.write_text("[drive]\nuser_bytes = 4096\n")
    assert profiles.load_profile(str(own)).drive == {"user_bytes": 4096}


@pytest.mark.parametrize(
    ("op", "timing", "longer_ns"),
    [
        (ServiceOp.TRIM, {"trim_ns": 0}, 0),
        (ServiceOp.TRIM, {"trim_ns": 7_000_000}, 7_000_000),
        (ServiceOp.FLUSH, {"flush_ns": 7_000_000}, 0),
        (ServiceOp.FLUSH, {"flush_ns": 7_000_000, "flush_stops": 1}, 7_000_000),
    ],
)
def test_commands_wait_for_trims_and_for_flushes_that_stop_the_drive(
    op: ServiceOp, timing: dict[str, int], longer_ns: int
) -> None:
    drive = make_small_profile("ideal", **timing).create_drive()
    alone_ns = drive.submit(ServiceOp.READ, 0, 4096, 0)
    at_ns = 10**9
    drive.submit(op, GIB // 2, 4096, at_ns)
    took_ns = drive.submit(ServiceOp.READ, 0, 4096, at_ns) - at_ns
    assert took_ns - alone_ns == pytest.approx(longer_ns, abs=100_000)
