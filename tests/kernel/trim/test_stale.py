"""Free extents, sentinels and `opwatch trim stale` on real file systems, against the drive's own truth."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from opwatch.collectors.space.free_space import read_free_space
from opwatch.collectors.space.lowest import AddressMap, read_file_extents
from opwatch.host.device import Devices
from opwatch.host.scratch import ScratchDisk
from opwatch.tools.acting.trim.fitrim import require_mount, trim_mount
from opwatch.trim.space.extents import Extents
from tests.kernel.support.drives import MIB, create_drive, run, run_plain_fio
from tests.kernel.support.filesystems import (
    KINDS,
    count_held_bytes,
    fill_space,
    find_data_extents,
    find_free_extents,
    make_filesystem,
    mount_device,
    write_and_delete,
)
from tests.kernel.support.watching import run_opwatch
from tests.requirements import require_drive, require_nobody

SIZE = 320 * MIB


def run_stale(*arguments: str, status: int = 0) -> dict[str, Any]:
    """Run the command and return its JSON document, which is required even on failure."""
    # File placement is not deterministic; at 95 % confidence one run in twenty would miss.
    done = run_opwatch("trim", "stale", "--confidence", "99.9%", *arguments, "--json", "--seed", "1")
    assert done.returncode == status, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def run_refused(*arguments: str) -> tuple[int, str]:
    """Return (exit status, stderr) of a refusal, which prints nothing on stdout."""
    done = run_opwatch("trim", "stale", *arguments)
    assert not done.stdout
    return done.returncode, done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_trim_punches_exactly_the_free_extents(kind: str, tmp_path: Path) -> None:
    """A disk full of old data with an untrimmed file system: a trim punches exactly the free extents."""
    with ScratchDisk(SIZE) as disk:
        backing = disk.backing_path
        with Path(disk.node).open("wb") as node:
            for _ in range(SIZE // MIB):
                node.write(b"\xa5" * MIB)
        make_filesystem(kind, disk.node)
        run("blockdev", "--flushbufs", disk.node)
        with mount_device(disk.node, tmp_path):
            write_and_delete(tmp_path, 1)
            mount = require_mount(str(tmp_path))
            free = find_free_extents(tmp_path)
            for path in tmp_path.iterdir():
                assert not free & read_extents(path)
            before = find_data_extents(backing)
            trim_mount(mount)
            # XFS finishes with a delay.
            end = time.monotonic() + 10
            while (
                (free & find_data_extents(backing)).total_bytes and kind != "btrfs" and time.monotonic() < end
            ):
                time.sleep(0.05)
            still_free = free & find_free_extents(tmp_path)
            punched = before - find_data_extents(backing)
            assert punched
            assert not punched - free
            # btrfs keeps space that is reserved for metadata.
            if kind != "btrfs":
                assert still_free & before == punched & still_free


def read_extents(path: Path) -> Extents:
    """Return the extents of a file on its file system's only device."""
    mount = require_mount(str(path.parent))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        status = os.fstat(descriptor)
        main = (os.major(status.st_dev), os.minor(status.st_dev))
        places = AddressMap(mount.filesystem, descriptor, main)
        mapped = Extents()
        for extent in read_file_extents(descriptor):
            for extents in places.find_copies(extent.physical, extent.physical + extent.length).values():
                mapped = mapped | extents
        return mapped
    finally:
        os.close(descriptor)


def test_free_blocks_of_ext4_equal_its_block_map(tmp_path: Path) -> None:
    with ScratchDisk(SIZE) as disk:
        make_filesystem("ext4", disk.node, "-b", "1024")
        with mount_device(disk.node, tmp_path):
            write_and_delete(tmp_path, 2)
            free = read_free_space(require_mount(str(tmp_path)))
            status = os.statvfs(tmp_path)
            assert (free.block_bytes, free.total_bytes) == (1024, status.f_bfree * status.f_frsize)


