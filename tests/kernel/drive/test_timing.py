"""With real timing, a drive is as slow as its simulated parts. Only lower time bounds are tested, because a
host may be slower."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from opwatch.tools.acting.fio.fio import run_fio
from tests.kernel.support.drives import MIB, create_drive
from tests.kernel.support.load import reads, writes
from tests.kernel.support.watching import run_opwatch
from tests.requirements import require_drive


@pytest.fixture(autouse=True)
def _drive() -> None:
    require_drive()


def test_writes_are_as_fast_as_the_dies_program() -> None:
    config = {"service.dies": 2, "service.buffer_bytes": MIB, "service.jitter_permille": 0}
    with create_drive(128 * MIB, "28%", config=config, words=("timing",)) as one:
        load = ("--rw=write", "--bs=64k", "--iodepth=8", "--ioengine=libaio", "--size=100m")
        result = run_fio(one.device, load)
        # Two planes of 16 KiB in 0.7 ms on each of two dies; the last MiB may still be in the buffer.
        floor_s = (100 - 1) * MIB / (2 * 2 * 16384) * 0.7e-3
        assert result.seconds > floor_s * 0.98


def test_reads_take_the_die_read_time() -> None:
    config = {"service.read_ns": 50_000_000}
    with create_drive(config=config, words=("timing",)) as one:
        writes(one.device, 10)
        begin = time.monotonic()
        reads(one.device, 10)
        assert time.monotonic() - begin > 10 * 50e-3
        # This range was never written, so nothing is read from flash.
        begin = time.monotonic()
        reads(one.device, 10, start=8 * MIB)
        assert time.monotonic() - begin < 10 * 50e-3


def test_reads_are_immediate_without_timing() -> None:
    with create_drive(config={"service.read_ns": 50_000_000}) as one:
        writes(one.device, 40)
        begin = time.monotonic()
        reads(one.device, 40)
        assert time.monotonic() - begin < 40 * 50e-3


def test_info_reports_late_answers_when_the_host_is_the_limit() -> None:
    quick = {"service.latency_ns": 100, "service.read_ns": 1, "service.command_ns": 1}
    with create_drive(config=quick, words=("timing",)) as one:
        # No host answers within 100 ns. The range was never written, so nothing is read from flash.
        reads(one.device, 40)
        truth = one.read_truth()
        assert truth["timing"] == 1
        assert truth["answers_timed"] >= 40
        assert truth["answers_late"] > truth["answers_timed"] // 2
        assert truth["answers_late_ns"] >= truth["answers_late_max_ns"] > 0
        text = run_opwatch("drive", "info", one.name).stdout
        assert f"% of {one.read_truth()['answers_timed']} answers" in text
        assert "host was the limit" in text
        assert json.loads(run_opwatch("drive", "info", one.name, "--json").stdout)["answers_late"] > 0


def test_answers_of_a_slow_drive_are_not_all_late() -> None:
    with create_drive(config={"service.latency_ns": 100_000_000}, words=("timing",)) as one:
        reads(one.device, 20)
        truth = one.read_truth()
        assert truth["answers_due_ns"] >= 20 * 100_000_000
        # An answer is late after ten milliseconds, which a busy host may exceed often, but not always.
        assert truth["answers_late"] < truth["answers_timed"]


def test_no_answer_is_late_without_timing() -> None:
    with create_drive() as one:
        reads(one.device, 10)
        truth = one.read_truth()
        assert (truth["timing"], truth["answers_timed"], truth["answers_late"]) == (0, 0, 0)
        assert "timing" not in run_opwatch("drive", "info", one.name).stdout


@pytest.mark.parametrize(("words", "niceness"), [(("timing",), -10), ((), 0)], ids=["real", "off"])
def test_server_threads_have_higher_priority_with_timing(words: tuple[str, ...], niceness: int) -> None:
    with create_drive(words=words) as one:
        record = one.place.read_record()
        assert record
        threads = [os.getpriority(os.PRIO_PROCESS, int(path.name)) for path in _list_threads(record.pid)]
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert set(threads) == {niceness or own}


def _list_threads(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/task").iterdir())
