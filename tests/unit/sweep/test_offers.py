"""Methods to set a level or purge a drive, from the drive's own data; a sweep uses no other method."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwatch.codec import decode, encode
from opwatch.counters.decode.identify import (
    LENGTH,
    Controller,
    Namespace,
    decode_controller,
    decode_namespace,
)
from opwatch.errors import BadInput, OpwatchError, PermissionMissing, RefusedError, UsageError
from opwatch.host.device import BlockDevice, Devices
from opwatch.journal.request import SweepRequest
from opwatch.journal.undo import HighestUndo, PartitionUndo, parse_undo
from opwatch.sweep.ata.offers import decode_features, decode_identify
from opwatch.sweep.levels import LevelScale, parse_levels
from opwatch.sweep.methods import METHODS, SWEEP_METHODS
from opwatch.sweep.namespace.offer import NamespaceOffer
from opwatch.sweep.plan import StepKind, SweepPace, SweepSpeed, plan_steps
from opwatch.sweep.purges import PURGES, find_purge
from opwatch.tools.acting.sweep import offers as offers_module
from opwatch.tools.acting.sweep.offers import find_method_refusal, find_purge_refusal
from tests.unit.sweep.namespace.test_offer import OFFER
from tests.unit.sweep.namespace.test_sanitize import OFFER as SANITIZED
from tests.unit.sweep.test_journal import REQUEST

FIXTURES = Path(__file__).parents[2] / "fixtures"
# Values of QEMU's page: sectors, bytes per sector, serial number.
QEMU = (524288, 512, "opw-ahci")
DRIVE = Controller(can_format=True, manages_namespaces=True, most_namespaces=256)
ALONE = Namespace(lba_bytes=512)


def read_page(name: str, kind: str = "good") -> bytes:
    return bytes.fromhex((FIXTURES / kind / "guard" / f"{name}.hex").read_text())


def encode_with_words(**words: int) -> bytes:
    """Return QEMU's page with changed IDENTIFY words."""
    changed = bytearray(read_page("page-89-qemu"))
    for name, value in words.items():
        at = 60 + 2 * int(name.removeprefix("w"))
        changed[at : at + 2] = value.to_bytes(2, "little")
    return bytes(changed)


def make_disk(folder: Path, name: str, ata_page: bytes | None = None) -> BlockDevice:
    sysfs = folder / "block" / name
    (sysfs / "device").mkdir(parents=True)
    (sysfs / "size").write_text("2048\n")
    if ata_page is not None:
        (sysfs / "device" / "vpd_pg89").write_bytes(ata_page)
    (folder / "class" / "block").mkdir(parents=True)
    (folder / "class" / "block" / name).symlink_to(sysfs)
    disk = Devices(folder).by_name(name)
    assert disk
    return disk


def test_nvme_identify_lists_the_offers() -> None:
    raw = bytearray(LENGTH)
    assert decode_controller(bytes([1]) + bytes(LENGTH - 1)) == Controller(vendor_id=1)
    raw[0], raw[256], raw[524], raw[328], raw[516:518] = 1, 0b1010, 1, 2, b"\x80\x01"
    controller = decode_controller(bytes(raw))
    assert (controller.can_format, controller.manages_namespaces, controller.formats_all) == (
        True,
        True,
        True,
    )
    assert (controller.can_sanitize, controller.most_namespaces) == (True, 0x180)
    assert (controller.erases_blocks, controller.erases_keys, controller.has_peers) == (True, False, False)
    raw[328], raw[76] = 1, 0b100
    controller = decode_controller(bytes(raw))
    assert (controller.erases_blocks, controller.erases_keys, controller.has_peers) == (False, True, True)


