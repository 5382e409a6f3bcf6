"""10,000 mounts and 1,000 devices: the work grows linearly."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from opwatch.host.device import BlockDevice, Devices
from opwatch.host.usage import Mount, Usage, find_mount, parse_mountinfo
from opwatch.tools.runs import checking
from opwatch.trim.check.schedule import Schedule

MOUNTS = 10_000


class CountingList(list[Mount]):
    """A list of mounts that counts the visited entries."""

    looked_at = 0

    def __iter__(self) -> Iterator[Mount]:
        for mount in super().__iter__():
            CountingList.looked_at += 1
            yield mount


def format_mountinfo(count: int, seed: int = 1) -> str:
    """Return bind mounts, overlays, file systems on many disks, and covered mount points."""
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        point = f"/m/{rng.randrange(count * 9 // 10)}/\\040x"
        dev, kind, source = rng.choice(
            (
                (f"8:{rng.randrange(900)}", "ext4", "/dev/sda1"),
                ("0:45", "overlay", "overlay"),
                (f"0:{rng.randrange(50, 90)}", "btrfs", f"/dev/gone{rng.randrange(40)}"),
                ("0:33", "tmpfs", "tmpfs"),
            )
        )
        rows.append(f"{number + 100} 27 {dev} / {point} rw,relatime shared:1 - {kind} {source} rw")
    return "\n".join(rows)


def make_check(usage: Usage, tmp_path: Path) -> checking.CheckRun:
    return checking.CheckRun(0, Devices(tmp_path, tmp_path), usage, Schedule())


def test_filesystems_are_found_in_two_visits_per_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = CountingList(parse_mountinfo(format_mountinfo(MOUNTS)))
    usage = Usage(mounts, [], {})
    CountingList.looked_at = 0
    asked: list[str] = []
    run = make_check(usage, tmp_path)
    monkeypatch.setattr(run, "_is_block_source", asked.append)
    subjects = list(run.find_all())
    assert len(subjects) > 500
    assert CountingList.looked_at <= 2 * MOUNTS
    # Each source is looked up once: /dev/gone0 to 39, overlay and tmpfs.
    assert len(asked) == len(set(asked)) <= 42


def test_filesystems_match_a_comparison_of_every_pair(tmp_path: Path) -> None:
    usage = Usage(parse_mountinfo(format_mountinfo(600)), [], {})
    wanted, passed = [], set()
    for mount in usage.mounts:
        if mount.dev.startswith("8:") and find_mount(mount.point, usage.mounts) == mount:
            if (mount.dev, mount.source) not in passed:
                wanted.append(mount)
            passed.add((mount.dev, mount.source))
    assert [subject.mount for subject in make_check(usage, tmp_path).find_all()] == wanted


def test_device_mounts_are_found_without_scanning_all_mounts(tmp_path: Path) -> None:
    mounts = CountingList(parse_mountinfo(format_mountinfo(MOUNTS)))
    usage = Usage(mounts, [], {}, canonical=lambda path: path)
    CountingList.looked_at = 0
    for minor in range(1000):
        device = BlockDevice(f"sd{minor}", (8, minor), tmp_path)
        named = usage.find_mounts(device)
        assert all(mount.dev == f"8:{minor}" for mount in named)
    assert CountingList.looked_at == 0
    gone = BlockDevice("gone7", (9, 9), tmp_path)
    assert {mount.source for mount in usage.find_mounts(gone)} == {"/dev/gone7"}
