"""Filesystems with unusual trim behaviour: check and audit agree, and the backing file is the oracle."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from opwatch.collectors.space.free_space import read_free_space
from tests.kernel.support import trims
from tests.vm.guest.support.audits import (
    MIB,
    Verdict,
    audit_point,
    count_freed_bytes,
    find_image,
    find_leaf_row,
    fragment_free_space,
    full_loop,
    mount_filesystem,
    sum_reasons,
)
from tests.vm.guest.support.shell import run_command
from tests.vm.guest.support.trims import run_check
from tests.vm.requirements import need_module, need_tool

# Manual runs only: these tests would exceed CI's time limit.
TIERS = ()
KERNEL = tuple(map(int, os.uname().release.split(".")[:2]))


@contextlib.contextmanager
def mount_with_free_space(kind: str, node: str, *options: str) -> Iterator[Path]:
    """Mount a device, create some files and delete a third of them; yield the mount point."""
    run_command("modprobe", "--quiet", kind) if kind != "ntfs-3g" else run_command(
        "modprobe", "--quiet", "fuse"
    )
    with trims.create_folder(Path("/tmp")) as point:
        run_command(
            "mount", "-t", kind, *(("-o", ",".join(options)) if options else ()), f"/dev/{node}", str(point)
        )
        try:
            for number in range(60):
                (point / f"f{number}").write_bytes(os.urandom(3000 * (1 + number % 7)))
            os.sync()
            for number in range(0, 60, 3):
                (point / f"f{number}").unlink()
            os.sync()
            yield point
        finally:
            run_command("umount", str(point))


def count_free_bytes(point: Path) -> int:
    extents = read_free_space(trims.find_mount_at(point)).extents
    return sum(free.total_bytes for free in extents.values())


def test_free_extents_skipped_by_xfs_are_reported() -> None:
    """Some kernels skip part of a group with over a hundred free extents; trimming by ranges skips none."""
    with full_loop(128 * MIB) as loop, mount_filesystem(loop, "xfs") as point:
        fragment_free_space(point, [1024 * (1 + number * 7 % 47) for number in range(600)], 3)
        trims.fill_holes(find_image(loop))
        free, result, gone = count_free_bytes(point), audit_point(point), count_freed_bytes(loop)
        half = str(16 * MIB)
        for number in range(8):
            run_command("fstrim", "--offset", str(16 * number * MIB), "--length", half, str(point))
        run_command("sync", "-f", str(point))
        assert free - count_freed_bytes(loop) < 64 << 10
    left = sum_reasons(result).get("xfs-passes-over") or 0
    assert result.reached_bytes == gone
    assert (result.unexplained_bytes, result.rows[0].bytes_in) == (0, gone + left)
    assert free - gone == left


def test_vfat_prediction_is_unknown_and_the_audit_is_exact() -> None:
    """Clusters of vfat may straddle blocks of the backing file, so the result cannot be predicted."""
    need_tool("mkfs.vfat")
    with full_loop(128 * MIB) as loop:
        run_command("mkfs.vfat", "-F", "32", "-s", "1", f"/dev/{loop}")
        with mount_with_free_space("vfat", loop) as point:
            trims.fill_holes(find_image(loop))
            foretold, result, gone = run_check(point), audit_point(point), count_freed_bytes(loop)
    assert foretold.outlook == "unknown"
    assert any("whole granule" in words for words in foretold.document["unknowable"])
    assert result.reached_bytes == gone > 64 * MIB, sum_reasons(result)
    assert result.unexplained_bytes == 0
    assert result.verdict in (Verdict.PARTIAL, Verdict.ACCEPTED)


@pytest.mark.parametrize("option", [(), ("discard",)])
def test_ntfs3_is_trimmed_only_with_the_discard_option(option: tuple[str, ...]) -> None:
    need_module("ntfs3")
    with full_loop(128 * MIB) as loop:
        run_command(need_tool("mkfs.ntfs"), "-Q", "-F", f"/dev/{loop}")
        with mount_with_free_space("ntfs3", loop, *option) as point:
            trims.fill_holes(find_image(loop))
            foretold, result, gone = run_check(point), audit_point(point), count_freed_bytes(loop)
    assert result.reached_bytes == gone
    assert result.unexplained_bytes == 0, result.rows
    if option:
        assert foretold.outlook in ("unknown", "reaches")
        assert gone > 64 * MIB
    else:
        assert (foretold.outlook, result.verdict, gone) == ("nothing", Verdict.NOT_SENT, 0)
        assert "ntfs3-wants-discard" in foretold.reason_codes & sum_reasons(result).keys()


def test_ntfs_3g_discards_are_counted_from_its_own_process() -> None:
    """ntfs-3g sends the discards itself, from its own process."""
    with full_loop(128 * MIB) as loop:
        run_command(need_tool("mkfs.ntfs"), "-Q", "-F", f"/dev/{loop}")
        with mount_with_free_space("ntfs-3g", loop) as point:
            trims.fill_holes(find_image(loop))
            foretold, result, gone = run_check(point), audit_point(point), count_freed_bytes(loop)
    assert foretold.outlook == "unknown"
    assert result.reached_bytes == gone > 64 * MIB, (result.rows, sum_reasons(result))
    assert result.unexplained_bytes == 0


def test_xfs_realtime_device_is_audited() -> None:
    with full_loop(384 * MIB) as data, full_loop(192 * MIB) as realtime:
        extra = ("-r", f"rtdev=/dev/{realtime}")
        run_command("mkfs.xfs", "--unsupported", "-q", "-f", "-K", *extra, f"/dev/{data}")
        with mount_with_free_space("xfs", data, f"rtdev=/dev/{realtime}") as point:
            for loop in (data, realtime):
                trims.fill_holes(find_image(loop))
            foretold, result = run_check(point), audit_point(point)
            gone = [count_freed_bytes(loop) for loop in (data, realtime)]
    assert foretold.outlook == "reaches"
    assert [find_leaf_row(result, loop).bytes_ok for loop in (data, realtime)] == gone
    assert result.reached_bytes == sum(gone) > 128 * MIB
    assert (gone[1] > 128 * MIB) is (KERNEL >= (6, 11))
    assert result.unexplained_bytes == 0, result.rows
    assert result.verdict is Verdict.ACCEPTED
    if not gone[1]:
        assert any("realtime device" in note for note in result.notes)
