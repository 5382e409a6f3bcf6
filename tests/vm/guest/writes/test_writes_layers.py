"""What arrays, dm-integrity, loop devices and overlays add to writes, compared with the kernel's counters."""

from __future__ import annotations

import mmap
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from opwatch.collectors.writes.stacks import read_mount_stack
from opwatch.errors import Unsupported
from opwatch.host.device import Devices
from opwatch.tools.acting.trim.fitrim import require_mount
from opwatch.writes.waterfall import Waterfall, WriteStep
from tests.vm.guest.support.nullblk import NullBlk, create_null_blk
from tests.vm.guest.support.shell import run_command, write_attribute
from tests.vm.guest.support.stacked import create_mapped, create_md, read_integrity_sectors
from tests.vm.guest.support.sysfs import SYS_BLOCK, read_number, read_stat
from tests.vm.guest.support.trims import MIB, mount_with_files
from tests.vm.guest.writes.measuring import find_bytes, measure_device, measure_mount
from tests.vm.requirements import need_module

# Manual runs only.
TIERS = ()
MEMBER = NullBlk(size=256, memory_backed=1)
SMALL, SMALL_COUNT = 4096, 1024
# The bound of a ratio's error.
CLOSE = 0.02


@contextmanager
def create_members(count: int) -> Iterator[list[str]]:
    with ExitStack() as opened:
        yield [opened.enter_context(create_null_blk(MEMBER)) for _ in range(count)]


@contextmanager
def create_quiet_array(level: int, members: Sequence[str], **options: str) -> Iterator[str]:
    """Yield an array that writes nothing while it is idle: neither its state nor its bitmap."""
    with create_md(level, members, **options) as array:
        write_attribute(SYS_BLOCK / array / "md/safe_mode_delay", 0)
        if "internal" in options.values() or "bitmap" in options.values():
            write_attribute(SYS_BLOCK / array / "md/bitmap/time_base", 3600)
        yield array


def write_at(name: str, size: int, places: Sequence[int]) -> None:
    """Write blocks of this size directly, each at its place in units of this size."""
    descriptor = os.open(f"/dev/{name}", os.O_WRONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, size) as buffer:
            buffer.write(os.urandom(size))
            for place in places:
                assert os.pwritev(descriptor, [buffer], place * size) == size
    finally:
        os.close(descriptor)


def choose_small_places(name: str) -> list[int]:
    """Return distinct places of small blocks on a device."""
    blocks = read_number(name, "size") * 512 // SMALL
    return random.Random(4).sample(range(blocks), SMALL_COUNT)


def check_device_writes(top: str, members: Sequence[str], size: int, places: Sequence[int]) -> float:
    """Write to a device, compare all rows with the kernel's counters, and return the bytes that reach the
    members per written byte."""
    names = (top, *members)
    with measure_device(top) as results:
        before = {name: read_stat(name) for name in names}
        write_at(top, size, places)
        grown = {name: (read_stat(name) - before[name]).write_bytes for name in names}
    (waterfall,) = results
    below = sum(grown[name] for name in members)
    assert find_bytes(waterfall, WriteStep.RAW) == grown[top] == size * len(places), waterfall.rows
    assert find_bytes(waterfall, WriteStep.OTHER) == 0, waterfall.rows
    check_layer(waterfall, grown[top], below)
    return below / grown[top]


def check_layer(waterfall: Waterfall, received: int, below: int) -> None:
    """Compare the rows of the device, of its layer and of the drives."""
    assert find_bytes(waterfall, WriteStep.LAYER) == below - received, waterfall.rows
    assert find_bytes(waterfall, WriteStep.DRIVES) == below, waterfall.rows


@pytest.mark.parametrize("bitmap", ["none", "internal"])
def test_mirror_writes_twice_and_its_bitmap(bitmap: str) -> None:
    with create_members(2) as members, create_quiet_array(1, members, bitmap=bitmap) as array:
        places = choose_small_places(array)
        ratio = check_device_writes(array, members, SMALL, places)
        assert 2 <= ratio <= 2 * (1 + CLOSE)
        # The bits of these places are set now.
        assert check_device_writes(array, members, SMALL, places) == 2


@pytest.mark.parametrize(("policy", "expected"), [("resync", 2.0), ("bitmap", 2.0), ("ppl", 4.0)])
def test_raid5_writes_small_blocks_with_their_parity(policy: str, expected: float) -> None:
    with create_members(4) as members, create_quiet_array(5, members, policy=policy) as array:
        ratio = check_device_writes(array, members, SMALL, choose_small_places(array))
    assert ratio == pytest.approx(expected, rel=CLOSE)


def test_raid5_writes_one_parity_for_a_full_stripe() -> None:
    with create_members(4) as members, create_quiet_array(5, members) as array:
        stripe = read_number(array, "md/chunk_size") * 3
        ratio = check_device_writes(array, members, stripe, range(16))
    assert ratio == pytest.approx(4 / 3, rel=CLOSE)