def test_ata_identify_lists_the_offers() -> None:
    # QEMU has READ NATIVE MAX ADDRESS, but not the feature set.
    assert list_features(read_page("page-89-qemu")) == (False, False, False, False, False)
    assert list_features(encode_with_words(w82=0x0402, w85=0x0402)) == (True, False, True, False, False)
    # The feature is supported but not enabled.
    assert list_features(encode_with_words(w82=0x0402, w85=0x0002)) == (False, False, True, False, False)
    assert list_features(encode_with_words(w82=0x0002, w128=0x0009)) == (False, False, True, True, False)
    assert list_features(encode_with_words(w82=0x0002, w128=0x0005)) == (False, False, True, False, True)
    later = {"w86": 0x8000, "w87": 0x4000, "w119": 0x4100}
    assert list_features(encode_with_words(**later)) == (False, True, False, False, False)
    # Words 83, 86 and 119 can declare the other words invalid.
    assert not any(list_features(encode_with_words(w82=0x0402, w85=0x0402, w83=0xFFFF)))
    assert not any(list_features(encode_with_words(**later | {"w86": 0})))
    assert not any(list_features(encode_with_words(**later | {"w119": 0xFFFF})))


def test_ata_identify_gives_size_and_serial() -> None:
    plain = decode_features(read_page("page-89-qemu"))
    assert (plain.sectors, plain.sector_bytes, plain.serial) == QEMU
    large = decode_features(encode_with_words(w83=0x4400, w106=0x5000, w117=2048, w118=0, w101=1))
    assert (large.sectors, large.sector_bytes) == (1 << 16, 4096)
    with pytest.raises(BadInput, match="IDENTIFY DEVICE of 511 bytes"):
        decode_identify(bytes(511))


def list_features(raw: bytes) -> tuple[bool, ...]:
    it = decode_features(raw)
    return (it.has_protected_area, it.has_accessible_max, it.has_security, it.is_frozen, it.is_locked)


@pytest.mark.parametrize("name", ["page-89-short", "page-89-atapi"])
def test_a_damaged_page_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="page 89h"):
        decode_features(read_page(name, "bad"))


@given(st.binary(max_size=600))
def test_any_page_is_decoded_or_refused(raw: bytes) -> None:
    try:
        decode_features(raw)
    except BadInput:
        assert len(raw) < 572 or raw[1] != 0x89 or raw[56] != 0xEC


def find_nvme_refusal(
    folder: Path, method: str, controller: Controller, namespace: Namespace = ALONE
) -> str | None:
    return find_method_refusal(make_disk(folder, "nvme0n1"), method, lambda _: (controller, namespace))


@pytest.mark.parametrize(
    ("controller", "namespace", "why"),
    [
        (replace(DRIVE, manages_namespaces=False), ALONE, "OACS bit 3 is 0"),
        (DRIVE, replace(ALONE, is_shared=True), "(NMIC)"),
        (DRIVE, ALONE, "cannot query the namespaces of nvme0n1"),
    ],
)
def test_namespace_is_not_replaced_with_an_objection(
    controller: Controller, namespace: Namespace, why: str, tmp_path: Path
) -> None:
    assert why in (find_nvme_refusal(tmp_path, "namespace", controller, namespace) or "")


def test_namespace_is_replaced_without_an_objection(tmp_path: Path) -> None:
    disk = make_disk(tmp_path, "nvme0n1")

    def find_refusal(offer: NamespaceOffer) -> str | None:
        return find_method_refusal(disk, "namespace", lambda _: (DRIVE, ALONE), lambda _: offer)

    assert find_refusal(OFFER) is None
    two = find_refusal(replace(OFFER, allocated=(1, 2), is_zoned=True))
    assert re.match(r"nvme0n1 .*\(1\): 1, 2; ", two or "")


def test_drive_that_cannot_be_queried_is_refused(tmp_path: Path) -> None:
    def refuse_identify(_: BlockDevice) -> tuple[Controller, Namespace]:
        raise OpwatchError("Identify needs CAP_SYS_ADMIN")

    refused = find_method_refusal(make_disk(tmp_path, "nvme0n1"), "namespace", refuse_identify)
    assert refused and "nvme0n1" in refused and refused.endswith(": Identify needs CAP_SYS_ADMIN")


