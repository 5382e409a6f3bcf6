"""Several paths to one disk, and layers that stop discards below others."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from opwatch.trim.audit.verdicts import exit_status
from tests.kernel.support import trims
from tests.vm.guest.support.audits import (
    MIB,
    Verdict,
    audit,
    codes,
    filesystem,
    freed,
    full_loop,
    image,
)
from tests.vm.guest.support.shell import call
from tests.vm.guest.support.stacked import crypt, linear, mapped, reload, sectors, thin
from tests.vm.guest.support.trims import check
from tests.vm.requirements import need_module, need_tool

# Manual runs only: these tests would exceed CI's time limit.
TIERS = ()
DEVICES = ("virtio-blk",)


def test_half_that_is_dropped_on_a_second_path_is_partial() -> None:
    with full_loop(512 * MIB) as disk:
        half = sectors(disk) // 2
        flakey = f"0 {half} flakey /dev/{disk} {half}"
        with mapped("flakey", f"{flakey} 100 0") as second:
            table = f"0 {half} linear /dev/{disk} 0\n{half} {half} linear /dev/{second.name} 0"
            with mapped("linear", table, "dm_mod") as top, filesystem(top.name, "ext4") as point:
                os.sync()
                reload(second.label, f"{flakey} 0 100 1 drop_writes")
                trims.fill_holes(image(disk))
                before = freed(disk)
                result = audit(point)
                gone = freed(disk) - before
                reload(second.label, f"{flakey} 100 0")
    assert result.verdict is Verdict.PARTIAL
    assert exit_status([result.verdict]) == 64
    assert "target-fails" in codes(result)
    assert result.reached_bytes == gone
    assert result.claimed_bytes is not None
    assert result.unexplained_bytes == 0
    assert gone < result.claimed_bytes * 3 // 4


def test_lvm_on_luks_without_discards_names_luks_alone() -> None:
    with (
        full_loop() as disk,
        crypt(disk, discards=False) as luks,
        linear(luks.name) as volume,
        filesystem(volume.name, "ext4") as point,
    ):
        expected, result = check(point), audit(point)
    assert result.verdict is Verdict.NOT_SENT
    assert set(codes(result)) == {"crypt-no-discards"}
    assert expected.document["stopped_at"] == luks.name


def test_second_trim_over_a_pool_without_passdown_is_not_success() -> None:
    with (
        full_loop() as data,
        full_loop(32 * MIB) as metadata,
        thin(data, metadata, sectors(data) // 2, "1 no_discard_passdown") as volume,
        filesystem(volume.name, "ext4") as point,
    ):
        call("fstrim", str(point))
        result = audit(point)
    assert result.verdict is Verdict.NOT_SENT
    assert {"thin-no-passdown", "ext4-already-trimmed"} <= codes(result).keys()


_RESOURCE = """resource r0 {{
  device /dev/drbd0;
  disk /dev/{disk};
  meta-disk internal;
  on {host} {{ address 127.0.0.1:7789; }}
  on elsewhere {{ address 127.0.0.1:7790; }}
}}
"""


@contextlib.contextmanager
def drbd(disk: str) -> Iterator[str]:
    """Yield a DRBD device on a disk, primary and without its peer."""
    need_module("drbd")
    need_tool("drbdadm")
    host = call("uname", "-n").strip()
    Path("/etc/drbd.d/r0.res").write_text(_RESOURCE.format(disk=disk, host=host), encoding="ascii")
    call("drbdadm", "create-md", "--force", "r0")
    call("drbdadm", "up", "r0")
    call("drbdadm", "primary", "--force", "r0")
    try:
        yield "drbd0"
    finally:
        call("drbdadm", "secondary", "r0")
        call("drbdadm", "down", "r0")


def test_drbd_hands_discards_on_from_its_thread() -> None:
    with full_loop() as disk, drbd(disk) as top, filesystem(top, "ext4") as point:
        os.sync()
        trims.fill_holes(image(disk))
        before = freed(disk)
        result = audit(point)
        gone = freed(disk) - before
    assert result.verdict is Verdict.ACCEPTED, result.rows
    assert result.unexplained_bytes == 0
    assert result.reached_bytes == gone > 64 * MIB
