"""Every capture of a real drive with its expected host and NAND bytes. None: refused with a reason."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.collectors.firmware.recorded import decode_evidence, read_recorded
from opwatch.counters.catalogue.families import Catalogue, load_catalogue
from opwatch.counters.evidence import Evidence, ScsiCounters, merge_evidence
from opwatch.counters.prove.report import make_report
from opwatch.counters.prove.statistics import UNITS, is_close
from opwatch.counters.reading import DriveFacts, Proof, Report

GOOD = Path(__file__).parents[2] / "fixtures" / "good" / "counters"
NOWHERE = Path("/nonexistent")
MIB32, GIB = 1 << 25, 1 << 30


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load_catalogue(system=NOWHERE)


def get_written_bytes(counters: Report) -> tuple[int | None, int | None]:
    host, nand = counters.readings["host_written"], counters.readings["nand_written"]
    for reading in (host, nand):
        assert (reading.value is None) == (reading.reason is not None)
        assert reading.value is None or reading.proof is not Proof.CANDIDATE
    return host.value, nand.value


# Host bytes from device statistics, or from the attribute once the statistics have wrapped; then NAND bytes.
LINUXHW = {
    "bx500_devstat_wrap32": (22374847336 * 512, (699213979 + 1021575168) * 16384),
    "mx500_devstat_wrap32": (40221591223 * 512, None),
    "dell_micron5300_attr241_is_nand": (244903576216 * 512, 312835849952 * 512),
    "dell_samsung_233host_251nand": (16452844354 * 512, 18087714176 * 512),
    "intel_520_sandforce_waf_lt1": (2548882018745 * 512, 1000250 * GIB),
    "intel_p3600_8DV1RA13_DUW_wraps_2_32_sectors": (None, None),
    "intel_p3700_8DV10131_DUW_wraps_2_32_sectors": (None, None),
    "intel_p3700_8DV10049_DUW_in_512B_units": (41222408420 * 512, None),
    "intel_s3520_241_243": (19877570134 * 512, 1497538 * MIB32),
    "intel_s4510_241_243": (561039273508 * 512, 20062982 * MIB32),
    "micron_5400": (253195362304 * 512, (9023107061 + 3730266838) * 16384),
    "phison_dc500m": (69606176144 * 512, 42787 * GIB),
    "samsung_pm881_251_is_host": (6992459022 * 512, None),
    "samsung_pm883_241host_251nand": (30303463508 * 512, 39961384704 * 512),
    "samsung_pm893_241host_251nand": (861991956524 * 512, 1243803368256 * 512),
    "seagate_nytro_xa960le_waf_lt1": (376344951432 * 512, None),
    "skhynix_dell_241_is_nand_GiB": (193643085858 * 512, 93271 * GIB),
    "skhynix_sc_241_GB": (4315527312 * 512, None),
    "smi_teamgroup_32MiB": (176887168 * 512, None),
    "supermicro_ssd_drivedb_says32MiB_is_1GiB": (9561 * GIB, None),
    "toshiba_hk4r_32MiB": (1745264911149 * 512, None),
    "wd_blue_tlc_slc": (340372025530 * 512, None),
}
# Device statistics of new Intel SandForce drives start up to 118 GB too high.
AHEAD = 118 * 10**9


def test_every_capture_has_a_test() -> None:
    assert set(LINUXHW) == {path.stem for path in (GOOD / "linuxhw").glob("*.txt")}


@pytest.mark.parametrize("name", LINUXHW)
def test_text_reports_of_smartctl_are_decoded(catalogue: Catalogue, name: str) -> None:
    assert (
        get_written_bytes(make_report(read_recorded([GOOD / "linuxhw" / f"{name}.txt"]), catalogue))
        == LINUXHW[name]
    )


@pytest.mark.parametrize("name", LINUXHW)
def test_the_catalogue_alone_agrees_with_the_statistics(catalogue: Catalogue, name: str) -> None:
    evidence = read_recorded([GOOD / "linuxhw" / f"{name}.txt"])
    blind = make_report(replace(evidence, statistics=None), catalogue)
    host, nand = get_written_bytes(blind)
    expected_host, expected_nand = LINUXHW[name]
    assert nand == expected_nand
    assert (host is None) == (expected_host is None)
    if host is not None and expected_host is not None:
        ahead = AHEAD if name == "intel_520_sandforce_waf_lt1" else 0
        assert 0 <= expected_host - host < blind.readings["host_written"].quantum + 2**20 + ahead


EXPORTER = {
    "HITACHI_H109060SESUN600G_9": (292086584000000, None),
    "nvme-null-INTEL_SSDPEDMD800G4-nvme0": (15055091656 * 512000, None),
    "nvme-null-Micron_7450_MTFDKCC3T8TFR-nvme11": (60979236 * 512000, None),
    "nvme-null-SAMSUNG_MZQL23T8HCLS-00A07-nvme9": (639454618 * 512000, None),
    "sat-Dell_Certified_Intel_S3520_Series_SSDs-SSDSCKJB240G7R-sdm": (129493 * MIB32, None),
    "sat-Intel_730_and_DC_S35x0_3610_3700_Series_SSDs-INTEL_SSDSC2BB016T4-sdf": (
        62594010 * MIB32,
        138721860 * MIB32,
    ),
    "sat-Intel_730_and_DC_S35x0_3610_3700_Series_SSDs-INTEL_SSDSC2BB480G7-sda": (
        849547 * MIB32,
        2286373 * MIB32,
    ),
    "sat-Intel_S4510_S4610_S4500_S4600_Series_SSDs-INTEL_SSDSC2KB480G8-sdm": (14308 * MIB32, 95488 * MIB32),
    "sat-Intel_S4510_S4610_S4500_S4600_Series_SSDs-INTEL_SSDSC2KB960G8-sde": (
        215581 * MIB32,
        2122543 * MIB32,
    ),
    "sat-Micron_5100_Pro___52x0___5300_SSDs-Micron_5210_MTFDDAK960QDE-sdm": (
        272291616 * 512,
        (8509113 + 1059955) * 16384,
    ),
    "sat-Micron_5100_Pro___52x0___5300_SSDs-Micron_5300_MTFDDAK1T9TDS-sda": (
        130006927240 * 512,
        (4062707571 + 8824675195) * 16384,
    ),
    "sat-Phison_Driven_SSDs-KINGSTON_SA400M8120G-sda": (398 * GIB, None),
    "sat-Phison_Driven_SSDs-KINGSTON_SKC400S371T-sda": (391741 * GIB, 840007 * GIB),
    "sat-Samsung_based_SSDs-SAMSUNG_MZ7L3240HCHQ-00A07-sda": (652566252 * 512, 993815616 * 512),
    "sat-Samsung_based_SSDs-SAMSUNG_MZ7LH1T9HMLT-00005-sda": (63180483059 * 512, 64213448960 * 512),
    "sat-Silicon_Motion_based_SSDs-TS32GMTS400-sda": (30245 * MIB32, 136733 * MIB32),
    "sat-null-SAMSUNG_MZ7L3480HCHQ-00A07-sda": (1304884573 * 512, 1792412160 * 512),
}
CDI = {
    "FADU_DELTA_U_2_1_92TB_healthy.trim": (1803919 * 512000, 1011179618304),
    "KIOXIA_KCD81VUG6T40_healthy.trim": (1832600650 * 512000, 1359892586692608),
    "KCM61VUL3T20_healthy.trim": (2579165678 * 512000, None),
    "SSDPF21Q800GB_healthy.trim": (9300569805 * 512000, None),
    "SDSSDH3_512G_healthy.trim": (239064859452 * 512, None),
    "MK000960GWSSD_healthy.trim": (373526415 * 512, None),
}


@pytest.mark.parametrize("name", EXPORTER)
def test_json_reports_of_smartctl_are_decoded(catalogue: Catalogue, name: str) -> None:
    counters = make_report(read_recorded([GOOD / "smartctl_exporter" / f"{name}.json"]), catalogue)
    assert get_written_bytes(counters) == EXPORTER[name]


@pytest.mark.parametrize("name", CDI)
def test_document_with_logs_of_both_tools_is_decoded(catalogue: Catalogue, name: str) -> None:
    assert (
        get_written_bytes(make_report(read_recorded([GOOD / "cdi" / f"{name}.json"]), catalogue)) == CDI[name]
    )


def test_every_json_capture_has_a_test() -> None:
    assert set(EXPORTER) == {path.stem for path in (GOOD / "smartctl_exporter").glob("*.json")}
    assert set(CDI) == {path.stem for path in (GOOD / "cdi").glob("*.json")}


# Model, capacity in GB, NAND bytes. CacheLib reads the TLC units of SK hynix as bytes; the unit is 512,000
# bytes.
CACHELIB = {
    "SamsungDevice": ("SAMSUNG MZ1LB1T9HALS-000FB", 1920, 5357954930143232),
    "SamsungPM983aDevice": ("MZ1LB960HBJR-000FB", 960, 35061362294784),
    "SamsungPM9A3Device": ("MZOL23T8HCLS-00AFB", 3840, 241393664),
    "SeagateDevice": ("XM1441-1AB112048", 2048, 6191656744448000),
    "WesternDigitalDevice": ("WUS4BB019D4M9E7", 1920, 609651339018240),
    "ToshibaDevice": ("KXD51LN11T92 TOSHIBA", 1920, 1217620007190528),
    "LiteonDevice": ("SSSTC EPX-KW960", 960, 157035510104064),
    "SkhmsDevice": ("HFS512GDE9X083N", 512, (484533969 + 12271117) * 512000),
    "IntelDevice": ("INTEL SSDPEDME016T4F", 1600, 7547837550166016),
    "OcpSupportedDevice_ModelListed": ("WUS6A7619PJP8X7", 1920, 80410014056448),
    "OcpSupportedDevice_ModelNotListed": ("HFS11111ABC", 1920, 88403820249088),
}
# Entries that need the catalogue have no number if the drive is unknown.
BY_GUID = {"WesternDigitalDevice", "OcpSupportedDevice_ModelListed", "OcpSupportedDevice_ModelNotListed"}


def read_cachelib(name: str) -> Evidence:
    return read_recorded([GOOD / "cachelib" / f"{name}.txt"])


@pytest.mark.parametrize("name", CACHELIB)
def test_vendor_tool_texts_are_decoded(catalogue: Catalogue, name: str) -> None:
    model, gigabytes, nand = CACHELIB[name]
    drive = Evidence(drive=DriveFacts(protocol="nvme", model=model, capacity_bytes=gigabytes * 10**9))
    assert get_written_bytes(make_report(merge_evidence(drive, read_cachelib(name)), catalogue))[1] == nand
    assert get_written_bytes(make_report(read_cachelib(name), catalogue))[1] == (
        nand if name in BY_GUID else None
    )


def test_intel_and_seagate_have_a_host_side(catalogue: Catalogue) -> None:
    for name, host in (("IntelDevice", 172365270 * MIB32), ("SeagateDevice", 0xEFB8D568 * 512000)):
        drive = Evidence(drive=DriveFacts(protocol="nvme", model=CACHELIB[name][0]))
        assert (
            get_written_bytes(make_report(merge_evidence(drive, read_cachelib(name)), catalogue))[0] == host
        )


def test_unimplemented_counters_have_no_number(catalogue: Catalogue) -> None:
    evidence = read_recorded([GOOD / "issues" / "nvme-cli_issue_245_zero_counters.txt"])
    drive = Evidence(drive=DriveFacts(protocol="nvme", model="INTEL SSDPEDME016T4F"))
    counters = make_report(merge_evidence(drive, evidence), catalogue)
    assert get_written_bytes(counters) == (None, None)
    assert re.search(r"\b0\b", counters.readings["nand_written"].reason or "")


def test_nand_below_host_writes_has_a_caveat(catalogue: Catalogue) -> None:
    evidence = read_recorded([GOOD / "issues" / "nvme-cli_issue_814_hpe_p4610_smart_log_add.txt"])
    counters = make_report(
        merge_evidence(Evidence(drive=DriveFacts(model="MO001600KWVUU")), evidence), catalogue
    )
    assert get_written_bytes(counters) == (45197 * MIB32, 40262 * MIB32)
    assert "below" in (counters.readings["nand_written"].caveat or "")


def test_several_files_of_a_drive_are_merged(catalogue: Catalogue) -> None:
    names = ("id_ctrl.json", "nvme_smartlog.json", "nvme_ocp_command.json")
    counters = make_report(read_recorded([GOOD / "autoval" / name for name in names]), catalogue)
    assert get_written_bytes(counters) == (47217872 * 512000, 39074645999616)
    assert counters.readings["erase_max"].value == 45
    assert counters.readings["temperature"].value == 33


def test_sas_text_has_no_nand_counter(catalogue: Catalogue) -> None:
    counters = make_report(read_recorded([GOOD / "autoval" / "smartctl_sas_drive"]), catalogue)
    assert get_written_bytes(counters) == (None, None)
    assert counters.readings["host_read"].value == 77_000_000
    flash = replace(
        read_recorded([GOOD / "autoval" / "smartctl_sas_drive"]), drive=DriveFacts(protocol="scsi")
    )
    assert "SCSI" in (make_report(flash, catalogue).readings["nand_written"].reason or "")


@pytest.mark.parametrize(
    ("blocks", "value", "is_refused"),
    [
        # 10 TB by the error counter log, in steps of 10^6 bytes.
        (10**13 // 512, 10**13, False),
        (10**13 // 512 - 2000, 10**13 - 2000 * 512, False),
        (2 * 10**13 // 512, 10**13, True),
        (10**12 // 512, 10**13, True),
    ],
)
def test_sas_drive_counters_agree(catalogue: Catalogue, blocks: int, value: int, is_refused: bool) -> None:
    drive = DriveFacts(protocol="scsi", lba_bytes=512)
    counters = ScsiCounters(written_mb=10**7, read_mb=None, blocks_received=blocks)
    counters_report = make_report(Evidence(drive, scsi=counters), catalogue)
    written = counters_report.readings["host_written"]
    assert written.value == value
    [other] = counters_report.others["host_written"]
    if is_refused:
        assert other.value is None and "log" in (other.reason or "")
    else:
        assert (written.quantum, other.value) == (512, 10**13)


def test_unit_is_proven_by_writing_ten_gibibytes() -> None:
    # Between the two readings 10 GiB were written, plus the file system's metadata.
    with (GOOD / "issues" / "smartmontools_issue_578_10GiB_delta.txt").open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    delta = {row["attr"]: int(row["after"]) - int(row["before"]) for row in rows}
    fits = [unit for unit in UNITS if is_close(delta["241"] * unit, 10 << 30, unit, 0.03)]
    assert fits == [MIB32]


def test_ocp_counts_bytes() -> None:
    note = json.loads((GOOD / "issues" / "pm9a3_10GiB_seq_delta.json").read_text())
    assert note["delta_pmuw_bytes"] == 10 << 30
    assert 0 <= note["delta_data_units_bytes"] - (10 << 30) < 512_000


@pytest.mark.parametrize("path", sorted(GOOD.rglob("*.txt")), ids=lambda path: path.stem)
def test_carriage_returns_and_a_bom_are_ignored(path: Path) -> None:
    if "delta" in path.name:
        return
    raw = path.read_bytes()
    assert decode_evidence("a", b"\xef\xbb\xbf" + raw.replace(b"\n", b"\r\n")) == decode_evidence("a", raw)