@pytest.mark.parametrize(
    ("kind", "trim_mode"),
    [
        *(("ext4", "keep"), ("xfs", "honour"), ("btrfs", "keep")),
        pytest.param("ext4", "honour", marks=pytest.mark.manual),
        pytest.param("xfs", "keep", marks=pytest.mark.manual),
        pytest.param("btrfs", "honour", marks=pytest.mark.manual),
    ],
)
def test_stale_interval_contains_the_drives_own_count(kind: str, trim_mode: str, tmp_path: Path) -> None:
    require_drive()
    with create_drive(SIZE, "7%") as one:
        make_filesystem(kind, one.device)
        with mount_device(one.device, tmp_path):
            write_and_delete(tmp_path, 3)
            trim_mount(require_mount(str(tmp_path)))
            one.inject_faults(f"trim={trim_mode}")
            write_and_delete(tmp_path, 4)
            before = count_held_bytes(one, find_free_extents(tmp_path))
            measured = run_stale(str(tmp_path), "--sentinel")
            # A filesystem may work in the background: the truth lies between the values before and after.
            after = count_held_bytes(one, find_free_extents(tmp_path))
        assert measured["stale_bytes"]["low"] <= max(before, after)
        assert measured["stale_bytes"]["high"] >= min(before, after)
        assert before > 10 * MIB
        assert measured["lower_bound"]
        [read] = measured["drives"]
        assert f"/dev/{read['device']}" == one.device
        honoured = trim_mode == "honour"
        assert read["calibration"]["by"] == ("sentinel" if honoured else "promise")
        assert read["calibration"]["sentinel"] == ("zeros" if honoured else "unchanged")
        # btrfs frees more than the sentinel, or space that was not held.
        assert measured["nuse"]["follows"] is honoured or kind == "btrfs"
        truth = one.read_truth()
        assert measured["physical_bytes"] == truth["physical_bytes"]
        if honoured:
            assert measured["nuse"]["after_bytes"] == pytest.approx(truth["valid_bytes"], abs=MIB)
        assert measured["waf"]["fifo"]["low"] > measured["waf_trimmed"]["fifo"]["high"]


@pytest.mark.parametrize("kind", ["ext4", "btrfs", pytest.param("xfs", marks=pytest.mark.manual)])
def test_measurement_writes_only_its_own_sentinel(kind: str, tmp_path: Path) -> None:
    require_drive()
    with create_drive(SIZE, "7%") as one:
        make_filesystem(kind, one.device)
        with mount_device(one.device, tmp_path):
            write_and_delete(tmp_path, 5)
            names = sorted(path.name for path in tmp_path.iterdir())
            before = count_held_bytes(one, find_free_extents(tmp_path))
            for _ in range(2):
                measured = run_stale(str(tmp_path))
            [read] = measured["drives"]
            assert read["calibration"]["by"] == ("promise" if kind == "btrfs" else "sentinel")
            assert sorted(path.name for path in tmp_path.iterdir()) == names
            assert abs(count_held_bytes(one, find_free_extents(tmp_path)) - before) <= 2 * (MIB + 64 * 1024)


@pytest.mark.parametrize("seed", [0, 3, *(pytest.param(seed, marks=pytest.mark.manual) for seed in (1, 2))])
def test_stale_interval_contains_the_truth_for_different_layouts(seed: int, tmp_path: Path) -> None:
    require_drive()
    with create_drive(SIZE, "7%") as one:
        make_filesystem("xfs", one.device)
        with mount_device(one.device, tmp_path):
            write_and_delete(tmp_path, seed, written=10 + 8 * seed, kept=seed)
            truth = count_held_bytes(one, find_free_extents(tmp_path))
            measured = run_stale(str(tmp_path), "--no-sentinel", "--precision", "2%")["stale_bytes"]
            assert measured["low"] <= truth <= measured["high"]


def test_unaligned_partition_has_untrimmable_bytes(tmp_path: Path) -> None:
    require_drive()
    with create_drive(SIZE, "7%") as one:
        script = "label: dos\nstart=63, size=600000\n"
        subprocess.run(["sfdisk", "-q", one.device], input=script, text=True, check=True)
        run("partx", "--update", one.device)
        [found_part] = Devices().list_partitions(Devices().resolve(one.device))
        # Create the node, because some machines create none for partitions.
        part, point = str(tmp_path / "part"), tmp_path / "mnt"
        os.mknod(part, stat.S_IFBLK | 0o600, os.makedev(*found_part.dev))
        point.mkdir()
        make_filesystem("ext4", part)
        with mount_device(part, point):
            write_and_delete(point, 6)
            free = find_free_extents(point).shift_by(63 * 512)
            # Blocks of the file system straddle two of the drive's units.
            truth = count_held_bytes(one, free.round_to_granules(4096))
            measured = run_stale("--dev", one.device)
            [read] = measured["drives"]
            assert f"/dev/{read['device']}" == one.device
            assert (
                read["untrimmable_bytes"] == free.total_bytes - free.round_to_granules(4096).total_bytes > 0
            )
            assert measured["subject"] == str(point)
            assert read["calibration"]["sentinel"] == "zeros"
            edges = 2 * len(free) * 4096
            assert measured["stale_bytes"]["low"] <= truth + edges
            assert measured["stale_bytes"]["high"] >= truth


