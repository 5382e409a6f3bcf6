"""Trim counters in drive reports: the page and item, and similar values that are not trim counters."""

from __future__ import annotations

from pathlib import Path

import pytest

from opwatch.counters.catalogue.families import TRIMS, load_catalogue, load_trims
from opwatch.counters.decode import ocp
from opwatch.counters.decode.pages import BadPage
from opwatch.counters.decode.vendor_page import decode_kv10
from opwatch.counters.evidence import Attribute, Evidence, VendorPage
from opwatch.counters.prove.trims import TrimCount, find_trim_counts
from opwatch.counters.reading import DriveFacts

MEMBLAZE = DriveFacts(protocol="nvme", model="P6531DT0384M00", vendor_id=0x1C5F)


def encode_items(items: dict[int, int], version: int = 3) -> bytes:
    """Return a page of items of 10 bytes."""
    raw = b"".join(bytes((key, 100)) + value.to_bytes(6, "little") + bytes(2) for key, value in items.items())
    return raw.ljust(511, b"\0") + bytes((version,))


FIXTURES = Path(__file__).parents[2] / "fixtures"


def test_simulated_drive_page_is_decoded() -> None:
    """The drive got trims of 1005 sectors and has units of 8."""
    items = decode_kv10((FIXTURES / "good" / "trim" / "log-ca.bin").read_bytes())
    assert items["E5"].raw == 992
    with pytest.raises(BadPage, match="version 2"):
        decode_kv10((FIXTURES / "bad" / "trim" / "log-ca.bin").read_bytes())


def test_ten_byte_items_are_decoded() -> None:
    items = decode_kv10(encode_items({0xAB: 7, 0xE5: 123456789, 0xFE: (1 << 48) - 2}))
    assert {key: item.raw for key, item in items.items()} == {"AB": 7, "E5": 123456789, "FE": (1 << 48) - 2}
    assert items["E5"].normalized == 100


@pytest.mark.parametrize(
    ("page", "why"),
    [
        (encode_items({0xE5: 1}, version=2), "version 2"),
        (encode_items({0xE5: 1})[:100], "100 bytes"),
        (bytes(512), "zeroes"),
        (encode_items({})[:10].join([b"\xe5\x01\1\0\0\0\0\0\0\0"] * 3).ljust(511, b"\0") + b"\3", "twice"),
    ],
)
def test_foreign_pages_are_not_decoded(page: bytes, why: str) -> None:
    with pytest.raises(BadPage, match=why):
        decode_kv10(page)


def test_memblaze_counts_sectors() -> None:
    evidence = Evidence(drive=MEMBLAZE, vendor=(VendorPage(0xCA, encode_items({0xE5: 1000})),))
    assert find_trim_counts(evidence, load_trims()) == [TrimCount("log CAh E5", 1000, 512)]


@pytest.mark.parametrize(
    "evidence",
    [
        Evidence(
            drive=DriveFacts(protocol="nvme", model="X", vendor_id=0x144D),
            vendor=(VendorPage(0xCA, encode_items({0xE5: 1})),),
        ),
        Evidence(drive=MEMBLAZE, vendor=(VendorPage(0xCA, encode_items({0xE5: 1}, version=2)),)),
        Evidence(drive=MEMBLAZE, vendor=(VendorPage(0xCA, encode_items({0xE6: 1})),)),
        Evidence(drive=MEMBLAZE),
    ],
    ids=["another maker", "another layout", "no such item", "no page"],
)
def test_unrelated_values_are_not_trim_counts(evidence: Evidence) -> None:
    assert find_trim_counts(evidence, load_trims()) == []


def encode_boot_page(commands: int) -> bytes:
    page = bytearray(512)
    page[172:188] = commands.to_bytes(16, "little")
    page[496:] = ocp.BOOT_GUID
    return bytes(page)


def test_boot_drives_count_commands() -> None:
    page = ocp.decode_c0(encode_boot_page(977))
    assert isinstance(page, ocp.BootLog)
    evidence = Evidence(drive=DriveFacts(protocol="nvme"), boot=page)
    [count] = find_trim_counts(evidence, load_trims())
    assert "C0h" in count.source and count == TrimCount(count.source, 977, None)
    unset = ocp.decode_c0(encode_boot_page((1 << 128) - 1))
    assert isinstance(unset, ocp.BootLog)
    assert unset.deallocate_commands is None


def test_micron_counts_commands() -> None:
    page = bytearray(512)
    page[0], page[172:188] = 1, (65537).to_bytes(16, "little")
    drive = DriveFacts(protocol="nvme", model="Micron_7400_MTFDKBA960TDZ", vendor_id=0x1344)
    evidence = Evidence(drive=drive, vendor=(VendorPage(0xFB, bytes(page)),))
    assert find_trim_counts(evidence, load_trims()) == [TrimCount("log FBh 172:16", 65537, None)]


def test_seagate_counts_trims() -> None:
    page = bytearray(2 + 42 * 12)
    page[0] = 2
    page[2] = 250
    page[6:14] = (4242).to_bytes(8, "little")
    evidence = Evidence(
        drive=DriveFacts(protocol="nvme", model="XM1441-1AB112048"),
        vendor=(VendorPage(0xC4, bytes(page).ljust(512, b"\0")),),
    )
    assert find_trim_counts(evidence, load_trims()) == [TrimCount("log C4h 250", 4242, None)]


@pytest.mark.parametrize(
    ("family", "number", "name", "unit"),
    [
        ("Sandisk SATA Cloudspeed Max and GEN2 ESS SSDs", 207, "Trimmed_Sector_Ct", 512),
        ("Swissbit X-600m Series Industrial mSATA SSD", 215, "TRIM_Count", None),
        ("Swissbit X-7x Family SATA SSD", 215, "Number_of_TRIM_Commands", None),
    ],
)
def test_trim_attributes_are_found_by_name(family: str, number: int, name: str, unit: int | None) -> None:
    drive = DriveFacts(protocol="ata", model="M", family=family)
    evidence = Evidence(drive=drive, attributes=(Attribute(number, name, 31337, "31337"),))
    assert find_trim_counts(evidence, load_trims()) == [TrimCount(f"attribute {number} {name}", 31337, unit)]
    other = Evidence(drive=drive, attributes=(Attribute(number, "Unknown_Attribute", 31337, "31337"),))
    assert find_trim_counts(other, load_trims()) == []
    family_unknown = Evidence(drive=DriveFacts(protocol="ata", model="M"), attributes=evidence.attributes)
    assert find_trim_counts(family_unknown, load_trims()) == []


def test_trim_entries_are_not_in_the_write_catalogue() -> None:
    """The first matching entry decides, so trim entries must stay out of the write catalogue."""
    names = {entry.name for entry in load_catalogue(system=Path("/nonexistent")).entries}
    trims = load_trims().entries
    assert trims
    assert not names & {entry.name for entry in trims}
    assert all(entry.trimmed or entry.trims for entry in trims)
    assert not any(entry.host or entry.nand for entry in trims)
    assert TRIMS.is_dir()
