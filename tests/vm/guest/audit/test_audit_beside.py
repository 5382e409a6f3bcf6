"""Concurrent and slow trims: each is counted, and counted once."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.kernel.support import trims
from tests.vm.guest.support import stacked
from tests.vm.guest.support.audits import (
    MIB,
    Audit,
    audit_point,
    count_freed_bytes,
    find_image,
    full_loop,
    mount_filesystem,
    sum_reasons,
)
from tests.vm.guest.support.shell import run_command

# Manual runs only: these tests would exceed CI's time limit.
TIERS = ()
SIZE = 384 * MIB


@dataclass(frozen=True)
class Pool:
    """A thin pool: name, data disk and metadata device."""

    name: str
    data: str
    metadata: stacked.Mapped


@contextlib.contextmanager
def create_pool() -> Iterator[Pool]:
    """Yield a pool whose metadata device can be made slow."""
    with full_loop(32 * MIB) as raw, full_loop(SIZE) as data, stacked.create_linear(raw) as metadata:
        run_command("dd", "if=/dev/zero", f"of=/dev/{metadata.name}", "bs=4k", "count=1", "oflag=direct")
        table = f"0 {stacked.count_sectors(data)} thin-pool /dev/{metadata.name} /dev/{data} 128 0"
        with stacked.create_mapped("thin-pool", table, "dm_thin_pool") as top:
            for number in range(2):
                top.send_message(f"create_thin {number}")
            yield Pool(top.name, data, metadata)


def create_volume(
    one: Pool, number: int, size: int = SIZE
) -> contextlib.AbstractContextManager[stacked.Mapped]:
    table = f"0 {size // 512} thin /dev/{one.name} {number}"
    return stacked.create_mapped("thin", table, "dm_thin_pool")


def write_and_delete(point: Path, size: int) -> None:
    """Write and delete a file, which leaves mapped chunks that are free."""
    victim = point / "victim"
    victim.write_bytes(os.urandom(size))
    os.sync()
    victim.unlink()
    os.sync()


def test_two_volumes_of_a_pool_audited_at_once() -> None:
    results: dict[str, Audit] = {}
    with (
        create_pool() as one,
        create_volume(one, 0) as first,
        create_volume(one, 1) as second,
        mount_filesystem(first.name, "ext4") as left,
        mount_filesystem(second.name, "ext4") as right,
    ):
        write_and_delete(left, 32 * MIB)
        write_and_delete(right, 64 * MIB)
        trims.fill_holes(find_image(one.data))

        def store_audit(name: str, point: Path) -> None:
            results[name] = audit_point(point)

        threads = [
            threading.Thread(target=store_audit, args=(name, point))
            for name, point in (("left", left), ("right", right))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        gone = count_freed_bytes(one.data)
    assert results["left"].reached_bytes + results["right"].reached_bytes == gone
    for name, size in (("left", 32 * MIB), ("right", 64 * MIB)):
        assert abs(results[name].reached_bytes - size) < 6 * MIB, name
        assert results[name].unexplained_bytes == 0


def test_volume_audit_excludes_concurrent_trims_of_a_sibling() -> None:
    """A pool worker passes on the discards of both volumes; the audit counts only its own."""
    with (
        create_pool() as one,
        create_volume(one, 0) as first,
        create_volume(one, 1) as second,
        mount_filesystem(first.name, "ext4") as ours,
        mount_filesystem(second.name, "ext4") as others,
    ):
        write_and_delete(ours, 32 * MIB)
        write_and_delete(others, 64 * MIB)
        trims.fill_holes(find_image(one.data))
        other = threading.Thread(target=run_command, args=("fstrim", str(others)))
        other.start()
        result = audit_point(ours)
        other.join()
        gone = count_freed_bytes(one.data)
    assert gone > 90 * MIB
    assert abs(result.reached_bytes - 32 * MIB) < 6 * MIB, (result.reached_bytes, gone)
    assert result.unexplained_bytes == 0, result.rows


def test_xfs_on_a_pool_with_slow_metadata() -> None:
    """XFS does not wait for its discards, and the pool completes each only after a separate commit."""
    with create_pool() as one, create_volume(one, 0) as top, mount_filesystem(top.name, "xfs") as point:
        write_and_delete(point, 96 * MIB)
        trims.fill_holes(find_image(one.data))
        [raw] = (
            run_command("dmsetup", "deps", "-o", "blkdevname", one.metadata.label)
            .split("(")[1]
            .split(")")[:1]
        )
        size = stacked.count_sectors(raw)
        run_command("modprobe", "dm_delay")
        slow = f"0 {size} delay /dev/{raw} 0 0 /dev/{raw} 0 900"
        stacked.reload_table(one.metadata.label, slow)
        try:
            result = audit_point(point)
            gone = count_freed_bytes(one.data)
        finally:
            stacked.reload_table(one.metadata.label, f"0 {size} linear /dev/{raw} 0")
    assert result.reached_bytes == gone >= 90 * MIB, sum_reasons(result)
    assert result.unexplained_bytes == 0
