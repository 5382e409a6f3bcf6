"""Vendor log pages built from their layouts: a number if the page proves its unit, otherwise none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.collectors.firmware.recorded import decode_evidence
from opwatch.counters.catalogue.families import load_catalogue
from opwatch.counters.decode.pages import BadPage
from opwatch.counters.decode.smart_log import SmartLog
from opwatch.counters.decode.telemetry import decode_telemetry
from opwatch.counters.evidence import Evidence, VendorPage
from opwatch.counters.prove.report import make_report
from opwatch.counters.reading import CounterReading, DriveFacts, Proof, Report

CATALOGUE = load_catalogue(system=Path("/nonexistent"))
# 100 TB of host writes, and 2.5 times as many NAND writes.
HOST, NAND = 10**14, 25 * 10**13
MIB32 = 1 << 25
# A count of twice the host writes in a reason.
TWICE = f"{HOST // MIB32 * 2 * MIB32} bytes"


def encode_page(*fields: tuple[int, int, int], length: int = 512) -> bytes:
    """Build a page from little-endian fields: offset, width, value."""
    raw = bytearray(length)
    for offset, width, value in fields:
        raw[offset : offset + width] = value.to_bytes(width, "little")
    return bytes(raw)


def encode_items(width: int, **raws: int) -> bytes:
    """Return items of 10 or 12 bytes by key, after an item with another key."""
    raw = bytearray(512)
    for place, (key, value) in enumerate({"AB": 7, **raws}.items()):
        at, raw_at = place * width, 5 if width == 12 else 2
        raw[at] = int(key, 16)
        raw[at + raw_at : at + raw_at + 6] = value.to_bytes(6, "little")
    if width == 10:
        raw[511] = 3
    return bytes(raw)


def report_page(model: str, lid: int, raw: bytes, vendor_id: int | None = None) -> Report:
    smart = SmartLog(
        data_units_written=HOST // 512_000,
        data_units_read=5,
        write_commands=HOST // 65536,
        power_on_hours=20_000,
    )
    drive = DriveFacts("nvme", model, capacity_bytes=10**12, lba_bytes=512, vendor_id=vendor_id)
    return make_report(Evidence(drive, smart=smart, vendor=(VendorPage(lid, raw),)), CATALOGUE)


def get_nand_reading(model: str, lid: int, raw: bytes, vendor_id: int | None = None) -> CounterReading:
    return report_page(model, lid, raw, vendor_id).readings["nand_written"]


SOLIDIGM, MEMBLAZE = "SOLIDIGM SSDPF2KX038T1", "P6531DT0384M00"
WDC, SAMSUNG = "WUS4BB038D7P3E1", "SAMSUNG MZQLB960HAJR-00007"


@pytest.mark.parametrize(
    ("model", "lid", "raw", "unit"),
    [
        (SOLIDIGM, 0xCA, encode_items(12, F4=NAND // MIB32, F5=HOST // MIB32), MIB32),
        (MEMBLAZE, 0xCA, encode_items(10, F4=NAND // MIB32, F5=HOST // MIB32), MIB32),
        ("Micron_7300_MTFDHBA960TDF", 0xFB, encode_page((0, 16, NAND // 2), (16, 16, NAND // 2)), 1),
        ("Micron_7300_MTFDHBA960TDF", 0xFB, encode_page((0, 16, NAND // 512_000), (16, 16, 1)), 512_000),
        ("WDC PC SN730 SDBQNTY-512G-1001", 0xFB, encode_page((0, 16, NAND // 512_000)), 512_000),
        (WDC, 0xD0, encode_page((16, 4, 250), (68, 8, NAND // 512_000), (80, 8, HOST // 512_000)), 512_000),
        (SAMSUNG, 0xCA, encode_page((256, 4, 2500), (264, 16, HOST // 512), (280, 16, NAND // 512)), 512),
    ],
)
def test_a_page_that_proves_its_unit_has_a_number(model: str, lid: int, raw: bytes, unit: int) -> None:
    reading = get_nand_reading(model, lid, raw, 7263 if model == MEMBLAZE else None)
    assert reading.value is not None and abs(reading.value - NAND) <= 2 * unit, reading
    assert reading.proof in (Proof.CALIBRATED, Proof.CATALOGUE)


@pytest.mark.parametrize(
    ("model", "lid", "raw", "reason"),
    [
        # The host bytes differ from log 02h.
        (SOLIDIGM, 0xCA, encode_items(12, F4=NAND // MIB32, F5=HOST // MIB32 * 2), TWICE),
        (MEMBLAZE, 0xCA, encode_items(10, F4=NAND // MIB32, F5=HOST // MIB32 * 2), TWICE),
        (
            WDC,
            0xD0,
            encode_page((16, 4, 250), (68, 8, NAND // 300_000), (80, 8, HOST // 300_000)),
            "log 02h",
        ),
        # The page's own ratio differs, is too coarse, or is missing.
        (WDC, 0xD0, encode_page((16, 4, 310), (68, 8, NAND // 512), (80, 8, HOST // 512)), "ratio"),
        (WDC, 0xD0, encode_page((16, 4, 2), (68, 8, NAND // 512), (80, 8, HOST // 512)), "ratio"),
        (
            SAMSUNG,
            0xCA,
            encode_page((256, 4, 25), (264, 16, HOST // 512), (280, 16, NAND // 4096)),
            "ratio",
        ),
        (SAMSUNG, 0xCA, encode_page((256, 4, 25), (280, 16, NAND // 512)), "missing"),
        (SAMSUNG, 0xCA, encode_page((256, 4, 25), (264, 16, HOST // 512), length=280), "contain"),
    ],
)
def test_page_with_an_unproven_unit_has_no_number(model: str, lid: int, raw: bytes, reason: str) -> None:
    refused = get_nand_reading(model, lid, raw, 7263 if model == MEMBLAZE else None)
    assert refused.value is None and reason in (refused.reason or ""), refused


def test_second_host_count_must_match_log_02h() -> None:
    for factor, proven in ((1, True), (2, False)):
        raw = encode_items(12, F4=NAND // MIB32, F5=HOST // MIB32 * factor)
        counters = report_page(SOLIDIGM, 0xCA, raw)
        assert counters.readings["host_written"].value is not None
        [other] = counters.others["host_written"]
        assert (other.value is not None) == proven and (proven or TWICE in (other.reason or ""))


def encode_header(lid: int, *, saved: int = 1, reason: bytes = b"") -> bytes:
    raw = bytearray(
        encode_page((8, 2, 100), (10, 2, 700), (12, 2, 900), (381, 1, 4), (382, 1, saved), (383, 1, 9))
    )
    raw[0], raw[5:8] = lid, b"\x38\x25\x00"
    raw[384 : 384 + len(reason)] = reason
    return bytes(raw)


def test_telemetry_header_reports_saved_state() -> None:
    eight = decode_telemetry(encode_header(8, reason=b"WATCHDOG 0x17\0\0"))
    assert (eight.has_saved, eight.generation, eight.blocks, eight.reason) == (True, 9, 900, "WATCHDOG 0x17")
    assert eight.host_generation is None
    seven = decode_telemetry(encode_header(7, saved=0, reason=b"\x01\x02\xff"))
    assert (seven.host_generation, seven.has_saved, seven.reason) == (4, False, "0102ff")
    # A complete log of any length, under any file name.
    evidence = decode_evidence("telemetry.bin", encode_header(8, reason=b"WATCHDOG 0x17") + bytes(100_000))
    notes = make_report(evidence, CATALOGUE).health
    assert any("generation 9: WATCHDOG 0x17" in note.says and note.source == "log 08h" for note in notes)
    quiet = make_report(
        replace(evidence, telemetry=decode_telemetry(encode_header(8, saved=0))), CATALOGUE
    ).health
    [note] = [note for note in quiet if note.source == "log 08h"]
    assert "generation" not in note.says


@pytest.mark.parametrize(
    "raw",
    [
        encode_header(8)[:511],
        encode_header(9),
        encode_header(8, saved=2),
        bytes([8, 1]) + encode_header(8)[2:],
    ],
)
def test_invalid_telemetry_headers_are_refused(raw: bytes) -> None:
    with pytest.raises(BadPage):
        decode_telemetry(raw)
