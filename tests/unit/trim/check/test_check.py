"""Every cause that is recognisable without a trace, in a tree that shows the cause."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.sinks.trim_check import CheckResult, build_check_document, format_check
from opwatch.tools import cli
from opwatch.tools.commands.trim.check import choose_exit_status
from opwatch.trim.check.dry_run import predict_devices
from opwatch.trim.check.prediction import Outlook, Prediction
from opwatch.trim.check.rules import find_reasons
from opwatch.trim.filesystems.ext4 import make_default_groups
from opwatch.trim.layers.loop import LoopFacts
from opwatch.trim.space.extents import Extents
from opwatch.trim.stack.causes import Effect, load_causes
from opwatch.trim.stack.layers import Kind, find_changes
from tests.unit.support.sysfs import SSD_QUEUE, write_attributes
from tests.unit.support.trimcases import (
    CASES,
    CRYPT,
    POOL_STATUS,
    Case,
    N,
    P,
    R,
    build_loop,
    build_nvme,
    build_thin,
)
from tests.unit.support.trimtree import MIB, NO_DISCARD, Machine


def predict_case(case: Case, m: Machine) -> Prediction:
    case.build(m)
    free = [(start * 512, end * 512) for start, end in case.free]
    return m.predict_trim(free=free, fstab_options=tuple(filter(None, case.fstab.split(","))))


@pytest.mark.parametrize("name", CASES)
def test_each_cause_is_recognised(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    outlook = predict_case(case, Machine(tmp_path))
    assert sorted(reason.code for reason in outlook.reasons) == sorted(case.codes.split())
    assert outlook.outlook is case.outlook
    assert (outlook.stopped_at is not None) or case.outlook is not N


@pytest.mark.parametrize("name", CASES)
def test_output_fits_in_80_columns_and_is_json(name: str, tmp_path: Path) -> None:
    m = Machine(tmp_path)
    outlook = predict_case(CASES[name], m)
    checked = CheckResult(m.read_stack(), outlook, ())
    printed = format_check(checked)
    # A line is longer only if it is a single word or a command.
    commands = {command for reason in outlook.reasons for command in reason.advice[1::2]}
    longer = [line.strip() for line in printed if len(line) > 80]
    assert [line for line in longer if " " in line and line not in commands] == []
    hidden = {reason.code for reason in outlook.reasons if reason.cause.effect is Effect.HIDES}
    left_out = hidden if outlook.outlook is N else set()
    assert [reason.code for reason in outlook.reasons if reason.code not in "\n".join(printed)] == [
        reason.code for reason in outlook.reasons if reason.code in left_out
    ]
    assert "<" not in "".join(reason.remedy for reason in outlook.reasons if "libvirt" not in reason.remedy)
    assert json.loads(json.dumps(build_check_document(checked)))["outlook"] == outlook.outlook.value


def test_every_cause_of_a_check_has_a_case() -> None:
    shown = {code for case in CASES.values() for code in case.codes.split()}
    # Causes with separate tests: paths, timers, device-backed loop files, and open files.
    elsewhere = {"not-a-mount-point", "timer-off", "timer-skips-mount", "loop-on-device", "not-free-yet"}
    elsewhere |= {"loop-file-shared", "btrfs-seed"}
    wanted = {code for code, cause in load_causes().items() if "check" in cause.seen_by}
    assert wanted - shown == elsewhere
    assert shown <= wanted


# --- figures


def test_dry_run_bytes_add_up(tmp_path: Path) -> None:
    outlook = predict_case(CASES["short extents"], Machine(tmp_path))
    [run] = outlook.runs
    assert run.free_bytes == (8 + 1 + 4096) * 512
    assert run.below_minimum_bytes == 512
    # Eight sectors from sector 1 contain no whole granule, because granules of eight sectors start at sector
    # 0.
    assert run.rounded_bytes == 8 * 512
    assert outlook.expected_bytes == run.expected_bytes == 4096 * 512
    assert run.free_bytes == run.below_minimum_bytes + run.rounded_bytes + run.expected_bytes


def test_granules_start_at_the_kernels_alignment(tmp_path: Path) -> None:
    m = Machine(tmp_path)
    m.add_scsi_disk(queue=SSD_QUEUE | {"discard_granularity": str(MIB)})
    folder = m.tree.add_partition("sda", "sda1", "8:1", start=34, sectors=1 << 20)
    write_attributes(folder, {"discard_alignment": str(MIB - 34 * 512)})
    m.add_mount("8:1")
    [run] = m.predict_trim(free=[(0, 2 * MIB)]).runs
    assert (run.granule_bytes, run.expected_bytes) == (MIB, MIB)


def test_an_nvme_drive_frees_in_its_own_unit(tmp_path: Path) -> None:
    m = Machine(tmp_path)
    build_nvme(m, lbas=8)
    m.tree.add_partition("nvme0n1", "nvme0n1p1", "259:1", start=2047, sectors=1 << 20)
    m.add_mount("259:1")
    [run] = m.predict_trim(free=[(0, 8 * 512)]).runs
    # The first unit of 8 blocks begins at block 2048 of the disk, which is block 1 of the partition.
    assert (run.granule_bytes, run.expected_bytes, run.rounded_bytes) == (4096, 0, 4096)


def test_each_piece_of_an_extent_is_rounded_for_itself(tmp_path: Path) -> None:
    m = Machine(tmp_path)
    m.add_scsi_disk(queue=SSD_QUEUE | {"discard_granularity": "4096"})
    m.add_mount("8:0")
    groups = make_default_groups(1024)
    free = {"8:0": Extents.from_pairs([(0, 20 * MIB)])}
    [run] = predict_devices(m.read_stack(), free, 0, groups)
    # Groups of 8 MiB from 1 KiB on: two group borders split granules, which are lost, and the first piece of
    # 1 KiB is too short.
    assert (run.extents, run.below_minimum_bytes) == (4, 1024)
    assert run.rounded_bytes == 3 * 4096 - 1024
    assert run.expected_bytes == 20 * MIB - 3 * 4096
    assert make_default_groups(4096) == (128 * MIB, 0)


def test_trim_that_does_not_arrive_has_no_dry_run(tmp_path: Path) -> None:
    m = Machine(tmp_path)
    CASES["crypt"].build(m)
    outlook = m.predict_trim(free=[(0, MIB)])
    assert (outlook.outlook, outlook.expected_bytes, outlook.runs, outlook.accepted) == (N, 0, (), False)


def test_minimum_above_every_extent_leaves_no_trim(tmp_path: Path) -> None:
    """Some filesystems refuse a minimum above their group size, others find no extents; both send no
    discards."""
    m = Machine(tmp_path)
    m.add_scsi_disk()
    m.add_mount("8:0")
    free = [(0, MIB), (8 * MIB, 10 * MIB)]
    outlook = m.predict_trim(free=free, minimum_bytes=200 * MIB)
    assert (outlook.outlook, outlook.expected_bytes, outlook.accepted, outlook.unknowable) == (N, 0, None, ())
    assert "below-minimum" in {reason.code for reason in outlook.reasons}
    assert choose_exit_status([outlook.outlook]) == 32
    printed = format_check(CheckResult(m.read_stack(), outlook, ()))
    assert ": NOTHING " in " ".join(printed[0].split())
    assert m.predict_trim(free=free, minimum_bytes=2 * MIB).outlook is R


def test_predicted_success_matches_the_kernels_claim(tmp_path: Path) -> None:
    m = Machine(tmp_path)
    CASES["thin no passdown"].build(m)
    assert m.predict_trim().accepted is True


# --- layers


def test_names_and_limits_replace_tables_without_privilege(tmp_path: Path) -> None:
    m = Machine(tmp_path)
    m.add_scsi_disk()
    m.add_dm_device(0, CRYPT, "sda", queue=NO_DISCARD, uuid="CRYPT-LUKS2-0123-home", label="home")
    m.add_mount("253:0")
    m.dm.locked = True
    outlook = m.predict_trim()
    assert [reason.code for reason in outlook.reasons] == ["crypt-no-discards", "advisory"]
    assert "home" in outlook.reasons[0].remedy
    unknown = m.read_stack().layers[0].unknown
    assert [(key, "root" in why) for key, why in unknown.items()] == [("table", True)]


def test_without_privilege_a_thin_pool_leaves_a_doubt(tmp_path: Path) -> None:
    m = Machine(tmp_path)
    build_thin(m)
    m.dm.locked = True
    assert [layer.kind for layer in m.read_stack().layers[:2]] == [Kind.THIN, Kind.THIN_POOL]
    outlook = m.predict_trim()
    assert outlook.outlook is R
    assert any("vg-pool-tpool" in doubt for doubt in outlook.unknowable)


def test_only_the_data_device_of_a_pool_counts(tmp_path: Path) -> None:
    m = Machine(tmp_path)
    m.add_scsi_disk("sda", queue=NO_DISCARD, mode="full")
    m.add_scsi_disk("sdb", where="pci0000:00/hostb/target/b")
    status = POOL_STATUS.format(mode="rw", discards="discard_passdown")
    m.add_dm_device(2, "0 1600000 thin-pool 8:0 8:16 2048 0 0", "sda", "sdb", status=status)
    m.add_mount("253:2")
    assert m.predict_trim().outlook is R


@pytest.mark.parametrize(
    ("table", "outlook"),
    [
        ("0 8 era 8:16 8:0 128", R),
        ("0 8 era 8:0 8:16 128", N),
        ("0 8 clone 8:16 8:0 8:16 8", R),
        ("0 8 cache 8:16 8:16 8:0 512 0 smq 0", R),
    ],
)
def test_helper_device_does_not_count(table: str, outlook: Outlook, tmp_path: Path) -> None:
    """sda supports discards and sdb does not."""
    m = Machine(tmp_path)
    m.add_scsi_disk("sda")
    m.add_scsi_disk("sdb", where="pci0000:00/hostb/target/b", queue=NO_DISCARD, mode="full")
    m.add_dm_device(0, table, "sda", "sdb")
    m.add_mount("253:0")
    assert m.predict_trim().outlook is outlook


def test_upper_layers_come_before_lower_layers(tmp_path: Path) -> None:
    m = Machine(tmp_path)
    build_thin(m)
    assert [layer.device for layer in m.read_stack().layers] == ["dm-3", "dm-2", "dm-0", "dm-1", "sda"]


def test_changes_between_two_readings_are_reported(tmp_path: Path) -> None:
    m = Machine(tmp_path)
    m.add_scsi_disk()
    m.add_mount("8:0")
    before = m.read_stack()
    assert find_changes(before, m.read_stack()) == []
    device = m.tree["sda"].sysfs
    write_attributes(device / "device/scsi_disk/1:0:0:0", {"provisioning_mode": "disabled"})
    write_attributes(device, {"queue/discard_max_bytes": "0"})
    differences = {
        (change.device, change.fact): (change.before, change.after)
        for change in find_changes(before, m.read_stack())
    }
    assert differences == {
        ("sda", "max_bytes"): (2147450880, 0),
        ("sda", "provisioning_mode"): ("unmap", "disabled"),
    }


def test_a_loop_on_a_device_is_followed_down(tmp_path: Path) -> None:
    m = Machine(tmp_path)
    m.add_scsi_disk()
    build_loop(m, SSD_QUEUE)
    stack = m.read_stack()
    # Creating a node needs root; tests/kernel tests the walk with real nodes.
    top = replace(stack.layers[0], facts=LoopFacts(backing_file="/dev/sda", backing_is_device=True))
    assert [why.code for why in find_reasons(replace(stack, layers=(top,)), top)] == ["loop-on-device"]


@pytest.mark.parametrize(("kind", "codes"), [("tmpfs", set()), ("xfs", {"loop-frees-file"})])
def test_a_file_in_memory_is_on_no_drive(kind: str, codes: set[str], tmp_path: Path) -> None:
    m = Machine(tmp_path)
    build_loop(m, SSD_QUEUE)
    stack = m.read_stack()
    facts = replace(stack.layers[0].facts_as(LoopFacts), backing_filesystem=kind, backing_mount="/dev/shm")
    top = replace(stack.layers[0], facts=facts)
    assert {why.code for why in find_reasons(replace(stack, layers=(top,)), top)} == codes


def test_a_simulated_drive_is_a_drive(tmp_path: Path) -> None:
    m = Machine(tmp_path)
    build_loop(m, SSD_QUEUE)
    stack = m.read_stack()
    top = replace(stack.layers[0], facts=LoopFacts(backing_file="/x/mnt/disk", simulated_drive=True))
    assert [why.code for why in find_reasons(replace(stack, layers=(top,)), top)] == ["advisory"]


def test_vanished_path_leaves_no_layer(tmp_path: Path) -> None:
    m = Machine(tmp_path)
    m.add_mount("8:0")
    outlook = m.predict_trim()
    assert (outlook.outlook, outlook.reasons) == (Outlook.UNKNOWN, ())


# --- the command


@pytest.mark.parametrize(
    ("outlooks", "status"),
    [([R, R], 0), ([N], 32), ([N, N], 32), ([R, N], 64), ([P], 64), ([Outlook.UNKNOWN], 64)],
)
def test_exit_statuses_match_fstrim(outlooks: list[Outlook], status: int) -> None:
    assert choose_exit_status(outlooks) == status


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--all", "/"), "excludes"),
        (("/nonexistent",), f"/nonexistent: {os.strerror(errno.ENOENT)}"),
        (("--dev", "nope"), f"nope: {os.strerror(errno.ENOENT)}"),
        (("-m", "big", "/"), "'big' "),
    ],
)
def test_invalid_command_line_names_the_reason(
    arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status: object = cli.main(["trim", "check", *arguments])
    except SystemExit as end:  # raised by an argument's type
        status = end.code
    assert status == 2
    assert complaint in capsys.readouterr().err


def test_rounded_limit_does_not_count_as_lowered(tmp_path: Path) -> None:
    m = Machine(tmp_path)
    rounded = {
        "discard_granularity": "4096",
        "discard_max_bytes": "4096000",
        "discard_max_hw_bytes": "4099584",
    }
    m.add_scsi_disk(queue=SSD_QUEUE | rounded)
    m.add_mount("8:0")
    assert [why.code for why in m.predict_trim().reasons] == ["advisory"]


def test_every_effect_has_a_description() -> None:
    assert {cause.effect for cause in load_causes().values()} == set(Effect)
