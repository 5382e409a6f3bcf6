"""The bpftrace scripts on stock kernels: on drivers that the host does not have."""

from __future__ import annotations

import pytest

from tests.kernel.scripts import CHECKS
from tests.vm.guest import sysfs
from tests.vm.guest.shell import put
from tests.vm.requirements import need_tool

DEVICES = ("nvme", "virtio-blk")
TIMEOUT_S = 2400


@pytest.mark.parametrize("script", CHECKS)
@pytest.mark.parametrize("driver", DEVICES)
def test_script_is_right_about_a_known_load(driver: str, script: str) -> None:
    need_tool("bpftrace")
    disk = sysfs.disk(f"opw-{driver}")
    put(sysfs.SYS_BLOCK / disk / "queue/discard_max_bytes", 1 << 18)
    CHECKS[script](f"/dev/{disk}")
