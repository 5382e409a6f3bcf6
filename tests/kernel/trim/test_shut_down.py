"""A filesystem that has shut itself down: each command reports the failure without a traceback."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from pathlib import Path

import pytest

from opwatch.host.scratch import ScratchDisk
from opwatch.tools import cli
from tests.kernel.support.filesystems import make_filesystem, mount_device
from tests.kernel.support.trims import MIB

# EXT4_IOC_SHUTDOWN has the same number as XFS_IOC_GOINGDOWN; 2 means without a log flush.
_SHUTDOWN, _AT_ONCE = 0x8004587D, 2


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_commands_report_a_filesystem_that_shut_down(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ScratchDisk(320 * MIB) as disk:
        make_filesystem(kind, disk.node)
        with mount_device(disk.node, tmp_path):
            descriptor = os.open(tmp_path, os.O_RDONLY)
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _AT_ONCE))
            os.close(descriptor)
            for command in (["check"], ["audit"], ["audit", "--prove"], ["audit", "--json"], ["stale"]):
                status = cli.main(["trim", *command, str(tmp_path)])
                out, err = capsys.readouterr()
                # ext4 continues to trim; XFS does not even report its geometry.
                assert status == 0 if kind == "ext4" and command != ["stale"] else status != 0, (out, err)
                assert status == 0 or os.strerror(errno.EIO) in err
                if command == ["audit", "--prove"] and kind == "ext4":
                    assert "cannot create" in " ".join(out.split())
