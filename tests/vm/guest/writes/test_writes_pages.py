"""Pages that become dirty, and those that are written: exact in pages; and swap."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

from opwatch.writes.waterfall import WriteStep
from tests.vm.guest.owners.groups import create_groups
from tests.vm.guest.support.nullblk import NullBlk, create_null_blk
from tests.vm.guest.support.shell import run_command, write_attribute
from tests.vm.guest.support.trims import MIB, mount_with_files
from tests.vm.guest.writes.measuring import find_bytes, measure_mount

# Manual runs only.
TIERS = ()
DISK = NullBlk(size=512, memory_backed=1)
PAGE = 4096
# Without commits, because each would dirty pages of metadata.
QUIET_MOUNT = "commit=3600,lazytime"


class _PageCounts(NamedTuple):
    """The kernel's counters of pages, exact; `cancelled` are those that this process threw away."""

    dirtied: int
    waiting: int
    cancelled: int


def read_page_counts() -> _PageCounts:
    # Adds up the counters of all CPUs.
    write_attribute(Path("/proc/sys/vm/stat_refresh"), 1)
    lines = Path("/proc/vmstat").read_text().splitlines()
    counts = {name: int(value) for name, value in map(str.split, lines)}
    io = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    waiting = counts["nr_dirty"] + counts["nr_writeback"]
    return _PageCounts(counts["nr_dirtied"], waiting, int(io["cancelled_write_bytes"]) // PAGE)


def write_pages(file: int, first: int, count: int) -> None:
    assert os.pwrite(file, os.urandom(count * PAGE), first * PAGE) == count * PAGE


# Newer kernels have large folios on ext4, which become dirty as a whole.
def test_dirtied_pages_are_written_cancelled_or_still_dirty() -> None:
    with create_null_blk(DISK) as disk, mount_with_files("ext4", disk, options=QUIET_MOUNT) as point:
        file = os.open(point / "file", os.O_CREAT | os.O_RDWR, 0o600)
        write_pages(file, 0, 512)
        os.fsync(file)
        with measure_mount(point, syncs_end=False) as results:
            begin = read_page_counts()
            write_pages(file, 0, 256)
            write_pages(file, 0, 64)
            os.fdatasync(file)
            write_pages(file, 256, 100)
            os.ftruncate(file, 316 * PAGE)
            end = read_page_counts()
        os.close(file)
    dirtied, cancelled = end.dirtied - begin.dirtied, end.cancelled - begin.cancelled
    assert (dirtied, cancelled) == (356, 40)
    assert find_bytes(results[0], WriteStep.APPLICATION) == (256 + 64 + 100) * PAGE
    written, rest = divmod(find_bytes(results[0], WriteStep.DATA), PAGE)
    assert rest == 0
    assert dirtied == written + cancelled + end.waiting - begin.waiting


def test_files_removed_before_write_back_write_no_data() -> None:
    size = 64 * MIB
    with (
        create_null_blk(DISK) as disk,
        mount_with_files("ext4", disk, options=QUIET_MOUNT) as point,
        measure_mount(point) as results,
    ):
        begin = read_page_counts()
        with (point / "short-lived").open("wb") as file:
            for _ in range(size // MIB):
                file.write(bytes(MIB))
        (point / "short-lived").unlink()
        end = read_page_counts()
    assert end.cancelled - begin.cancelled >= 0.99 * size / PAGE
    assert find_bytes(results[0], WriteStep.APPLICATION) == size
    assert find_bytes(results[0], WriteStep.DATA) <= 0.01 * size


FILL_MEMORY = f"""
memory = bytearray({64 * MIB})
for at in range(0, len(memory), {PAGE}):
    memory[at] = 1 + at % 255
"""


def test_swap_to_a_file_is_a_row_and_leaves_no_other_bytes() -> None:
    with (
        create_groups(("swapping",)) as (group,),
        create_null_blk(DISK) as disk,
        mount_with_files("ext4", disk) as point,
    ):
        path = point / "swapfile"
        run_command("dd", "if=/dev/zero", f"of={path}", "bs=1M", "count=128", "status=none")
        path.chmod(0o600)
        run_command("mkswap", str(path))
        run_command("sync", "-f", str(point))
        run_command("swapon", str(path))
        try:
            write_attribute(group.folder / "memory.max", 32 * MIB)
            with measure_mount(point) as results:
                group.run_command(sys.executable, "-S", "-E", "-c", FILL_MEMORY)
        finally:
            run_command("swapoff", str(path))
    assert find_bytes(results[0], WriteStep.SWAP) >= 16 * MIB, results[0].rows
    assert find_bytes(results[0], WriteStep.OTHER) == 0, results[0].rows
    assert not results[0].findings
