"""Page decoders and parsers: correct fields, and no values from data that is not a page."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwatch.collectors.firmware.recorded import decode_evidence, read_recorded
from opwatch.counters.catalogue.families import load_catalogue
from opwatch.counters.decode.endurance import decode_endurance_group
from opwatch.counters.decode.fdp import decode_fdp_statistics
from opwatch.counters.decode.identify import decode_controller, decode_namespace, find_uuid_index
from opwatch.counters.decode.ocp import BOOT_GUID, CLOUD_GUID, BootLog, CloudLog, decode_c0
from opwatch.counters.decode.pages import BadPage
from opwatch.counters.decode.smart_log import SmartLog, decode_smart_log
from opwatch.counters.decode.vendor_page import decode_kv12, decode_seagate, find_item
from opwatch.counters.evidence import Evidence, merge_evidence
from opwatch.counters.looks.smartctl import parse_output
from opwatch.counters.prove.report import make_report
from opwatch.counters.reading import DriveFacts
from opwatch.counters.reports.numbers import parse_fixed_point, parse_integer, parse_json_number
from opwatch.counters.reports.nvme_json import parse_nvme_json
from opwatch.errors import OpwatchError, Unsupported, UsageError
from tests.fuzz.counters import CounterFuzzer

BAD = Path(__file__).parents[2] / "fixtures" / "bad" / "counters"
CATALOGUE = load_catalogue(system=Path("/nonexistent"))
u128 = st.integers(1, (1 << 128) - 2)


def encode_page(length: int = 512, **fields: tuple[int, int, int]) -> bytes:
    """Return a page with (offset, width, value) fields."""
    raw = bytearray(length)
    for offset, width, value in fields.values():
        raw[offset : offset + width] = value.to_bytes(width, "little")
    return bytes(raw)


@given(u128, u128, st.integers(0, 254), st.integers(1, 1000))
def test_smart_log_is_decoded(written: int, commands: int, used: int, kelvin: int) -> None:
    log = decode_smart_log(
        encode_page(a=(48, 16, written), b=(80, 16, commands), c=(5, 1, used), d=(1, 2, kelvin))
    )
    assert (log.data_units_written, log.write_commands) == (written, commands)
    assert (log.percentage_used, log.temperature_celsius) == (used, kelvin - 273)


@given(u128, u128)
def test_endurance_group_log_is_decoded(host: int, media: int) -> None:
    group = decode_endurance_group(encode_page(a=(64, 16, host), b=(80, 16, media)))
    assert (group.data_units_written, group.media_units_written) == (host, media)


@given(u128, u128, u128)
def test_fdp_statistics_are_decoded(host: int, media: int, erased: int) -> None:
    statistics = decode_fdp_statistics(
        encode_page(64, a=(0, 16, host), b=(16, 16, media), c=(32, 16, erased))
    )
    assert (statistics.host_bytes_written, statistics.media_bytes_written, statistics.media_bytes_erased) == (
        host,
        media,
        erased,
    )


@given(u128, st.integers(0, 0xFFFFFFFE), st.binary(min_size=16, max_size=16))
def test_log_c0_is_identified_by_its_guid(media: int, erases: int, other: bytes) -> None:
    raw = encode_page(a=(0, 16, media), b=(88, 4, erases), c=(494, 2, 5), d=(224, 8, 7))
    log = decode_c0(raw[:496] + CLOUD_GUID)
    assert isinstance(log, CloudLog)
    assert (log.media_written, log.erase_max, log.erase_average) == (media, erases, 7)
    boot = decode_c0(raw[:496] + BOOT_GUID)
    assert isinstance(boot, BootLog) and boot.tlc_written == media
    if other not in (CLOUD_GUID, BOOT_GUID):
        with pytest.raises(BadPage):
            decode_c0(raw[:496] + other)


def test_erase_average_requires_version_5() -> None:
    old = decode_c0(encode_page(a=(0, 8, 1), b=(224, 8, 7), c=(494, 2, 3))[:496] + CLOUD_GUID)
    assert isinstance(old, CloudLog) and old.erase_average is None


@given(st.dictionaries(st.integers(1, 255), st.integers(0, (1 << 48) - 2), min_size=1, max_size=40))
def test_items_are_found_by_their_key(items: dict[int, int]) -> None:
    raw = b"".join(
        bytes((key, 0, 0, 100, 0)) + value.to_bytes(6, "little") + b"\0" for key, value in items.items()
    )
    decoded = decode_kv12(raw.ljust(512, b"\0"))
    assert {int(key, 16): item.raw for key, item in decoded.items()} == items


def test_duplicate_key_means_another_layout() -> None:
    with pytest.raises(BadPage):
        decode_kv12(bytes((0xF4, 0, 0, 100, 0, 1)).ljust(12, b"\0") * 2 + bytes(488))


@given(st.integers(0, (1 << 64) - 1))
def test_items_of_seagate_are_decoded(value: int) -> None:
    raw = encode_page(a=(0, 2, 2), b=(2, 1, 233), c=(6, 8, value))
    assert decode_seagate(raw)["233"].raw == value


def test_a_field_of_all_ones_is_not_supported() -> None:
    assert find_item({}, b"\xff" * 512, "176:8") is None
    assert find_item({}, bytes(512), "510:8") is None


@given(st.binary(max_size=511))
def test_short_pages_are_refused(raw: bytes) -> None:
    for decode in (decode_smart_log, decode_endurance_group, decode_c0, decode_controller, decode_namespace):
        with pytest.raises(BadPage):
            decode(raw)


def test_identify_pages_are_decoded() -> None:
    raw = encode_page(4096, a=(0, 2, 0x8086), b=(77, 1, 5), c=(96, 4, 1 << 4 | 1 << 19), d=(280, 16, 10**12))
    identity = decode_controller(raw[:24] + b"MODEL  X".ljust(40) + b"FW1".ljust(8) + raw[72:])
    assert (identity.model, identity.firmware, identity.max_transfer_bytes) == ("MODEL X", "FW1", 128 << 10)
    assert identity.has_endurance_groups and identity.has_placement and not identity.has_uuid_list
    namespace = decode_namespace(encode_page(4096, a=(16, 8, 5), b=(26, 1, 1), c=(134, 1, 12), d=(102, 2, 3)))
    assert (namespace.used_lbas, namespace.lba_bytes, namespace.endurance_group) == (5, 4096, 3)
    uuids = encode_page(4096, a=(32 + 16, 16, 7), b=(64 + 16, 16, 9))
    assert find_uuid_index(uuids, (9).to_bytes(16, "little")) == 2
    assert find_uuid_index(uuids, b"x" * 16) == 0


@given(st.integers(0, 10**20))
def test_numbers_with_separators_are_parsed(number: int) -> None:
    for separator in (",", ".", "'", "\u202f", "\u00a0"):
        assert parse_integer(f"{number:,}".replace(",", separator)) == number
    assert parse_json_number({"hi": number >> 64, "lo": number & (1 << 64) - 1}) == number


@pytest.mark.parametrize(
    "text", ["", "1,23", "12,3456", "1,234.567", "-1", "1e3", "0x", "1 2", "½", "٣", "1.5 TB"]
)
def test_truncated_number_is_none(text: str) -> None:
    assert parse_integer(text) is None


def test_gigabytes_are_exact() -> None:
    assert parse_fixed_point("292086.584", 3) == 292086584
    assert parse_fixed_point("1.2345", 3) is None


@pytest.mark.parametrize("path", sorted(BAD.iterdir()), ids=lambda path: path.name)
def test_invalid_files_give_no_value(path: Path) -> None:
    try:
        evidence = read_recorded([path])
    except OpwatchError as error:
        assert str(error)
        return
    readings = make_report(evidence, CATALOGUE).readings
    assert all(reading.value is None and reading.reason for reading in readings.values())


def test_smartctl_that_could_not_open_is_unsupported_and_a_sleeping_drive_is_not() -> None:
    with pytest.raises(Unsupported, match="Unable to detect"):
        parse_output(1, (BAD / "smartctl-usage.json").read_text())
    assert parse_output(2, (BAD / "asleep.json").read_text()).asleep
    with pytest.raises(OpwatchError, match="no JSON"):
        parse_output(0, "smartctl 6.6")


def test_health_bits_of_the_exit_status_keep_the_data() -> None:
    good = BAD.parents[1] / "good" / "counters" / "cdi" / "MK000960GWSSD_healthy.trim.json"
    assert parse_output(0b11111100, good.read_text()).statistics


def test_both_formats_of_nvme_cli_are_equal() -> None:
    first = {
        "Physical media units written": {"hi": 1, "lo": 2},
        "Log page GUID": "0x" + CLOUD_GUID[::-1].hex(),
    }
    second = {"physical_media_units_written": {"hi": 1, "lo": 2}, "log_page_guid": CLOUD_GUID[::-1].hex()}
    assert parse_nvme_json(first).ocp == parse_nvme_json(second).ocp == CloudLog(media_written=(1 << 64) + 2)
    assert parse_nvme_json({**first, "Log page GUID": "0x1"}).ocp is None


def test_reports_of_two_drives_are_not_merged() -> None:
    with pytest.raises(UsageError, match=r"\bmodel\b"):
        merge_evidence(Evidence(drive=DriveFacts(model="a")), Evidence(drive=DriveFacts(model="b")))
    smart = Evidence(smart=SmartLog(data_units_written=1))
    with pytest.raises(UsageError, match=r"\bSMART\b"):
        merge_evidence(smart, Evidence(smart=SmartLog(data_units_written=2)))


def test_endurance_group_is_not_mistaken_for_the_drive() -> None:
    group = {"avail_spare": 100, "data_units_written": 7, "media_units_written": 9, "power_on_hours": 1}
    evidence = parse_nvme_json(group)
    assert evidence.smart is None
    assert evidence.endurance and evidence.endurance.media_units_written == 9


def test_both_tables_of_attributes_are_read() -> None:
    brief = "ID# ATTRIBUTE_NAME          FLAGS    VALUE WORST THRESH FAIL RAW_VALUE\n"
    brief += "241 Total_LBAs_Written      -O--CK   100   100   000    -    12345\n"
    brief += "  9 Power_On_Hours          -O--CK   100   100   000    NOW  17h+05m+33.560s\n"
    old = "ID# ATTRIBUTE_NAME          FLAG     VALUE WORST THRESH TYPE      UPDATED  WHEN_FAILED RAW_VALUE\n"
    old += "241 Total_LBAs_Written      0x0032   100   100   000    Old_age   Always       -       12345\n"
    old += "  9 Power_On_Hours          0x0032   100   100   000    Old_age   Always   NOW  17h+05m+33.560s\n"
    head = "smartctl 7.3\n=== START OF INFORMATION SECTION ===\nDevice Model:     ACME\n\n"
    ours, theirs = (decode_evidence("x", (head + table).encode()) for table in (brief, old))
    assert ours == theirs
    assert ours.power_on_hours == 17
    [written, hours] = ours.attributes
    assert (written.id, written.raw, hours.raw) == (241, 12345, None)


def test_a_document_of_two_drives_is_refused() -> None:
    smart = {"avail_spare": 100, "data_units_written": 7, "host_write_commands": 9, "power_on_hours": 1}
    assert parse_nvme_json([smart, {"again": smart}]).smart
    with pytest.raises(UsageError, match=r"\btwo\b.*\bsmart\b"):
        parse_nvme_json({"nvme0": smart, "nvme1": {**smart, "data_units_written": 8}})
    report_ = b"smartctl 7.4\n=== START OF INFORMATION SECTION ===\nDevice Model: A\n"
    with pytest.raises(UsageError, match="several"):
        decode_evidence("x", report_ * 2)


def test_a_vendor_page_with_another_host_than_02h_is_refused() -> None:
    items = {
        "nand_bytes_written": {"normalized": 100, "raw": 9000},
        "host_bytes_written": {"normalized": 100, "raw": 6000},
    }
    evidence = replace(parse_nvme_json(items), drive=DriveFacts(protocol="nvme", model="INTEL SSDPE2KX010T8"))
    smart = SmartLog(data_units_written=6000 * (1 << 25) // 512_000, write_commands=10**7)
    assert make_report(replace(evidence, smart=smart), CATALOGUE).readings["nand_written"].value == 9000 << 25
    other = replace(smart, data_units_written=3 * 10**5)
    reading = make_report(replace(evidence, smart=other), CATALOGUE).readings["nand_written"]
    # Both counts of host writes are reported.
    for count in (6000 << 25, 3 * 10**5 * 512_000):
        assert reading.value is None and f"{count} bytes" in (reading.reason or "")


def test_failed_page_loses_only_its_own_fields(tmp_path: Path) -> None:
    (tmp_path / "log-02").write_bytes(encode_page(a=(48, 16, 1000), b=(80, 16, 10**5), c=(1, 2, 300)))
    (tmp_path / "log-c0").write_bytes(b"\xff" * 512)
    counters = make_report(read_recorded([tmp_path]), CATALOGUE)
    assert counters.readings["host_written"].value == 512_000_000
    assert counters.readings["nand_written"].value is None
    assert any("C0h" in failure for failure in counters.failures)


def test_a_page_is_known_by_guid_name_or_content() -> None:
    smart = encode_page(a=(48, 16, 1000), b=(1, 2, 300))
    assert decode_evidence("x.bin", smart).smart
    assert decode_evidence("x.bin", encode_page(a=(0, 8, 1))[:496] + CLOUD_GUID).ocp
    assert decode_evidence("log_0x09.bin", encode_page(a=(64, 16, 1))).endurance
    with pytest.raises(UsageError, match=r"^x\.bin: .*\blog-ca\.bin$"):
        decode_evidence("x.bin", encode_page(a=(64, 16, 1)))


def test_09h_in_another_unit_than_02h_is_refused() -> None:
    evidence = decode_evidence("log-09", encode_page(a=(64, 16, 5000), b=(80, 16, 9000)))
    smart = SmartLog(data_units_written=5 * 10**12 // 512_000, write_commands=10**9)
    assert make_report(replace(evidence, smart=smart), CATALOGUE).readings["nand_written"].value == 9 * 10**12
    twice = replace(evidence, smart=replace(smart, data_units_written=10**8))
    assert make_report(twice, CATALOGUE).readings["nand_written"].value is None


@pytest.mark.parametrize("seed", range(4))
def test_fuzzed_pages_are_decoded_or_refused(seed: int) -> None:
    CounterFuzzer(seed).run_inputs(3000)


@given(
    st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x))
)
def test_any_json_is_decoded_or_refused(document: object) -> None:
    with contextlib.suppress(OpwatchError):
        make_report(decode_evidence("x", json.dumps(document).encode()), CATALOGUE)