@pytest.mark.parametrize(
    ("ata_page", "why"),
    [
        (None, " ATA "),
        (read_page("page-89-qemu"), "(IDENTIFY word 82 bit 10 is 0)"),
        (encode_with_words(w82=0x0400), "protected"),
        (encode_with_words(w82=0x0402, w85=0x0402, w128=0x0009), "frozen"),
        (encode_with_words(w82=0x0402, w85=0x0402, w128=0x0005), "locked"),
        (read_page("page-89-atapi", "bad"), "report"),
    ],
)
def test_address_is_not_lowered_with_an_objection(ata_page: bytes | None, why: str, tmp_path: Path) -> None:
    assert why in (find_method_refusal(make_disk(tmp_path, "sda", ata_page), "max-address") or "")


def test_drive_that_needs_root_is_probed_at_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan without root reports that root is missing and claims no other facts about the drive."""
    disk = make_disk(tmp_path, "sda", encode_with_words(w82=0x0400, w85=0x0400))
    for error, refused in ((PermissionMissing("no"), None), (RefusedError("hidden"), "hidden")):
        monkeypatch.setattr(offers_module, "probe_highest", Mock(side_effect=error))
        assert find_method_refusal(disk, "max-address") == refused


def test_kernel_that_removes_the_limit_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offers_module, "probe_highest", Mock())
    module = tmp_path / "libata"
    (module / "parameters").mkdir(parents=True)
    disk = make_disk(tmp_path / "ata7", "sda", encode_with_words(w82=0x0400, w85=0x0400))
    monkeypatch.setattr(offers_module, "LIBATA", module)
    for value, refused in (("0", None), ("1", "libata.ignore_hpa is 1")):
        (module / "parameters" / "ignore_hpa").write_text(f"{value}\n")
        assert refused in (find_method_refusal(disk, "max-address") or "") if refused else True
        assert (find_method_refusal(disk, "max-address") is None) == (refused is None)


def encode_namespace(lba_format: int, metadata: int = 0, protection: int = 0) -> bytes:
    raw = bytearray(LENGTH)
    raw[0], raw[26], raw[29] = 1, lba_format, protection
    raw[128 + 4 * lba_format : 132 + 4 * lba_format] = metadata.to_bytes(2, "little") + b"\x0c\x00"
    return bytes(raw)


def test_identify_gives_the_block_size_of_a_namespace() -> None:
    plain, full = decode_namespace(encode_namespace(4)), decode_namespace(encode_namespace(7, 64, 1))
    assert (plain.lba_format, plain.lba_bytes, plain.metadata_bytes, plain.protection) == (4, 4096, 0, 0)
    assert (full.lba_format, full.metadata_bytes, full.protection) == (7, 64, 1)


@pytest.mark.parametrize(
    ("controller", "namespace", "why"),
    [
        (DRIVE, ALONE, None),
        (replace(DRIVE, formats_all=True, most_namespaces=1), ALONE, None),
        (
            replace(DRIVE, formats_all=True),
            ALONE,
            "all namespaces of the drive (FNA), of which it may have 256",
        ),
        (replace(DRIVE, can_format=False), ALONE, "OACS bit 1 is 0"),
        (DRIVE, replace(ALONE, is_shared=True), "(NMIC)"),
        (DRIVE, replace(ALONE, metadata_bytes=8), "metadata"),
        (DRIVE, replace(ALONE, protection=1), "protection"),
    ],
)
def test_format_needs_a_single_plain_namespace(
    controller: Controller,
    namespace: Namespace,
    why: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: "/usr/sbin/nvme")
    refused = find_purge_refusal(make_disk(tmp_path, "nvme0n1"), "format", lambda _: (controller, namespace))
    assert refused is None if why is None else why in (refused or "")


def test_format_is_unavailable_without_its_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    refused = find_purge_refusal(make_disk(tmp_path, "nvme0n1"), "format", lambda _: (DRIVE, ALONE))
    assert refused and refused.startswith("nvme-cli ")


@pytest.mark.parametrize(
    ("way", "name", "ata_page", "why"),
    [
        ("format", "sda", None, " NVMe "),
        ("sanitize", "sda", None, " NVMe "),
        ("sanitize", "nvme0n1", None, " Sanitize "),
        ("secure-erase", "nvme0n1", None, " ATA "),
        ("secure-erase", "sda", read_page("page-89-qemu"), "IDENTIFY word 82 bit 1 is 0"),
        ("secure-erase", "sda", read_page("page-89-atapi", "bad"), "report"),
    ],
)
def test_unsupported_purge_is_refused(
    way: str, name: str, ata_page: bytes | None, why: str, tmp_path: Path
) -> None:
    refused = find_purge_refusal(make_disk(tmp_path, name, ata_page), way, lambda _: (DRIVE, ALONE))
    assert why in (refused or "")


def test_sanitize_is_offered_if_there_is_no_objection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, look = make_disk(tmp_path, "nvme0n1"), Mock(return_value=SANITIZED)
    monkeypatch.setattr(offers_module, "find_sanitize_offer", look)

    def find_refusal() -> str | None:
        return find_purge_refusal(disk, "sanitize", lambda _: (SANITIZED.controller, ALONE))

    assert find_refusal() is None
    look.return_value = replace(SANITIZED, namespaces=(1, 2))
    assert re.match(r"nvme0n1 .*\(1\).*: 1, 2", find_refusal() or "")
    look.side_effect = OpwatchError("log page 81h: no")
    assert (find_refusal() or "").endswith(" nvme0n1: log page 81h: no")


def test_plan_names_the_purge() -> None:
    [level] = parse_levels("0%", LevelScale(1 << 30))
    for way in PURGES:
        steps = plan_steps([level], "window", SweepPace(), SweepSpeed(), find_purge(way.name))
        discarded = 0 if way.name in ("format", "secure-erase") else 1 << 30
        [purge] = [step for step in steps if step.kind is StepKind.PURGE]
        assert (purge.what, purge.discard_bytes) == (way.what, discarded)
    with pytest.raises(UsageError, match="'magic'"):
        find_purge("magic")


def test_journal_keeps_the_purge() -> None:
    document = encode(replace(REQUEST, purge="format"))
    assert decode(SweepRequest, document, "it").purge == "format"
    for key in ("purge", "method"):
        with pytest.raises(BadInput, match="magic"):
            decode(SweepRequest, document | {key: "magic"}, "it")
        with pytest.raises(BadInput, match=rf"\b{key} .*missing"):
            decode(SweepRequest, {name: document[name] for name in document.keys() - {key}}, "it")


def test_undo_is_parsed_from_its_text() -> None:
    for undo in (PartitionUndo(32 << 20), HighestUndo(32 << 20, 64 << 20)):
        assert parse_undo(str(undo)) == undo


@pytest.mark.parametrize(
    "text",
    [
        "",
        "partition 2: 5 bytes from the begin",
        "partition 1: -5 bytes from the begin",
        "partition 1: 5 bytes from the begin\n",
        "partition 1: \u0665 bytes from the begin",
        f"partition 1: {'9' * 21} bytes from the begin",
        "namespace 1 of 5 blocks",
        "namespace 1: 5 blocks of 512 bytes, capacity 5, format 0, set 0, group 0",
        "highest address: 5 bytes",
        "highest address: 5 of -6 bytes",
    ],
)
def test_a_change_that_is_not_known_is_not_undone(text: str) -> None:
    with pytest.raises(BadInput, match=re.escape(repr(text)[:100])):
        parse_undo(text)


def test_some_methods_depend_on_the_drive_and_others_do_not(tmp_path: Path) -> None:
    disk = make_disk(tmp_path, "sda")
    ways = {method.name: find_method_refusal(disk, method.name) for method in METHODS}
    # A sweep by namespaces needs a drive with namespaces.
    assert re.match("sda .*NVMe", ways["namespace"] or "")
    hanging = {"namespace", "max-address"}
    assert {name for name, refused in ways.items() if refused is None} == set(SWEEP_METHODS) - hanging