def test_stale_is_unknown_when_the_drive_ignores_trims(tmp_path: Path) -> None:
    require_drive()
    with create_drive(SIZE, "7%") as one:
        make_filesystem("ext4", one.device)
        one.inject_faults("trim=ignore")
        with mount_device(one.device, tmp_path):
            (tmp_path / "big").write_bytes(b"x" * MIB)
            os.sync()
            measured = run_stale(str(tmp_path), status=5)
        assert measured["stale_bytes"] is None
        assert "NUSE" in measured["stale_reason"]
        assert measured["drives"][0]["calibration"]["sentinel"] == "zeros"
        assert measured["waf"] is None


def test_stale_is_unknown_when_a_full_drive_ignores_trims(tmp_path: Path) -> None:
    """The sentinel lands on blocks that the drive already holds, so the drive's count does not rise."""
    require_drive()
    with create_drive(SIZE, "7%") as one:
        make_filesystem("ext4", one.device)
        one.inject_faults("trim=ignore")
        with mount_device(one.device, tmp_path):
            (tmp_path / "big").write_bytes(os.urandom(3 * SIZE // 4))
            os.sync()
            (tmp_path / "big").unlink()
            os.sync()
            run("fstrim", str(tmp_path))
            measured = run_stale(str(tmp_path), status=5)
        assert measured["stale_bytes"] is None
        assert "NUSE" in measured["stale_reason"]


def test_dead_drive_is_an_error(tmp_path: Path) -> None:
    require_drive()
    with create_drive(SIZE, "7%") as one:
        make_filesystem("ext4", one.device)
        run("mount", "-o", "nodiscard", one.device, str(tmp_path))
        try:
            one.kill_server()
            done = run_opwatch("trim", "stale", str(tmp_path), "--json")
        finally:
            run("umount", "--lazy", str(tmp_path))
        assert done.returncode == 1, done.stderr
        assert not done.stdout
        assert "Traceback" not in done.stderr


def test_stale_measures_a_whole_drive_without_a_filesystem() -> None:
    require_drive()
    with create_drive(1 << 40, "7%", no_data=True) as one:
        assert run_plain_fio(one.device, "--rw=write", "--bs=1m", "--size=2g").returncode == 0
        run("blkdiscard", "-o", "256M", "-l", "256M", one.device)
        truth = one.read_truth()["valid_bytes"]
        measured = run_stale("--dev", one.device)
        assert truth == 2048 * MIB - 256 * MIB
        assert measured["stale_bytes"]["low"] <= truth <= measured["stale_bytes"]["high"]
        assert measured["free_bytes"] == 1 << 40
        assert measured["drives"][0]["calibration"]["by"] == "promise"


def test_stale_refuses_an_unmounted_disk_that_holds_data(tmp_path: Path) -> None:
    with ScratchDisk(SIZE) as disk:
        make_filesystem("ext4", disk.node)
        status, words = run_refused("--dev", disk.node)
        assert (status, "ext4" in words) == (6, True), words
        run("mkswap", disk.node)
        status, words = run_refused("--dev", disk.node)
        assert (status, "swap" in words) == (6, True), words


def test_stale_refuses_paths_that_are_not_mount_points(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    status, words = run_refused(str(folder))
    assert (status, f"{folder} is not" in words) == (3, True), words
    assert run_refused("/nonexistent")[0] == 2
    assert run_refused()[0] == 2
    assert run_refused("/", "--dev", "sda")[0] == 2
    status, words = run_refused("/proc")
    assert (status, "/proc: proc " in words) == (3, True), words


def test_stale_asks_for_root_when_unprivileged(tmp_path: Path) -> None:
    require_nobody()
    code = (
        "import os, sys\nfrom opwatch.tools import cli\n"
        "from opwatch.tools.commands import trim\nfrom opwatch.tools.commands.trim import stale\n"
        "os.setgid(65534); os.setuid(65534); sys.exit(cli.main(sys.argv[1:]))"
    )
    with ScratchDisk(SIZE) as disk:
        make_filesystem("ext4", disk.node)
        with mount_device(disk.node, tmp_path):
            done = subprocess.run(
                [sys.executable, "-c", code, "trim", "stale", str(tmp_path)],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 4, done.stderr
            assert "root" in done.stderr


def test_read_only_and_full_filesystems_are_judged_by_the_drives_promise(tmp_path: Path) -> None:
    with ScratchDisk(SIZE) as disk:
        make_filesystem("ext4", disk.node)
        with mount_device(disk.node, tmp_path):
            write_and_delete(tmp_path, 7)
            fill_space(tmp_path / "filler", MIB)
            [read] = run_stale(str(tmp_path))["drives"]
            assert "space" in read["calibration"]["words"][0]
            (tmp_path / "filler").unlink()
        with mount_device(disk.node, tmp_path, "ro"):
            measured = run_stale(str(tmp_path))
            [read] = measured["drives"]
            assert read["calibration"]["by"] == "promise"
            assert "read-only" in read["calibration"]["words"][0]
            assert measured["stale_bytes"]["low"] > 0
