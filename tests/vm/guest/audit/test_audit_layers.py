"""Rare layers: check's prediction, the audit, and the bytes freed in backing files."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from opwatch.tools.commands.trim.audit import audit_mount
from opwatch.trim.audit.audit import Asked
from tests.kernel.support import trims
from tests.kernel.support.trims import find_mount_at
from tests.vm.guest.support import stacked, sysfs
from tests.vm.guest.support.audits import (
    MIB,
    Audit,
    Verdict,
    audit_point,
    count_freed_bytes,
    find_image,
    find_leaf_row,
    full_loop,
    load_free_space,
    mount_filesystem,
    sum_reasons,
)
from tests.vm.guest.support.shell import run_command, write_attribute
from tests.vm.guest.support.trims import CheckAnswer, run_check
from tests.vm.requirements import need_module

# Manual runs only: these tests would exceed CI's time limit.
TIERS = ()
DEVICES = ("virtio-blk", "virtio-blk-ignored")


def check_and_audit(point: Path, *loops: str) -> tuple[CheckAnswer, Audit, int]:
    """Return (check's answer, the audit, bytes freed in the backing files)."""
    os.sync()
    for loop in loops:
        trims.fill_holes(find_image(loop))
    foretold = run_check(point)
    result = audit_point(point)
    return foretold, result, sum(count_freed_bytes(loop) for loop in loops)


@pytest.mark.parametrize("cached", [False, True])
def test_bcache_frees_bytes_on_its_backing_device(cached: bool) -> None:
    with (
        full_loop() as backing,
        full_loop(64 * MIB) as fast,
        stacked.create_bcache(backing, fast if cached else None) as top,
        mount_filesystem(top, "ext4") as point,
    ):
        foretold, result, gone = check_and_audit(point, backing)
    assert foretold.outlook in ("reaches", "part")
    assert gone > 128 * MIB
    assert result.unexplained_bytes == 0, result.rows
    assert result.reached_bytes == gone == find_leaf_row(result, backing).bytes_ok
    assert result.verdict is Verdict.ACCEPTED


def test_nested_loop_devices_reach_no_bytes() -> None:
    """The upper loop device turns discards into writes of zeroes. If the lower device then frees blocks, the
    audit reports the bytes as loop-on-device and does not count them as reached. 6.12 fails the writes, so
    nothing is freed."""
    with (
        full_loop() as below,
        trims.create_loop(f"/dev/{below}") as node,
        mount_filesystem(node.removeprefix("/dev/"), "ext4") as point,
    ):
        foretold, result, gone = check_and_audit(point, below)
    assert foretold.outlook == "unknown"
    assert (result.reached_bytes, result.unexplained_bytes) == (0, 0), result.rows
    if gone:
        assert (result.verdict, sum_reasons(result)["loop-on-device"]) == (Verdict.UNKNOWN, gone)
    else:
        assert (result.verdict, list(sum_reasons(result))) == (Verdict.REJECTED, ["loop-no-punch"])


def test_linear_target_is_partial_when_half_fails() -> None:
    """The second half's disk has gone. Discards there fail; a discard across the border fails as a whole
    although its first part was passed on."""
    with full_loop(96 * MIB) as one, full_loop(96 * MIB) as two:
        half = stacked.count_sectors(one)
        good = f"0 {half} linear /dev/{one} 0\n{half} {half} linear /dev/{two} 0"
        with (
            stacked.create_mapped("linear", good, "dm_mod") as top,
            mount_filesystem(top.name, "ext4") as point,
        ):
            load_free_space(point)
            stacked.reload_table(top.label, f"0 {half} linear /dev/{one} 0\n{half} {half} error")
            foretold, result, gone = check_and_audit(point, one)
            stacked.reload_table(top.label, good)
    assert (result.reached_bytes, result.unexplained_bytes) == (gone, 0), result.rows
    # On 6.1 the error target accepts no discards, which disables them for the whole device.
    expected = "target-fails" if gone else "target-no-discards"
    assert expected in foretold.reason_codes & sum_reasons(result).keys(), result.rows
    assert foretold.outlook == ("part" if gone else "nothing")
    assert result.verdict is (Verdict.PARTIAL if gone else Verdict.NOT_SENT)


@pytest.mark.parametrize("prove", [False, True])
def test_linear_target_is_never_proven_when_half_drops_discards(prove: bool) -> None:
    frees, drops = sysfs.disk("opw-virtio-blk"), sysfs.disk("opw-virtio-ignored")
    size = stacked.count_sectors(frees)
    table = f"0 {size} linear /dev/{frees} 0\n{size} {size} linear /dev/{drops} 0"
    with stacked.create_mapped("linear", table, "dm_mod") as top, mount_filesystem(top.name, "ext4") as point:
        foretold = run_check(point)
        result = audit_mount(find_mount_at(point), Asked(), prove=prove)
    assert foretold.outlook == "reaches"
    assert result.verdict in (Verdict.ACCEPTED, Verdict.PARTIAL, Verdict.UNKNOWN), result.proofs
    assert result.unexplained_bytes == 0
    assert "host-may-drop" in sum_reasons(result)
    assert {proof.standing.value for proof in result.proofs if proof.device == drops} <= {
        "accepted",
        "contradicted",
    }


def test_flakey_target_that_starts_to_fail_reaches_no_bytes() -> None:
    with (
        full_loop() as below,
        stacked.create_flakey(below, up_s=3600, down_s=0) as top,
        mount_filesystem(top.name, "ext4") as point,
    ):
        os.sync()
        trims.fill_holes(find_image(below))
        stacked.reload_table(top.label, f"0 {stacked.count_sectors(below)} flakey /dev/{below} 0 0 3600")
        try:
            foretold, result = run_check(point), audit_point(point)
            gone = count_freed_bytes(below)
        finally:
            good = f"0 {stacked.count_sectors(below)} flakey /dev/{below} 0 3600 0"
            stacked.reload_table(top.label, good)
    assert "target-fails" in foretold.reason_codes
    assert (result.reached_bytes, gone, result.unexplained_bytes) == (0, 0, 0), result.rows
    assert result.verdict in (Verdict.REJECTED, Verdict.NOT_SENT)
    assert "target-fails" in sum_reasons(result) or not result.claimed_bytes


def test_thin_volume_is_audited_without_dmsetup(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without dmsetup, opwatch asks device mapper directly and gets the same answers."""
    with (
        full_loop(32 * MIB) as metadata,
        full_loop() as data,
        stacked.create_thin(data, metadata, 192 * MIB // 512) as volume,
        mount_filesystem(volume.name, "ext4") as point,
    ):
        (point / "victim").write_bytes(os.urandom(32 * MIB))
        os.sync()
        (point / "victim").unlink()
        monkeypatch.setenv("PATH", "/nowhere")
        os.sync()
        trims.fill_holes(find_image(data))
        result = audit_point(point)
        monkeypatch.undo()
        assert result.reached_bytes == count_freed_bytes(data) >= 28 * MIB
    assert result.unexplained_bytes == 0, result.rows
    assert "thin-not-mapped" in sum_reasons(result)


@contextlib.contextmanager
def create_lio_target(file: Path) -> Iterator[str]:
    """Yield a SCSI disk of a local LIO target on a file."""
    for module in ("sd_mod", "target_core_mod", "target_core_file", "tcm_loop"):
        need_module(module)
    config = Path("/sys/kernel/config")
    if not (config / "target").exists():
        run_command("mount", "-t", "configfs", "configfs", str(config))
        sysfs.wait_for("the target", (config / "target").exists)
    before = {path.name for path in sysfs.SYS_BLOCK.iterdir()}
    store, port = (
        config / "target/core/fileio_0/opwatch",
        config / "target/loopback/naa.6001405000000003/tpgt_1",
    )
    store.mkdir(parents=True)
    write_attribute(store / "control", f"fd_dev_name={file},fd_dev_size={file.stat().st_size}")
    write_attribute(store / "enable", 1)
    write_attribute(store / "attrib/emulate_tpu", 1)
    port.mkdir(parents=True)
    write_attribute(port / "nexus", "naa.6001405000000004")
    (port / "lun/lun_0").mkdir()
    (port / "lun/lun_0/disk").symlink_to(store)
    try:
        sysfs.wait_for("a disk", lambda: bool({path.name for path in sysfs.SYS_BLOCK.glob("sd*")} - before))
        [name] = {path.name for path in sysfs.SYS_BLOCK.glob("sd*")} - before
        sysfs.wait_for("its size", lambda: stacked.count_sectors(name) > 0)
        time.sleep(1)
        yield name
    finally:
        (port / "lun/lun_0/disk").unlink()
        for folder in (port / "lun/lun_0", port, port.parent, store):
            folder.rmdir()


@pytest.mark.parametrize("mode", ["writesame_16", "unmap"])
def test_lio_target_on_a_file_matches_the_freed_bytes(mode: str) -> None:
    """The target refuses commands longer than its reported limit: a command fails, and the kernel stops."""
    with trims.create_file(192 * MIB, Path("/dev/shm")) as file, create_lio_target(file) as disk:
        [folder] = (sysfs.SYS_BLOCK / disk / "device/scsi_disk").iterdir()
        write_attribute(folder / "provisioning_mode", mode)
        with mount_filesystem(disk, "ext4") as point:
            os.sync()
            before = trims.fill_holes(file)
            foretold = run_check(point)
            result = audit_mount(find_mount_at(point), Asked(), prove=True)
            os.sync()
            gone = before - trims.count_allocated(file)
    assert foretold.outlook in ("reaches", "part"), foretold.document["reasons"]
    assert result.unexplained_bytes == 0, result.rows
    if not gone:
        assert (result.verdict, result.reached_bytes) == (Verdict.REJECTED, 0)
        assert "scsi-disabled" in sum_reasons(result)
    else:
        # The sentinels took blocks in the meantime. Ranges smaller than a page are zeroed but not freed.
        assert abs(result.reached_bytes - gone) <= 16 * MIB, (result.reached_bytes, gone)
        assert result.verdict in (Verdict.PROVEN_PARTWAY, Verdict.PARTIAL, Verdict.ACCEPTED), result.proofs


def test_cache_that_stopped_passdown_sends_no_discards() -> None:
    """The origin only accepts discards shorter than a cache block. The cache's status shows this."""
    need_module("dm_cache_smq")
    with (
        full_loop() as origin,
        stacked.create_loop(32 * MIB) as fast,
        stacked.create_loop(16 * MIB) as metadata,
        trims.lower_limit(origin, 64 << 10),
    ):
        nodes = f"/dev/{metadata} /dev/{fast} /dev/{origin}"
        table = f"0 {stacked.count_sectors(origin)} cache {nodes} 512 1 writethrough smq 0"
        with (
            stacked.create_mapped("cache", table, "dm_cache", "dm_cache_smq") as top,
            mount_filesystem(top.name, "ext4") as point,
        ):
            foretold, result, gone = check_and_audit(point, origin)
    assert (foretold.outlook, "cache-no-passdown" in foretold.reason_codes) == ("nothing", True)
    assert (result.verdict, result.reached_bytes, gone) == (Verdict.NOT_SENT, 0, 0)
    assert (list(sum_reasons(result)), result.unexplained_bytes) == (["cache-no-passdown"], 0)


def test_raid_5_is_partial_when_a_member_fails_in_part() -> None:
    """6.1 disables discards for the whole member, 6.12 fails those of the bad part. Others get theirs."""
    need_module("raid456")
    write_attribute(Path("/sys/module/raid456/parameters/devices_handle_discard_safely"), "Y")
    with full_loop() as one, full_loop() as two, full_loop() as three, stacked.create_linear(one) as top:
        whole = stacked.count_sectors(one)
        good, linear = whole - whole // 8, f"linear /dev/{one} 0"
        with stacked.create_md(5, [top.name, two, three]) as array, mount_filesystem(array, "ext4") as point:
            try:
                stacked.reload_table(top.label, f"0 {good} {linear}\n{good} {whole - good} error")
                foretold, result, gone = check_and_audit(point, one, two, three)
            finally:
                stacked.reload_table(top.label, f"0 {whole} {linear}")
    assert foretold.outlook == "part"
    assert result.verdict is Verdict.PARTIAL
    assert (result.reached_bytes, result.unexplained_bytes) == (gone, 0), result.rows
