"""Each fault has its effect, and no other."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from opwatch.counters.decode import fdp, ocp, smart_log
from opwatch.errors import OpwatchError
from tests.kernel.support.drives import MIB, Drive, create_drive, run_plain_fio
from tests.kernel.support.load import BLOCK, discards, flushes, reads, writes
from tests.kernel.support.watching import run_opwatch
from tests.requirements import require_drive


@pytest.fixture(autouse=True)
def _drive() -> None:
    require_drive()


def read_smart(one: Drive) -> smart_log.SmartLog:
    return smart_log.decode_smart_log(one.pages.get_log(smart_log.LID, smart_log.LENGTH))


def require_known(value: int | None) -> int:
    assert value is not None
    return value


def read_nand_units(one: Drive) -> int:
    page = ocp.decode_c0(one.pages.get_log(ocp.LID, ocp.LENGTH))
    assert isinstance(page, ocp.CloudLog)
    return require_known(page.media_written)


def test_trim_ignore_fault_frees_no_blocks() -> None:
    with create_drive(faults=("trim=ignore",)) as one:
        writes(one.device, 8, MIB, step=MIB)
        discards(one.device, 8, MIB)
        truth = one.read_truth()
        assert (truth["trim_bytes"], truth["trim_ignored_bytes"]) == (8 * MIB, 8 * MIB)
        assert truth["valid_bytes"] == 8 * MIB


def test_lazy_trims_free_blocks_when_the_drive_is_idle() -> None:
    with create_drive(faults=("trim=lazy",)) as one:
        writes(one.device, 8, MIB, step=MIB)
        discards(one.device, 8, MIB)
        truth = one.read_truth()
        assert (truth["pending_bytes"], truth["valid_bytes"]) == (8 * MIB, 8 * MIB)
        assert not any(Path(one.device).read_bytes()[: 8 * MIB])
        end = time.monotonic() + 5
        while one.read_truth()["valid_bytes"] and time.monotonic() < end:
            time.sleep(0.1)
        assert one.read_truth()["valid_bytes"] == 0


def test_counters_refresh_at_the_given_interval() -> None:
    with create_drive(faults=("refresh=2",)) as one:
        writes(one.device, 8, MIB, step=MIB)
        assert one.read_truth()["host_write_bytes"] == 8 * MIB
        shown = [read_nand_units(one)]
        end = time.monotonic() + 4
        while shown[-1] == 0 and time.monotonic() < end:
            time.sleep(0.05)
            shown.append(read_nand_units(one))
        assert set(shown) == {0, 8 * MIB}
        one.inject_faults("refresh=0")
        writes(one.device, 3)
        assert read_nand_units(one) == 8 * MIB + 3 * BLOCK


def test_log_fail_fault_fails_only_that_page() -> None:
    with create_drive(faults=("log-fail=02",)) as one:
        with pytest.raises(OpwatchError, match=f"log-02: {os.strerror(errno.EIO)}"):
            one.pages.get_log(0x02, 512)
        assert read_nand_units(one) == 0
        one.inject_faults("clear")
        assert read_smart(one).write_commands == 0


def test_log_slow_fault_delays_only_that_page() -> None:
    with create_drive() as one:
        one.inject_faults("log-slow=02:700ms")
        begin = time.monotonic()
        writes(one.device, 5)
        assert read_nand_units(one) == 5 * BLOCK
        between = time.monotonic()
        assert read_smart(one).write_commands == 5
        end = time.monotonic()
        assert between - begin < 0.6
        assert 0.7 <= end - between < 1.5


def test_data_units_wrap_at_2_to_the_32_sectors() -> None:
    with create_drive(faults=("wrap32=5M",)) as one:
        edge = -(-(2**41 - 5 * MIB) // 512_000)
        assert read_smart(one).data_units_written == edge
        writes(one.device, 8, MIB, step=MIB)
        assert read_smart(one).data_units_written == -(-3 * MIB // 512_000)
        # The other pages continue to count.
        assert fdp.decode_fdp_statistics(one.pages.get_log(0x22, 64)).host_bytes_written == 8 * MIB


def test_counters_roll_back_at_a_power_loss() -> None:
    with create_drive() as one:
        writes(one.device, 4, MIB, step=MIB)
        one.inject_faults("rollback=600")
        writes(one.device, 7, MIB, step=MIB)
        before, nand_before = read_smart(one), read_nand_units(one)
        assert before.data_units_written == -(-11 * MIB // 512_000)
        one.inject_faults("power-loss")
        after = read_smart(one)
        assert require_known(after.write_commands) < require_known(before.write_commands)
        assert after.data_units_written == -(-4 * MIB // 512_000)
        assert read_nand_units(one) == nand_before - 7 * MIB
        assert after.unsafe_shutdowns == require_known(before.unsafe_shutdowns) + 1
        assert one.read_truth()["host_write_bytes"] == 11 * MIB


def test_power_loss_drops_unflushed_writes() -> None:
    with create_drive(config={"buffer_bytes": 4 * MIB}) as one:
        Path(one.device).write_bytes(b"a" * MIB)
        flushes(one.device, 1)
        writes(one.device, 16, BLOCK, start=8 * MIB)
        one.inject_faults("power-loss")
        truth = one.read_truth()
        assert truth["lost_bytes"] == 16 * BLOCK
        assert truth["valid_bytes"] == MIB
        assert Path(one.device).read_bytes()[:MIB] == b"a" * MIB


def test_die_failure_reduces_capacity_and_keeps_data() -> None:
    with create_drive(op="28%") as one:
        writes(one.device, 32, MIB, step=MIB)
        before = one.read_truth()
        one.inject_faults("die-fail")
        after = one.read_truth()
        assert after["failed_dies"] == 1
        assert after["physical_bytes"] < before["physical_bytes"]
        assert after["nand_write_rebuild_bytes"] > 0
        assert require_known(read_smart(one).critical_warning) & 4
        assert require_known(read_smart(one).available_spare) < 100
        reads(one.device, 32, MIB, step=MIB)


def test_media_error_fails_reads_of_its_range_only() -> None:
    with create_drive() as one:
        writes(one.device, 4, MIB, step=MIB)
        one.inject_faults("media-error=1M:4k")
        reads(one.device, 1, MIB)
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            reads(one.device, 1, start=MIB)
        reads(one.device, 1, start=MIB + BLOCK)
        assert require_known(read_smart(one).media_errors) >= 1
        one.inject_faults("clear")
        reads(one.device, 1, start=MIB)


def test_read_only_fault_rejects_writes_immediately() -> None:
    with create_drive() as one:
        writes(one.device, 3)
        one.inject_faults("read-only")
        with pytest.raises(OSError):
            writes(one.device, 1)
        reads(one.device, 3)
        assert require_known(read_smart(one).critical_warning) & 8


def test_drive_turns_read_only_at_its_erase_limit() -> None:
    with create_drive(16 * MIB, "28%", faults=("erase-limit=3",)) as one:
        worn = run_plain_fio(
            one.device, "--rw=randwrite", "--bs=4k", "--io_size=1g", "--size=16m", "--norandommap"
        )
        assert worn.returncode != 0
        truth = one.read_truth()
        assert truth["read_only"] == 1
        assert truth["bad_superblocks"] > 0
        assert (require_known(read_smart(one).critical_warning) & 9, read_smart(one).available_spare) == (
            9,
            0,
        )
        reads(one.device, 16, MIB, step=MIB)


def test_fault_command_sets_faults_and_rejects_unknown_faults() -> None:
    with create_drive() as one:
        assert run_opwatch("drive", "fault", one.name, "trim=ignore", "log-fail=c0").returncode == 0
        assert one.read_truth()["trim_mode"] == 2
        wrong = run_opwatch("drive", "fault", one.name, "gremlins")
        assert wrong.returncode == 2
        assert "media-error=OFFSET:LEN" in wrong.stderr
        late = run_opwatch("drive", "fault", one.name, "erase-limit=3")
        assert late.returncode == 2
        assert "create" in late.stderr
