"""Human-readable tool reports, erase counts of vendor pages, and counters that miss NAND writes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.collectors.firmware.recorded import decode_evidence
from opwatch.counters.catalogue.families import Catalogue, load_catalogue
from opwatch.counters.catalogue.fingerprints import UnitRules
from opwatch.counters.decode.smart_log import SmartLog
from opwatch.counters.decode.vendor_page import decode_kv12, decode_wear_counts
from opwatch.counters.evidence import Attribute, Evidence, Statistics, VendorPage
from opwatch.counters.prove.health import compute_rated_pace
from opwatch.counters.prove.report import make_report
from opwatch.counters.reading import CounterReading, DriveFacts, Proof, Report
from opwatch.errors import UsageError
from opwatch.sinks.counters import build_reading_document, format_counters
from opwatch.waf.polls import make_poll

CATALOGUE = Catalogue(load_catalogue(system=Path("/nonexistent")).entries, UnitRules())
GOOD = Path(__file__).parents[2] / "fixtures" / "good" / "counters"
GIB = 1 << 30

OLD = """Smart Log for NVME device:nvme0 namespace-id:ffffffff
critical_warning                    : 0x1
temperature                         : 34 C
available_spare                     : 100%
available_spare_threshold           : 10%
percentage_used                     : 255%
data_units_read                     : 1,803,919
data_units_written                  : 2.803.919
host_read_commands                  : 64,000,000
host_write_commands                 : 77,000,000
controller_busy_time                : 16
power_cycles                        : 12
power_on_hours                      : 9,000
unsafe_shutdowns                    : 3
media_errors                        : 1
num_err_log_entries                 : 5
Warning Temperature Time            : 7
Critical Composite Temperature Time : 2
Temperature Sensor 1                : 35 C
"""
NEW = """Smart Log for NVME device:nvme0n1 namespace-id:ffffffff
critical_warning\t\t\t: 0x1
temperature\t\t\t\t: 34 \u00b0C (307 K)
available_spare\t\t\t\t: 100%
available_spare_threshold\t\t: 10%
percentage_used\t\t\t\t: 255%
endurance group critical warning summary: 0
Data Units Read\t\t\t\t: 1803919 (923.61 GB)
Data Units Written\t\t\t: 2803919 (1.44 TB)
host_read_commands\t\t\t: 64000000
host_write_commands\t\t\t: 77000000
controller_busy_time\t\t\t: 16
power_cycles\t\t\t\t: 12
power_on_hours\t\t\t\t: 9000
unsafe_shutdowns\t\t\t: 3
media_errors\t\t\t\t: 1
num_err_log_entries\t\t\t: 5
Warning Temperature Time\t\t: 7
Critical Composite Temperature Time\t: 2
Temperature Sensor 1\t\t\t: 35 \u00b0C (308 K)
"""
LOG = SmartLog(
    critical_warning=1,
    data_units_read=1803919,
    data_units_written=2803919,
    read_commands=64_000_000,
    write_commands=77_000_000,
    power_cycles=12,
    power_on_hours=9000,
    unsafe_shutdowns=3,
    media_errors=1,
    busy_minutes=16,
    available_spare=100,
    spare_threshold=10,
    percentage_used=255,
    temperature_celsius=34,
    error_entries=5,
    warm_minutes=7,
    hot_minutes=2,
)


def get_reading(evidence: Evidence, name: str) -> CounterReading:
    return make_report(evidence, CATALOGUE).readings[name]


@pytest.mark.parametrize("text", [OLD, NEW])
def test_the_text_of_nvme_smart_log_is_read(text: str) -> None:
    evidence = decode_evidence("smart.txt", text.encode())
    assert evidence.smart == LOG and evidence.drive.protocol == "nvme"
    assert get_reading(evidence, "host_written").value == 2803919 * 512_000
    # The degree sign in another encoding.
    assert decode_evidence("smart.txt", text.encode("latin-1")).smart == LOG


def test_two_logs_in_the_same_text_are_refused() -> None:
    with pytest.raises(UsageError, match=r"several .*smart-log"):
        decode_evidence("smart.txt", (OLD + NEW).encode())


@pytest.mark.parametrize("place", [b'"model_name": "ACME', b'"serial_number": "S'])
def test_a_wrong_byte_does_not_make_a_report_unreadable(place: bytes) -> None:
    drive = {"model_name": "ACME SSD", "serial_number": "S1", "device": {"protocol": "NVMe"}, "smartctl": {}}
    log = {"nvme_smart_health_information_log": {"percentage_used": 3}}
    raw = json.dumps({**drive, **log}).encode()
    damaged = raw.replace(place, place + b"\xff")
    assert damaged != raw
    assert get_reading(decode_evidence("a.json", damaged), "percentage_used").value == 3
    page = bytearray(512)
    page[1:3], page[3], page[5], page[510] = (307).to_bytes(2, "little"), 100, 9, 0xFF
    assert get_reading(decode_evidence("log-02.bin", bytes(page)), "percentage_used").value == 9


def make_intel_evidence(wear: object) -> Evidence:
    stats = {
        "wear_leveling": {"normalized": 70, "raw": wear},
        "nand_bytes_written": {"normalized": 100, "raw": 224943088},
        "host_bytes_written": {"normalized": 100, "raw": 172365270},
    }
    evidence = decode_evidence("a.json", json.dumps({"Device stats": stats}).encode())
    drive = DriveFacts("nvme", "INTEL SSDPEDME016T4F", capacity_bytes=16 * 10**11)
    return replace(evidence, drive=drive)


WEAR = 3523 | 3603 << 16 | 3562 << 32


def test_intels_page_has_erase_counts() -> None:
    text = decode_evidence("a.txt", (GOOD / "cachelib" / "IntelDevice.txt").read_bytes())
    known = make_intel_evidence({"min": 3523, "max": 3603, "avg": 3562})
    for evidence in (known, make_intel_evidence(WEAR), replace(text, drive=known.drive)):
        names = ("erase_min", "erase_max", "erase_average")
        assert [get_reading(evidence, name).value for name in names] == [3523, 3603, 3562]
    for nonsense in ({"min": 9, "max": 3, "avg": 5}, {"min": 9}, 0, "x"):
        assert get_reading(make_intel_evidence(nonsense), "erase_average").value is None


def test_erase_counts_are_also_decoded_from_bytes() -> None:
    page = bytearray(512)
    page[0], page[5:11] = 0xAD, WEAR.to_bytes(6, "little")
    assert decode_wear_counts(decode_kv12(bytes(page))["AD"]) == (3523, 3603, 3562)


@pytest.mark.parametrize(("model", "vendor"), [("DPRD3108T0T501T6000", 0x1E3B), ("CSD-3310", 0xCC53)])
def test_intel_pages_require_host_writes_of_log_02h(model: str, vendor: int) -> None:
    drive = DriveFacts("nvme", model, vendor_id=vendor, capacity_bytes=32 * 10**11)
    page = replace(make_intel_evidence(0), drive=drive).vendor
    host = 172365270 << 25
    agrees = SmartLog(data_units_written=host // 512_000, write_commands=host // 65536, power_on_hours=30_000)
    known = Evidence(drive, smart=agrees, vendor=page)
    assert get_reading(known, "nand_written").value == 224943088 << 25
    other = replace(agrees, data_units_written=host // 1_024_000)
    assert get_reading(replace(known, smart=other), "nand_written").value is None
    assert isinstance(page[0], VendorPage)


def make_sata_evidence(drive: DriveFacts, raws: dict[int, int], sectors: int | None = None) -> Evidence:
    attributes = tuple(Attribute(key, "Unknown_Attribute", raw, str(raw), 100) for key, raw in raws.items())
    statistics = Statistics({(1, 0x18): sectors}) if sectors else None
    return Evidence(drive, attributes=attributes, statistics=statistics, power_on_hours=20_000)


TRANSCEND = DriveFacts(
    "ata", "TS120GMTS420S", "S0807A0", "Silicon Motion based SSDs", capacity_bytes=120 * 10**9
)
DC450 = DriveFacts(
    "ata", "KINGSTON SEDC450R480G", "SCEKH3.6", "Phison Driven SSDs", capacity_bytes=480 * 10**9
)


@pytest.mark.parametrize(("share", "is_reported"), [(1.08, True), (0.85, False), (0.28, False)])
def test_nand_writes_that_erases_contradict_are_refused(share: float, is_reported: bool) -> None:
    nand_bytes = 328 * 120 * 10**9
    raws = {165: 400, 166: 300, 167: 328, 241: nand_bytes // 3 >> 25, 245: int(share * nand_bytes) >> 25}
    nand = get_reading(make_sata_evidence(TRANSCEND, raws), "nand_written")
    assert (nand.value is not None) is is_reported
    nand_bytes = 100 * 480 * 10**9
    raws = {231: 98, 233: int(share * nand_bytes) >> 30, 241: nand_bytes // 5 >> 30, 242: 10, 244: 100}
    nand = get_reading(make_sata_evidence(DC450, raws), "nand_written")
    assert (nand.value is not None) is is_reported and (is_reported or "misses" in (nand.reason or ""))


def test_the_a400_has_no_count_of_nand_writes() -> None:
    drive = replace(DC450, model="KINGSTON SA400S37480G", firmware="SBFKB1D1")
    evidence = make_sata_evidence(drive, {231: 98, 233: 60_000, 241: 40_000, 242: 10, 244: 110})
    assert get_reading(evidence, "host_written").value == 40_000 * GIB
    assert get_reading(evidence, "nand_written").value is None


@pytest.mark.parametrize("ahead", [0, 3118])
def test_the_host_writes_of_intels_sandforce_drives_are_known(ahead: int) -> None:
    """Device statistics of drives of one model are ahead by a constant number of bytes."""
    drive = DriveFacts("ata", "INTEL SSDSC2CW180A3", "400i", capacity_bytes=180 * 10**9)
    raws = {225: 175842, 241: 175842, 249: 3754}
    alone = get_reading(make_sata_evidence(drive, raws), "host_written")
    assert alone.value == 175842 << 25 and "225" in alone.source
    # On other drives of the family device statistics are up to 43 % ahead.
    assert alone.at_least and make_report(make_sata_evidence(drive, raws), CATALOGUE).lifetime is None
    pace = compute_rated_pace(alone, CounterReading(1000, "hours", 1, "", Proof.SPEC), 10**14)
    assert pace and pace.most is None and pace.least <= (175842 << 25) * 24 / 1000
    shown = [
        line
        for line in format_counters(make_report(make_sata_evidence(drive, raws), CATALOGUE))
        if line.startswith("host_written")
    ]
    assert shown[0].split()[1:5] == [">=", "5.90", "TB", "33.6"]
    document_of = build_reading_document(alone, None)
    assert document_of["lower_bound"] and document_of["bytes"] == 175842 << 25
    both = make_report(make_sata_evidence(drive, raws, (175842 + ahead) << 16), CATALOGUE)
    assert both.readings["host_written"].value == (175842 + ahead) << 25
    assert [other.value for other in both.others["host_written"]] == [175842 << 25]
    assert not both.readings["host_written"].at_least and both.lifetime


def make_smart_report(
    units: int,
    commands: int,
    *,
    model: str | None = "ACME",
    vendor: int | None = None,
    lba: int = 512,
    mdts: int | None = None,
) -> Report:
    """An NVMe drive with these units and commands read and written."""
    facts = DriveFacts("nvme", model, "1", vendor_id=vendor, lba_bytes=lba, max_transfer_bytes=mdts)
    smart = SmartLog(
        data_units_written=units,
        write_commands=commands,
        data_units_read=units,
        read_commands=commands,
        power_on_hours=30_000,
    )
    return make_report(Evidence(facts, smart=smart), CATALOGUE)


@pytest.mark.parametrize(
    ("units", "commands", "lba", "mdts"),
    [
        # 1.2 TB in writes of 2 KiB: among NVMe drives only Intel's wrap at 2^32 sectors.
        (2_400_000, 600_000_000, 512, None),
        # Written in blocks of 512 B before a format to 4 KiB.
        (2_400_000, 2_000_000_000, 4096, None),
        # Every command has the maximum size, and the count is rounded up.
        (256_001, 1_000_000, 512, 131_072),
        (257, 1001, 512, 131_072),
    ],
)
def test_plausible_nvme_count_is_accepted(units: int, commands: int, lba: int, mdts: int | None) -> None:
    said = make_smart_report(units, commands, lba=lba, mdts=mdts).readings
    assert said["host_written"].value == said["host_read"].value == units * 512_000


@pytest.mark.parametrize(
    ("units", "commands", "model", "vendor"),
    [
        # Less than 512 B per command, more than 128 KiB, and makers with a firmware that wraps.
        (2_400_000, 2_600_000_000, "ACME", None),
        (280_000, 1_000_000, "ACME", None),
        (2_400_000, 600_000_000, "INTEL SSDPEDMD800G4", None),
        (2_400_000, 600_000_000, "MO0400KEFHN", 0x8086),
        (2_400_000, 600_000_000, None, None),
    ],
)
def test_nvme_count_contradicted_by_its_commands_is_refused(
    units: int, commands: int, model: str | None, vendor: int | None
) -> None:
    said = make_smart_report(units, commands, model=model, vendor=vendor, mdts=131_072)
    reading = said.readings["host_written"]
    assert reading.value is None and re.search(rf"\b{commands} write|\d KiB per write", reading.reason or "")


def test_poll_does_not_use_a_lower_bound_as_a_count() -> None:
    facts = DriveFacts("ata", "INTEL SSDSC2CW180A3", "400i", capacity_bytes=180 * 10**9)
    poll = make_poll(make_report(make_sata_evidence(facts, {225: 175842, 249: 3754}), CATALOGUE), 0, 1, 0, 0)
    assert [one.value for one in poll.host] == [None] and poll.host[0].reason
    statistics = make_poll(
        make_report(make_sata_evidence(facts, {225: 175842, 249: 3754}, 175842 << 16), CATALOGUE), 0, 1, 0, 0
    )
    assert statistics.host[0].value == 175842 << 25
