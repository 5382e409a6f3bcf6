"""Reads of a simulated drive return the written data, with trims during and after the writes."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from pathlib import Path

import pytest

from tests.kernel.support.drives import MIB, create_drive, run, run_plain_fio
from tests.kernel.support.load import BLKZEROOUT, discards, writes
from tests.requirements import require_drive, skip_or_fail


@pytest.fixture(autouse=True)
def _drive() -> None:
    require_drive()


@pytest.mark.parametrize("trim_mode", ["honour", "lazy", "ignore"])
def test_data_is_verified_with_trims_mixed_in(trim_mode: str) -> None:
    with create_drive(faults=(f"trim={trim_mode}",)) as one:
        done = run_plain_fio(
            *(one.device, "--rw=randtrimwrite", "--bs=4k", "--iodepth=16", "--size=64m", "--loops=2"),
            *("--verify=crc32c", "--do_verify=1", "--verify_fatal=1"),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "verify: bad" not in done.stderr
        truth = one.read_truth()
        assert truth["trims"] > 10_000
        assert truth["host_read_bytes"] >= 64 * MIB


def test_data_of_small_unaligned_writes_is_verified() -> None:
    with create_drive() as one:
        done = run_plain_fio(
            *(one.device, "--rw=randwrite", "--bsrange=512-64k", "--bs_unaligned=0", "--blockalign=512"),
            *("--iodepth=8", "--size=32m", "--verify=crc32c", "--do_verify=1", "--verify_fatal=1"),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        truth = one.read_truth()
        assert truth["unaligned_writes"] > 0
        assert truth["nand_write_rmw_bytes"] > 0


@pytest.mark.parametrize("request_", ["discard", "zeroout"])
def test_trimmed_ranges_read_zeroes(request_: str) -> None:
    with create_drive() as one:
        Path(one.device).write_bytes(os.urandom(4 * MIB))
        run("sync", one.device)
        if request_ == "discard":
            discards(one.device, 3)
        else:
            discards(one.device, 3, request=BLKZEROOUT)
        data = Path(one.device).read_bytes()[: 4 * MIB]
        for start in range(0, 3 * MIB, MIB):
            assert not any(data[start : start + MIB // 2])
            assert any(data[start + MIB // 2 : start + MIB])
        assert one.read_truth()["valid_bytes"] == 4 * MIB - 3 * MIB // 2


def test_server_memory_is_freed_after_a_trim() -> None:
    with create_drive() as one:
        record = one.place.read_record()
        assert record

        def read_resident_bytes() -> int:
            fields = Path(f"/proc/{record.pid}/statm").read_text().split()
            return int(fields[1]) * os.sysconf("SC_PAGESIZE")

        empty = read_resident_bytes()
        run("dd", f"if={one.device}", "of=/dev/null", "bs=1M", "iflag=direct", "status=none")
        assert read_resident_bytes() < empty + 4 * MIB
        writes(one.device, 48, MIB, step=MIB)
        assert read_resident_bytes() > empty + 40 * MIB
        run("blkdiscard", one.device)
        # Each server thread keeps a buffer for its largest request, here 1 MiB.
        threads = len(os.listdir(f"/proc/{record.pid}/task"))
        assert read_resident_bytes() < empty + (threads + 1) * MIB


def _hash_files(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
        if path.is_file()
    }


CHECK = {
    "ext4": ["e2fsck", "-f", "-n"],
    "xfs": ["xfs_repair", "-n"],
    "btrfs": ["btrfs", "check", "--readonly"],
}
FORCE = {"ext4": "-F", "xfs": "-f", "btrfs": "-f"}


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_filesystem_keeps_its_files_after_fstrim_and_remount(kind: str, tmp_path: Path) -> None:
    if f"\t{kind}\n" not in Path("/proc/filesystems").read_text():
        pytest.skip(f"this kernel has no {kind}")
    if not shutil.which(f"mkfs.{kind}", path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
        skip_or_fail("kernel", f"mkfs.{kind} is not installed")
    with create_drive(400 * MIB, "7%") as one:
        run(f"mkfs.{kind}", "-q", FORCE[kind], one.device)
        run("mount", one.device, str(tmp_path))
        try:
            for index in range(8):
                (tmp_path / f"file{index}").write_bytes(os.urandom(5 * MIB + 4099 * index))
            expected = _hash_files(tmp_path)
            os.sync()
            full = one.read_truth()["valid_bytes"]
            for index in range(0, 8, 2):
                (tmp_path / f"file{index}").unlink()
                del expected[f"file{index}"]
            # XFS frees unlinked files with a delay.
            end = time.monotonic() + 10
            while one.read_truth()["valid_bytes"] > full - 15 * MIB and time.monotonic() < end:
                run("sync", "-f", str(tmp_path))
                run("fstrim", str(tmp_path))
            assert one.read_truth()["valid_bytes"] < full - 15 * MIB
        finally:
            run("umount", str(tmp_path))
        run(*CHECK[kind], one.device)
        run("mount", one.device, str(tmp_path))
        try:
            assert _hash_files(tmp_path) == expected
        finally:
            run("umount", str(tmp_path))


def test_saved_state_keeps_data_and_wear(tmp_path: Path) -> None:
    state = tmp_path / "drive.state"
    with create_drive(state=state) as one:
        assert (
            run_plain_fio(
                one.device, "--rw=randwrite", "--bs=4k", "--io_size=150m", "--norandommap"
            ).returncode
            == 0
        )
        discards(one.device, 5, MIB // 2)
        before = one.read_truth()
        digest = hashlib.sha256(Path(one.device).read_bytes()).digest()
    with create_drive(op=None, state=state) as two:
        assert hashlib.sha256(Path(two.device).read_bytes()).digest() == digest
        after = two.read_truth()
        for key in ("serial", "erases", "nand_write_bytes", "valid_bytes", "erase_max", "trims"):
            assert after[key] == before[key], key
        assert after["power_cycles"] == before["power_cycles"] + 1
        writes(two.device, 3)
        two.kill_server()
    # After a kill, the drive is in its last saved state.
    with create_drive(op=None, state=state) as three:
        assert three.read_truth()["host_writes"] == after["host_writes"]
        assert hashlib.sha256(Path(three.device).read_bytes()).digest() == digest


def test_a_damaged_state_is_refused(tmp_path: Path) -> None:
    from opwatch.errors import OpwatchError

    state = tmp_path / "drive.state"
    with create_drive(state=state) as one:
        writes(one.device, 5)
    whole = state.read_bytes()
    for damaged in (b"", b"nonsense" * 100, whole[: len(whole) // 2]):
        state.write_bytes(damaged)
        with pytest.raises(OpwatchError, match="state file"), create_drive(op=None, state=state):
            pass
