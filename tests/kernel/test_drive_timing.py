"""With real timing a drive is as slow as what it is made of. Bounds from above only: hosts may be slower."""

from __future__ import annotations

import time

import pytest

from opwatch.collectors.fio import run_fio
from tests.requirements import require_drive

from .drives import MIB, drive
from .load import reads, writes


@pytest.fixture(autouse=True)
def _drive() -> None:
    require_drive()


def test_writes_are_as_fast_as_the_dies_program() -> None:
    config = {"service.dies": 2, "service.buffer_bytes": MIB, "service.jitter_permille": 0}
    with drive(128 * MIB, "28%", config=config, words=("timing",)) as one:
        load = ("--rw=write", "--bs=64k", "--iodepth=8", "--ioengine=libaio", "--size=100m")
        result = run_fio(one.device, load)
        # Two planes of 16 KiB in 0.7 ms on each of two dies; the last MiB may still be in the buffer.
        floor_s = (100 - 1) * MIB / (2 * 2 * 16384) * 0.7e-3
        assert result.seconds > floor_s * 0.98


def test_reads_take_the_time_of_a_die() -> None:
    config = {"service.read_ns": 5_000_000}
    with drive(config=config, words=("timing",)) as one:
        writes(one.device, 40)
        begin = time.monotonic()
        reads(one.device, 40)
        assert time.monotonic() - begin > 40 * 5e-3
        # Nothing is there to be read from flash.
        begin = time.monotonic()
        reads(one.device, 40, start=8 * MIB)
        assert time.monotonic() - begin < 40 * 5e-3


def test_off_means_at_once() -> None:
    with drive(config={"service.read_ns": 50_000_000}) as one:
        writes(one.device, 40)
        begin = time.monotonic()
        reads(one.device, 40)
        assert time.monotonic() - begin < 40 * 50e-3
