"""`opwatch waf` with passthrough commands, whose bytes only the drive counts."""

from __future__ import annotations

import pytest

from tests.vm.guest.firmware.test_waf import BLOCK, build_write_script, measure_placement
from tests.vm.guest.support import sysfs
from tests.vm.requirements import need_tool

DEVICES = ("nvme-ocp",)
TIMEOUT_S = 900
PASSTHROUGH_BYTES = 3 * 8192


def build_passthrough_script(disk: str) -> str:
    """Return three passthrough writes, which the kernel does not count."""
    one = f"{need_tool('nvme')} write /dev/{disk} -s 0 -c 15 -z 8192 -d /dev/zero > /dev/null"
    return f"{one}; {one}; {one}"


@pytest.mark.parametrize("pause", ["", "sleep 1; "], ids=["in one go", "looked at meanwhile"])
def test_passthrough_bytes_are_counted_by_the_drive_and_explained(pause: str) -> None:
    """On a busy machine, opwatch polls the drive among the writes and before the passthrough commands; the
    pause forces this on any machine. Earlier page contents are then certain only because their age is known.
    tests/unit/waf/test_measure.py covers the case without an age."""
    disk = sysfs.disk("opw-nvme-ocp")
    script = (
        f"{build_write_script(disk, 141)}; {pause}{build_write_script(disk, 868)}; "
        f"{pause}{build_passthrough_script(disk)}"
    )
    result = measure_placement(disk, script, "--refresh", "0.5", "--settle", "30")
    outcome = result.printed
    assert result.host == 1_009 * BLOCK + PASSTHROUGH_BYTES
    assert (outcome["host_bytes"], outcome["nand_bytes"]) == (result.host, result.media)
    assert outcome["host"]["agrees"] is False
    assert outcome["host"]["firmware_bytes"] - outcome["host"]["kernel_bytes"] == PASSTHROUGH_BYTES
    assert "passthrough" in outcome["host"]["reason"]
