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
    audit_point,
    count_freed_bytes,
    find_image,
    full_loop,
    mount_filesystem,
    sum_reasons,
)
from tests.vm.guest.support.shell import run_command
from tests.vm.guest.support.stacked import (
    count_sectors,
    create_crypt,
    create_linear,
    create_mapped,
    create_thin,
    reload_table,
)
from tests.vm.guest.support.trims import run_check
from tests.vm.requirements import need_module, need_tool

# Manual runs only: these tests would exceed CI's time limit.
TIERS = ()
DEVICES = ("virtio-blk",)


def test_half_that_is_dropped_on_a_second_path_is_partial() -> None:
    with full_loop(512 * MIB) as disk:
        half = count_sectors(disk) // 2
        flakey = f"0 {half} flakey /dev/{disk} {half}"
        with create_mapped("flakey", f"{flakey} 100 0") as second:
            table = f"0 {half} linear /dev/{disk} 0\n{half} {half} linear /dev/{second.name} 0"
            with create_mapped("linear", table, "dm_mod") as top, mount_filesystem(top.name, "ext4") as point:
                os.sync()
                reload_table(second.label, f"{flakey} 0 100 1 drop_writes")
                trims.fill_holes(find_image(disk))
                before = count_freed_bytes(disk)
                result = audit_point(point)
                gone = count_freed_bytes(disk) - before
                reload_table(second.label, f"{flakey} 100 0")
    assert result.verdict is Verdict.PARTIAL
    assert exit_status([result.verdict]) == 64
    assert "target-fails" in sum_reasons(result)
    assert result.reached_bytes == gone
    assert result.claimed_bytes is not None
    assert result.unexplained_bytes == 0
    assert gone < result.claimed_bytes * 3 // 4


def test_lvm_on_luks_without_discards_names_luks_alone() -> None:
    with (
        full_loop() as disk,
        create_crypt(disk, discards=False) as luks,
        create_linear(luks.name) as volume,
        mount_filesystem(volume.name, "ext4") as point,
    ):
        expected, result = run_check(point), audit_point(point)
    assert result.verdict is Verdict.NOT_SENT
    assert set(sum_reasons(result)) == {"crypt-no-discards"}
    assert expected.document["stopped_at"] == luks.name


def test_second_trim_over_a_pool_without_passdown_is_not_success() -> None:
    with (
        full_loop() as data,
        full_loop(32 * MIB) as metadata,
        create_thin(data, metadata, count_sectors(data) // 2, "1 no_discard_passdown") as volume,
        mount_filesystem(volume.name, "ext4") as point,
    ):
        run_command("fstrim", str(point))
        result = audit_point(point)
    assert result.verdict is Verdict.NOT_SENT
    assert {"thin-no-passdown", "ext4-already-trimmed"} <= sum_reasons(result).keys()


_RESOURCE = """resource r0 {{
  device /dev/drbd0;
  disk /dev/{disk};
  meta-disk internal;
  on {host} {{ address 127.0.0.1:7789; }}
  on elsewhere {{ address 127.0.0.1:7790; }}
}}
"""


@contextlib.contextmanager
def create_drbd(disk: str) -> Iterator[str]:
    """Yield a DRBD device on a disk, primary and without its peer."""
    need_module("drbd")
    need_tool("drbdadm")
    host = run_command("uname", "-n").strip()
    Path("/etc/drbd.d/r0.res").write_text(_RESOURCE.format(disk=disk, host=host), encoding="ascii")
    run_command("drbdadm", "create-md", "--force", "r0")
    run_command("drbdadm", "up", "r0")
    run_command("drbdadm", "primary", "--force", "r0")
    try:
        yield "drbd0"
    finally:
        run_command("drbdadm", "secondary", "r0")
        run_command("drbdadm", "down", "r0")


def test_drbd_hands_discards_on_from_its_thread() -> None:
    with full_loop() as disk, create_drbd(disk) as top, mount_filesystem(top, "ext4") as point:
        os.sync()
        trims.fill_holes(find_image(disk))
        before = count_freed_bytes(disk)
        result = audit_point(point)
        gone = count_freed_bytes(disk) - before
    assert result.verdict is Verdict.ACCEPTED, result.rows
    assert result.unexplained_bytes == 0
    assert result.reached_bytes == gone > 64 * MIB
