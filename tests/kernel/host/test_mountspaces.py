"""A disk that is mounted in a namespace outside our own mount table."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from opwatch.host.device import Devices
from opwatch.host.mountspaces import is_in_use, survey_disk
from opwatch.host.scratch import ScratchDisk
from tests.kernel.support.filesystems import make_filesystem
from tests.kernel.support.trims import MIB, run


@contextlib.contextmanager
def mount_elsewhere(node: str, point: Path, then: str = "") -> Iterator[int]:
    """Yield the number of a process that has the disk mounted in a private mount namespace."""
    words = f'mount "$0" "$1" && {then or "true"} && echo ready && read _'
    with subprocess.Popen(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", words, node, str(point)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        yield process.pid
        process.communicate("\n", timeout=60)


@pytest.mark.parametrize("kind", ["ext4", "btrfs"])
def test_a_mount_in_another_namespace_is_found(kind: str, tmp_path: Path) -> None:
    with ScratchDisk(128 * MIB) as disk:
        make_filesystem(kind, disk.node)
        devices = Devices()
        device = devices.resolve(disk.node)
        with mount_elsewhere(disk.node, tmp_path) as process:
            assert not os.path.ismount(tmp_path)
            [mounted] = survey_disk(device, devices).mounts
            assert mounted.space.pid == process
            assert str(mounted).endswith(f"{tmp_path} in the mount namespace of process {process}")
            assert is_in_use(disk.path)
        assert survey_disk(device, devices).mounts == ()
        assert not is_in_use(disk.path)


def test_mount_without_a_visible_table_is_a_claim(tmp_path: Path) -> None:
    with ScratchDisk(64 * MIB) as disk:
        make_filesystem("ext4", disk.node)
        devices = Devices()
        with mount_elsewhere(disk.node, tmp_path, 'exec 3<"$1" && umount --lazy "$1"'):
            assert survey_disk(devices.resolve(disk.node), devices).mounts == ()
            assert is_in_use(disk.path)
        assert not is_in_use(disk.path)


def test_mounted_partition_claims_its_disk(tmp_path: Path) -> None:
    with ScratchDisk(128 * MIB) as disk:
        run("addpart", disk.node, "1", "2048", str(64 * MIB // 512))
        part = f"{disk.node}p1"
        make_filesystem("ext4", part)
        devices = Devices()
        with mount_elsewhere(part, tmp_path):
            [mounted] = survey_disk(devices.resolve(disk.node), devices).mounts
            assert mounted.mount.source == part
            assert is_in_use(disk.path)
