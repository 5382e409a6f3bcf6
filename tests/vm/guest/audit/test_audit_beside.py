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
from tests.vm.guest.support.audits import MIB, Audit, audit, codes, filesystem, freed, full_loop, image
from tests.vm.guest.support.shell import call

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
def pool() -> Iterator[Pool]:
    """Yield a pool whose metadata device can be made slow."""
    with full_loop(32 * MIB) as raw, full_loop(SIZE) as data, stacked.linear(raw) as metadata:
        call("dd", "if=/dev/zero", f"of=/dev/{metadata.name}", "bs=4k", "count=1", "oflag=direct")
        table = f"0 {stacked.sectors(data)} thin-pool /dev/{metadata.name} /dev/{data} 128 0"
        with stacked.mapped("thin-pool", table, "dm_thin_pool") as top:
            for number in range(2):
                top.message(f"create_thin {number}")
            yield Pool(top.name, data, metadata)


def volume(one: Pool, number: int, size: int = SIZE) -> contextlib.AbstractContextManager[stacked.Mapped]:
    table = f"0 {size // 512} thin /dev/{one.name} {number}"
    return stacked.mapped("thin", table, "dm_thin_pool")


def deleted(point: Path, size: int) -> None:
    """Write and delete a file, which leaves mapped chunks that are free."""
    victim = point / "victim"
    victim.write_bytes(os.urandom(size))
    os.sync()
    victim.unlink()
    os.sync()


def test_two_volumes_of_a_pool_audited_at_once() -> None:
    results: dict[str, Audit] = {}
    with (
        pool() as one,
        volume(one, 0) as first,
        volume(one, 1) as second,
        filesystem(first.name, "ext4") as left,
        filesystem(second.name, "ext4") as right,
    ):
        deleted(left, 32 * MIB)
        deleted(right, 64 * MIB)
        trims.fill_holes(image(one.data))

        def work(name: str, point: Path) -> None:
            results[name] = audit(point)

        threads = [
            threading.Thread(target=work, args=(name, point))
            for name, point in (("left", left), ("right", right))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        gone = freed(one.data)
    assert results["left"].reached_bytes + results["right"].reached_bytes == gone
    for name, size in (("left", 32 * MIB), ("right", 64 * MIB)):
        assert abs(results[name].reached_bytes - size) < 6 * MIB, name
        assert results[name].unexplained_bytes == 0


def test_a_volume_whose_sibling_is_trimmed_by_another() -> None:
    """A pool worker passes on the discards of both volumes; the audit counts only its own."""
    with (
        pool() as one,
        volume(one, 0) as first,
        volume(one, 1) as second,
        filesystem(first.name, "ext4") as ours,
        filesystem(second.name, "ext4") as others,
    ):
        deleted(ours, 32 * MIB)
        deleted(others, 64 * MIB)
        trims.fill_holes(image(one.data))
        other = threading.Thread(target=call, args=("fstrim", str(others)))
        other.start()
        result = audit(ours)
        other.join()
        gone = freed(one.data)
    assert gone > 90 * MIB
    assert abs(result.reached_bytes - 32 * MIB) < 6 * MIB, (result.reached_bytes, gone)
    assert result.unexplained_bytes == 0, result.rows


def test_xfs_on_a_pool_with_slow_metadata() -> None:
    """XFS does not wait for its discards, and the pool completes each only after a separate commit."""
    with pool() as one, volume(one, 0) as top, filesystem(top.name, "xfs") as point:
        deleted(point, 96 * MIB)
        trims.fill_holes(image(one.data))
        [raw] = call("dmsetup", "deps", "-o", "blkdevname", one.metadata.label).split("(")[1].split(")")[:1]
        size = stacked.sectors(raw)
        call("modprobe", "dm_delay")
        slow = f"0 {size} delay /dev/{raw} 0 0 /dev/{raw} 0 900"
        stacked.reload(one.metadata.label, slow)
        try:
            result = audit(point)
            gone = freed(one.data)
        finally:
            stacked.reload(one.metadata.label, f"0 {size} linear /dev/{raw} 0")
    assert result.reached_bytes == gone >= 90 * MIB, codes(result)
    assert result.unexplained_bytes == 0
