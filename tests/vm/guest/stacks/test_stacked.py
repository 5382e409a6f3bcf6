"""dm, md, loop and zram devices can be created, carry I/O and are removed afterwards."""

from __future__ import annotations

import contextlib
import time

import pytest

from tests.vm.guest.support import stacked, sysfs
from tests.vm.guest.support.nullblk import NullBlk, create_null_blk
from tests.vm.guest.support.workload import Fio, discard_range, run_fio

# Tests of a recipe; the tests that use it fail with it.
TIERS = ()
MEMORY = NullBlk(size=96, memory_backed=1, discard=1)
SMALL = NullBlk(size=16, memory_backed=1, discard=1)
WRITES = Fio("write", 503)


def _measure_written(name: str) -> int:
    before = sysfs.read_stat(name)
    assert run_fio(name, WRITES).errors == 0
    return (sysfs.read_stat(name) - before).write_bytes


def test_linear_target_carries_io() -> None:
    with create_null_blk(MEMORY) as below, stacked.create_linear(below) as top:
        assert _measure_written(top.name) == 503 * 4096


@pytest.mark.parametrize("discards", [True, False])
def test_crypt_target_carries_io_and_discards_if_allowed(discards: bool) -> None:
    with create_null_blk(MEMORY) as below, stacked.create_crypt(below, discards) as top:
        assert _measure_written(top.name) == 503 * 4096
        assert (sysfs.read_number(top.name, "queue/discard_max_bytes") > 0) is discards


def test_delay_target_delays_writes() -> None:
    with create_null_blk(MEMORY) as below, stacked.create_delay(below, 20) as top:
        began = time.monotonic()
        run_fio(top.name, Fio("write", 31, iodepth=1, engine="psync"))
        # dm-delay counts in ticks, which come late on a busy machine, and then several at once.
        assert time.monotonic() - began > 31 * 0.020 / 2


def test_flakey_target_fails_writes() -> None:
    with create_null_blk(MEMORY) as below, stacked.create_flakey(below, up_s=0, down_s=60) as top:
        job = Fio("write", 17, iodepth=1, goes_on=True)
        assert run_fio(top.name, job).errors == 17


def test_thin_target_passes_discards_down() -> None:
    with (
        create_null_blk(MEMORY) as data,
        create_null_blk(SMALL) as metadata,
        stacked.create_thin(data, metadata, 64 << 11) as top,
    ):
        assert _measure_written(top.name) == 503 * 4096
        before = sysfs.read_stat(data)
        discard_range(top.name, 0, 1 << 20)
        assert (sysfs.read_stat(data) - before).discard_bytes == 1 << 20


@pytest.mark.parametrize(("level", "members"), [(0, 2), (1, 2), (10, 4)])
def test_md_array_carries_io(level: int, members: int) -> None:
    with contextlib.ExitStack() as stack:
        below = [stack.enter_context(create_null_blk(MEMORY)) for _ in range(members)]
        array = stack.enter_context(stacked.create_md(level, below))
        assert sysfs.read_attribute(array, "md/level") == f"raid{level}"
        before = [sysfs.read_stat(name) for name in below]
        assert _measure_written(array) == 503 * 4096
        now = [sysfs.read_stat(name) for name in below]
        written = sum((b - a).write_bytes for a, b in zip(before, now, strict=True))
        assert written >= 503 * 4096 * (1 if level == 0 else 2)


def test_loop_device_carries_io() -> None:
    with stacked.create_loop(64 << 20) as name:
        assert _measure_written(name) == 503 * 4096


def test_zram_device_carries_io() -> None:
    with stacked.create_zram(64 << 20) as name:
        assert _measure_written(name) == 503 * 4096
