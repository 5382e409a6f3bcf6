"""Sentinels: files of known contents, before and after a trim, a kill, or the reuse of their blocks."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from opwatch.collectors.space.free_space import sync_filesystem
from opwatch.collectors.stack.layers import LayerReader
from opwatch.errors import RefusedError, UsageError
from opwatch.host.device import BlockDevice, Devices
from opwatch.host.scratch import ScratchDisk
from opwatch.tools.acting.stale.sentinels import Sentinels, choose_sizes
from opwatch.tools.acting.trim.fitrim import require_mount, trim_mount
from opwatch.trim.stale.sentinel import ReadsAs, find_common_state
from tests.kernel.support.drives import MIB, create_drive
from tests.kernel.support.filesystems import KINDS, fill_space, make_filesystem, mount_device
from tests.requirements import require_drive

SIZE = 320 * MIB


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trim_mode", ["honour", "keep"])
def test_sentinels_read_as_zeros_only_when_the_drive_honours_the_trim(
    kind: str, trim_mode: str, tmp_path: Path
) -> None:
    require_drive()
    with create_drive(SIZE, "7%") as one:
        make_filesystem(kind, one.device)
        one.inject_faults(f"trim={trim_mode}")
        with mount_device(one.device, tmp_path):
            mount = require_mount(str(tmp_path))
            stack = LayerReader().read_mount(mount)
            with Sentinels(mount, stack, choose_sizes(stack)) as sentinels:
                sentinels.plant()
                assert [path.name for path in tmp_path.glob(".*")] == []
                sentinels.delete_files()
                untouched = sentinels.judge_sentinels()
                trim_mount(mount)
                judgements = sentinels.judge_sentinels(2.0)
            assert [judgement.size_bytes for judgement in judgements] == [4096, MIB, 8 * MIB]
            assert [judgement.reason for judgement in judgements] == [None] * 3
            copies = Counter(offset for judgement in judgements for offset in judgement.offsets)
            assert max(copies.values()) == 1
            assert sum(judgement.conclusive_blocks for judgement in judgements) == (4096 + 9 * MIB) // 4096
            assert find_common_state(untouched) is ReadsAs.UNCHANGED
            assert find_common_state(judgements) is (
                ReadsAs.ZEROS if trim_mode == "honour" else ReadsAs.UNCHANGED
            )


def test_block_device_is_looked_up_only_once_per_sentinel(tmp_path: Path) -> None:
    # A sentinel of 8 MiB has 2048 blocks; a lookup for each block took 80 % of the time of --prove.
    asked: Counter[tuple[int, int]] = Counter()

    class CountedDevices(Devices):
        def by_number(self, major: int, minor: int) -> BlockDevice | None:
            asked[major, minor] += 1
            return super().by_number(major, minor)

    with ScratchDisk(64 * MIB) as disk:
        make_filesystem("ext4", disk.node)
        with mount_device(disk.node, tmp_path):
            mount = require_mount(str(tmp_path))
            with Sentinels(mount, LayerReader().read_mount(mount), (MIB,), CountedDevices()) as sentinels:
                sentinels.plant()
                sentinels.delete_files()
                [judgement] = sentinels.judge_sentinels()
    assert judgement.conclusive_blocks == 256
    assert list(asked.values()) == [1]


def test_reallocated_blocks_are_inconclusive(tmp_path: Path) -> None:
    with ScratchDisk(64 * MIB) as disk:
        make_filesystem("ext4", disk.node)
        with mount_device(disk.node, tmp_path):
            mount = require_mount(str(tmp_path))
            stack = LayerReader().read_mount(mount)
            with Sentinels(mount, stack, (MIB,)) as sentinels:
                sentinels.plant()
                sentinels.delete_files()
                fill_space(tmp_path / "everything", 0)
                [judgement] = sentinels.judge_sentinels()
            assert judgement.conclusive_blocks == 0
            assert judgement.inside[ReadsAs.REALLOCATED] + judgement.edges[ReadsAs.REALLOCATED] == 256
            assert find_common_state([judgement]) is None


def test_no_sentinel_is_written_without_free_space(tmp_path: Path) -> None:
    with ScratchDisk(64 * MIB) as disk:
        make_filesystem("ext4", disk.node)
        with mount_device(disk.node, tmp_path):
            mount = require_mount(str(tmp_path))
            free = os.statvfs(tmp_path).f_bfree
            with (
                Sentinels(mount, LayerReader().read_mount(mount), (48 * MIB,)) as sentinels,
                pytest.raises(RefusedError, match=rf"{tmp_path} has \d+ bytes "),
            ):
                sentinels.plant()
            assert os.statvfs(tmp_path).f_bfree == free


def test_killed_run_leaves_no_sentinel_behind(tmp_path: Path) -> None:
    planting = (
        "import sys,time\nfrom opwatch.tools.acting.stale.sentinels import *\n"
        "from opwatch.collectors.stack.layers import LayerReader\n"
        "from opwatch.tools.acting.trim.fitrim import require_mount\n"
        "mount = require_mount(sys.argv[1])\n"
        "one = Sentinels(mount, LayerReader().read_mount(mount), (8 << 20,))\n"
        "one.plant(); print('planted', flush=True); time.sleep(60)\n"
    )
    with ScratchDisk(128 * MIB) as disk:
        make_filesystem("ext4", disk.node)
        with mount_device(disk.node, tmp_path):
            free = os.statvfs(tmp_path).f_bfree
            command = [sys.executable, "-c", planting, str(tmp_path)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run_:
                assert run_.stdout
                assert run_.stdout.readline() == "planted\n"
                assert os.statvfs(tmp_path).f_bfree < free
                run_.send_signal(signal.SIGKILL)
            descriptor = os.open(tmp_path, os.O_RDONLY)
            sync_filesystem(descriptor)
            os.close(descriptor)
            assert [path.name for path in tmp_path.iterdir()] == ["lost+found"]
            assert os.statvfs(tmp_path).f_bfree == free
            # The file name on a file system without O_TMPFILE.
            left, data = tmp_path / ".opwatch-sentinel-0123", tmp_path / ".opwatch-sentinel-mine"
            left.touch()
            data.write_text("not empty, so not ours")
            mount = require_mount(str(tmp_path))
            with Sentinels(mount, LayerReader().read_mount(mount), (MIB,)) as sentinels:
                sentinels.plant()
            assert (left.exists(), data.exists()) == (False, True)


def test_fitrim_requires_a_mount_point(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=rf"^{tmp_path} is not "):
        require_mount(str(tmp_path))
    with pytest.raises(UsageError, match=os.strerror(errno.ENOENT)):
        require_mount(str(tmp_path / "nowhere"))
    with ScratchDisk(SIZE) as disk:
        make_filesystem("ext4", disk.node)
        with mount_device(disk.node, tmp_path):
            mount = require_mount(str(tmp_path))
        with pytest.raises(RefusedError, match="no longer"):
            trim_mount(mount)
