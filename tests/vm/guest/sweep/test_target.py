"""The target that stands in for a drive with namespace management, through Linux's own driver."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.vm.guest.target.host import connect_target
from tests.vm.requirements import need_tool

DEVICES = ()
TIERS = ()
TIMEOUT_S = 900


def test_written_data_is_read_back_and_discarded_data_reads_as_zeroes(tmp_path: Path) -> None:
    with connect_target(tmp_path / "target") as target:
        [disk] = target.list_disks()
        node = f"/dev/{disk}"
        data = bytes(range(256)) * 2048
        with Path(node).open("r+b") as file:
            file.seek(1 << 20)
            file.write(data)
        subprocess.run(["blockdev", "--flushbufs", node], check=True)
        with Path(node).open("rb") as file:
            file.seek(1 << 20)
            assert file.read(len(data)) == data
        subprocess.run(["blkdiscard", node], check=True)
        with Path(node).open("rb") as file:
            assert not any(file.read(4 << 20))
        nvme = need_tool("nvme")
        print(subprocess.run([nvme, "id-ctrl", node], capture_output=True, text=True, check=True).stdout)
        done = subprocess.run([nvme, "list-ns", "-a", node], capture_output=True, text=True, check=True)
        assert "[   0]:0x1" in done.stdout
