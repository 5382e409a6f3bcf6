"""`opwatch waf` beside commands that pass the kernel by: only the drive knows of their bytes."""

from __future__ import annotations

from tests.vm.guest.firmware.test_waf import BLOCK, placed, writes
from tests.vm.guest.support import sysfs
from tests.vm.requirements import need_tool

DEVICES = ("nvme-ocp",)
# By hand: beside another guest a part of the command was measured once, where the test wants all of it.
TIERS = ()
TIMEOUT_S = 600


def test_what_passes_the_kernel_by_is_the_drives_and_is_explained() -> None:
    disk = sysfs.disk("opw-nvme-ocp")
    past = f"{need_tool('nvme')} write /dev/{disk} -s 0 -c 15 -z 8192 -d /dev/zero > /dev/null"
    result = placed(disk, f"{writes(disk, 1_009)}; {past}; {past}; {past}", "--settle", "30")
    outcome = result.printed
    assert result.host == 1_009 * BLOCK + 3 * 8192
    assert (outcome["host_bytes"], outcome["nand_bytes"]) == (result.host, result.media)
    assert outcome["host"]["agrees"] is False
    assert outcome["host"]["firmware_bytes"] - outcome["host"]["kernel_bytes"] == 3 * 8192
    assert "passthrough" in outcome["host"]["reason"]