@pytest.mark.parametrize(("mode", "least", "most"), [("J", 2.0, 2.3), ("B", 1.0, 1.3), ("D", 1.0, 1.3)])
def test_integrity_writes_its_journal_or_bitmap(mode: str, least: float, most: float) -> None:
    with create_null_blk(MEMBER) as disk:
        table = f"integrity /dev/{disk} 0 4 {mode} 2 internal_hash:crc32c journal_sectors:2048"
        size = read_integrity_sectors(disk, table)
        with create_mapped("integrity", f"0 {size} {table}") as top:
            ratio = check_integrity_writes(top.label, top.name, disk)
    assert least <= ratio < most


def check_integrity_writes(label: str, name: str, disk: str) -> float:
    """Write to dm-integrity until nothing waits in its journal, and return the disk's bytes per written
    byte."""
    with measure_device(name) as results:
        before = read_stat(disk)
        write_at(name, 64 << 10, range(512))
        run_command("dmsetup", "suspend", "--noudevsync", label)
        run_command("dmsetup", "resume", "--noudevsync", label)
        below = (read_stat(disk) - before).write_bytes
    received = find_bytes(results[0], WriteStep.DEVICE)
    assert received == 32 * MIB
    check_layer(results[0], received, below)
    return below / received


@pytest.mark.parametrize("level", [1, 5])
def test_rows_close_from_a_file_system_to_the_members_of_an_array(level: int) -> None:
    with (
        create_members(2 if level == 1 else 4) as members,
        create_quiet_array(level, members, bitmap="internal") as array,
        mount_with_files("ext4", array) as point,
        measure_mount(point) as results,
    ):
        before = {name: read_stat(name) for name in (array, *members)}
        with (point / "file").open("wb", buffering=0) as file:
            for _ in range(100):
                file.write(os.urandom(SMALL))
                os.fsync(file.fileno())
        run_command("sync", "-f", str(point))
        grown = {name: (read_stat(name) - was).write_bytes for name, was in before.items()}
    (waterfall,) = results
    assert not waterfall.findings
    assert find_bytes(waterfall, WriteStep.OTHER) == 0, waterfall.rows
    check_layer(waterfall, grown[array], sum(grown[name] for name in members))


def test_application_of_a_backing_file_is_what_its_loop_device_received() -> None:
    with create_null_blk(MEMBER) as disk, mount_with_files("ext4", disk) as below:
        need_module("loop")
        image = below / "image"
        with image.open("wb") as file:
            file.truncate(64 * MIB)
        node = run_command("losetup", "--find", "--show", str(image)).strip()
        try:
            check_backing_file(node.removeprefix("/dev/"), below)
        finally:
            run_command("losetup", "--detach", node)


def check_backing_file(loop: str, below: Path) -> None:
    with mount_with_files("ext4", loop) as above:
        # The interval of the file system below begins earlier.
        run_command("sync", "-f", str(above))
        lower, upper = write_through_loop(above, below)
    assert find_bytes(upper, WriteStep.APPLICATION) == 50 * 5003
    assert find_bytes(upper, WriteStep.DEVICE) > 50 * 5003
    # The bytes that the loop device received are those that its thread writes to the file below.
    assert find_bytes(lower, WriteStep.APPLICATION) == find_bytes(upper, WriteStep.DEVICE)
    assert not (*lower.findings, *upper.findings)
    assert find_bytes(lower, WriteStep.OTHER) == find_bytes(upper, WriteStep.OTHER) == 0


def write_through_loop(above: Path, below: Path) -> tuple[Waterfall, Waterfall]:
    """Return what the file system with the image wrote, and the one in the image."""
    with measure_mount(below) as lower, measure_mount(above) as upper:
        with (above / "file").open("wb", buffering=0) as file:
            for _ in range(50):
                file.write(os.urandom(5003))
                os.fsync(file.fileno())
        run_command("sync", "-f", str(above))
    return lower[0], upper[0]


def test_overlay_is_measured_at_its_upper_directory(tmp_path: Path) -> None:
    need_module("overlay")
    with create_null_blk(MEMBER) as disk, mount_with_files("ext4", disk) as point:
        paths = [tmp_path / "lower", point / "upper", point / "work", tmp_path / "merged"]
        for path in paths:
            path.mkdir()
        lower, upper, work, merged = paths
        (lower / "copied").write_bytes(bytes(10_000))
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        run_command("mount", "-t", "overlay", "-o", options, "overlay", str(merged))
        try:
            check_overlay(merged, point)
        finally:
            run_command("umount", str(merged))


def check_overlay(merged: Path, point: Path) -> None:
    """A changed file of the lower directory is copied up: the kernel writes all of it."""
    devices = Devices()
    with pytest.raises(Unsupported, match=str(point)):
        read_mount_stack(devices, require_mount(str(merged)))
    with measure_mount(point) as results:
        (merged / "new").write_bytes(os.urandom(100_001))
        with (merged / "copied").open("r+b") as file:
            file.write(b"changed")
    assert find_bytes(results[0], WriteStep.APPLICATION) == 100_001 + 10_000 + len(b"changed")
    assert find_bytes(results[0], WriteStep.OTHER) == 0
    assert not results[0].findings
