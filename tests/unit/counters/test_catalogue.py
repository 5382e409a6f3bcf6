"""Each catalogue entry: a drive that matches, and the same drive with doubtful data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.counters.catalogue.families import Catalogue, Entry, load_catalogue, parse_catalogue
from opwatch.counters.catalogue.fingerprints import UnitRules
from opwatch.counters.decode.smart_log import SmartLog
from opwatch.counters.evidence import Attribute, Evidence, Statistics, VendorPage
from opwatch.counters.prove.report import make_report
from opwatch.counters.reading import DriveFacts, Proof, Report
from opwatch.errors import UsageError

# Exclude learned rules, which are separate evidence.
CATALOGUE = Catalogue(load_catalogue(system=Path("/nonexistent")).entries, UnitRules())
# Entry -> model, firmware, family of a real drive, followed by a model that must not match.
EXAMPLES = {
    "smi-gib-firmware": ("SH00R480GB", "S0110A0", None, None),
    "supermicro-superdom": ("SuperMicro SSD", "SOB20R", "Supermicro SATA DOM (SuperDOM)", "Supermicro SSD"),
    "supermicro-satadom": ("SuperMicro SSD", "SOB20R", None, "Supermicro SSD"),
    "dell-micron": ("MTFDDAK1T9TDT", "D3DJ004", None, "MTFDHBA960TDF"),
    "dell-samsung": ("MZ7LH480HAHQ0D3", "HE57", None, "MZ7LH480HAHQ-00005"),
    "dell-intel": ("SSDSC2KB480G8R", "XCV1DL67", None, "SSDSC2KB480G8"),
    "hynix-g32feh": ("HFS960G32FEH-BA10A", "DD02", None, "HFS960G3H2X069N"),
    "samsung-pm881": ("SAMSUNG MZNLH1T0HALB-00000", "RVT2200Q", None, "SAMSUNG MZNLN256HMHQ-00000"),
    "samsung-datacentre": ("SAMSUNG MZ7KM960HAHP-00005", "GXM1104Q", None, "SAMSUNG MZ7LN256HCHP-00000"),
    "samsung-client": ("Samsung SSD 860 EVO 1TB", "RVT01B6Q", None, "Samsung SSD 970 EVO 1TB"),
    "samsung-oem-client": ("SAMSUNG MZ7LN256HMJP-00000", "MAV0100Q", None, "SAMSUNG MZVLB256HAHQ-00000"),
    "samsung-oem-gib": ("SAMSUNG MZ7TY256HDHP-000L7", "MAT03L6Q", None, "SAMSUNG MZVLB256HAHQ-00000"),
    "intel-datacentre": ("INTEL SSDSC2BA400G3", "5DV10270", None, "INTEL SSDSC2KB480GZ"),
    "intel-datacentre-host": ("INTEL SSDSC2BB120G4", "D2012370", None, "INTEL SSDSC2CW240A3"),
    "intel-320": ("INTEL SSDSA2CW160G3", "4PC10362", None, "INTEL SSDSA2M080G2GC"),
    "intel-545s": ("INTEL SSDSC2KW256G8", "LHF002C", None, "INTEL SSDSC2KW240H6"),
    "intel-sandforce": ("INTEL SSDSC2CW240A3", "400i", None, "INTEL SSDSC2BW240H6"),
    "micron-datacentre": ("Micron_5300_MTFDDAK480TDS", "D3MU001", None, "Micron_M500DC_MTFDDAK480MBB"),
    "micron-client-16k": ("Crucial_CT525MX300SSD1", "M0CR060", None, "CT1000MX500SSD1"),
    "crucial-pages": ("CT1000MX500SSD1", "M3CR033", None, "CT1000P1SSD8"),
    "crucial-micron-client": ("Crucial_CT240M500SSD1", "MU05", None, "Crucial_CT250MX200SSD1"),
    "wd-sandisk-tlc-slc": ("SanDisk SSD PLUS 1000GB", "UH5100RL", None, "HFS480G32FEH"),
    "wd-blue-3d": ("WDC WDS100T2B0A-00SM50", "401000WD", None, "WDC WDS100T3B0A-00AXR0"),
    "sandisk-3d": ("SanDisk SDSSDH3 512G", "40101000", None, "SanDisk SDSSDP128G"),
    "sandisk-x400-1006": (
        "SanDisk SD8SB8U-128G-1006",
        "X4120006",
        "Marvell based SanDisk SSDs",
        "SanDisk SD6SB1M128G",
    ),
    "sandisk-marvell": ("SanDisk SDSSDHII480G", "X31200RL", "Marvell based SanDisk SSDs", None),
    "phison-a400": ("KINGSTON SA400S37240G", "SBFKB1D1", "Phison Driven SSDs", None),
    "phison": ("KINGSTON SEDC450R480G", "SCEKH3.6", "Phison Driven SSDs", None),
    "phison-host": ("GIGABYTE GP-GSTFS31240GNTD", "SBFM61.3", "Phison Driven SSDs", None),
    "phison-a400-old": ("GOODRAM", "SBFKJ4.3", "Phison Driven SSDs", None),
    "kingston-dc-default": ("KINGSTON SEDC500M960G", "SCEKJ2.7", None, "KINGSTON SEDC400S37960G"),
    "kingston-uv": ("KINGSTON SUV500480G", "003056RI", None, "KINGSTON SUV300S37A240G"),
    "sandforce": ("KINGSTON SV300S37A240G", "608ABBF0", "SandForce Driven SSDs", None),
    "sandforce-sf1200": ("OCZ-VERTEX2", "1.37", "SandForce Driven SSDs", None),
    "seagate-nytro-sf442147": ("XA960LE10063", "SF442147", None, "XP960LE10063"),
    "seagate-nytro": ("XA960LE10063", "SF450042", None, "XF1230-1A0480"),
    "seagate-xf1230": ("XF1230-1A0480", "ST200334", None, "XA960LE10063"),
    "hynix-gold-s31": ("SHGS31-1000GS-2", "90000Q00", None, "SHGP31-1000GM-2"),
    "hynix-sc311": ("SK hynix SC311 SATA 128GB", "70000P10", None, "SK hynix SC308 SATA 128GB"),
    "toshiba-hk4": ("TOSHIBA THNSN81Q92CSE", "8EET6101", None, "TOSHIBA THNSNJ256GCSU"),
    "kioxia-exceria": ("KIOXIA-EXCERIA SATA SSD", "SBFA13.1", None, "KIOXIA-EXCERIA PLUS SSD"),
    "smi-brands": ("TEAM T253A3001T", "T0805A0", None, "KingDian S280"),
    "transcend-smi": ("TS32GMTS400", "N1126KB", "Silicon Motion based SSDs", "SSD 32GB"),
    "statistics-wrap": ("Patriot Burst", "SBFM11.2", None, "CT240BX500SSD1"),
    "intel-p3x00-wrap": ("INTEL SSDPEDMD400G4", "8DV10131", None, "INTEL SSDPE2KX010T8"),
    "intel-p3700-512": ("INTEL SSDPEDMD800G4", "8DV10049", None, "INTEL SSDPE2KX010T8"),
    "intel-optane": ("INTEL SSDPED1D280GA", "E2010325", None, "INTEL SSDPE2KX010T8"),
    "intel-nand": ("INTEL SSDPE2KX010T8", "VDV10131", None, "INTEL SSDPEKNW512G8"),
    "samsung-before-ocp": ("SAMSUNG MZ1LB1T9HALS-000FB", "EDA78F2Q", None, "SAMSUNG MZ1LB1T9HALS-00007"),
    "toshiba-liteon-before-ocp": ("SSSTC EPX-KW960", "CMWF2P3", None, "SSSTC CL4-8D512"),
    "hynix-boot": ("HFS512GDE9X083N", "41021C20", None, "HFS512GDE9X084N-X"),
    "seagate-nytro-nvme": ("XM1441-1AB112048", "PA00FB0C", None, "XP1920LE30002"),
    "solidigm": ("SOLIDIGM SSDPF2KX038T1", "9CV10410", None, "SOLIDIGM SSDPFKKW512H7X"),
    "dapustor": ("DPRD3108T0T501T6000", "FF001310", None, None),
    "scaleflux": ("CSD-3310", "U4040", None, "CT500P3SSD8"),
    "memblaze-10": ("P6531DT0384M00", "00230520", None, None),
    "micron-tlc-slc": ("Micron_7300_MTFDHBA960TDF", "95420260", None, "Micron_7450_MTFDKCC3T8TFR"),
    "wdc-tlc-slc": ("WDC PC SN730 SDBQNTY-512G-1001", "11170101", None, "WDC PC SN530 SDBPNPZ-512G-1114"),
    "wdc-smart": ("WUS4BB038D7P3E1", "R1110006", None, "WDC WUH721414ALE6L4"),
    "samsung-smart": ("SAMSUNG MZQLB960HAJR-00007", "EDA5202Q", None, "SAMSUNG MZ1LB1T9HALS-000FB"),
    "micron-9200-9300": ("Micron_9300_MTFDHAL3T8TDP", "11300DN0", None, "Micron_7450_MTFDKCC3T8TFR"),
}
CAPACITY, HOURS = 960 * 10**9, 20_000
ATA = [entry for entry in CATALOGUE.entries if entry.protocol == "ata" and entry.host]


def make_drive(entry: Entry, model: str | None = None) -> DriveFacts:
    example = EXAMPLES[entry.name]
    return DriveFacts(
        protocol=entry.protocol,
        model=model or example[0],
        firmware=example[1],
        family=example[2],
        capacity_bytes=CAPACITY,
        lba_bytes=512,
    )


def make_sata_evidence(entry: Entry, scale: int = 1) -> Evidence:
    """A drive of the entry with 100 TB host writes and twice as many NAND writes."""
    assert entry.host
    raws = dict.fromkeys((*entry.requires, *(int(term) for term in entry.erase)), 0)
    raws[int(entry.host.terms[0])] = 10**14 // entry.host.units[0] * scale
    for group in entry.equal:
        raws |= dict.fromkeys(group, max(raws[number] for number in group))
    if entry.nand:
        share = 2 * 10**14 // entry.nand.units[0] // len(entry.nand.terms)
        raws |= {int(term): share for term in entry.nand.terms}
    if entry.sum_of:
        total, factor, parts = entry.sum_of
        raws |= dict.fromkeys(parts, raws[total] // factor // len(parts))
        raws[total] = factor * sum(raws[part] for part in parts)
    raws |= {int(term): 173 if entry.worn else 200 for term in entry.erase}
    attributes = tuple(
        Attribute(number, "Unknown_Attribute", raw, str(raw), 100) for number, raw in raws.items()
    )
    return Evidence(drive=make_drive(entry), attributes=attributes, power_on_hours=HOURS)


def report_evidence(evidence: Evidence) -> Report:
    return make_report(evidence, CATALOGUE)


def test_every_entry_has_an_example_and_evidence() -> None:
    assert {entry.name for entry in CATALOGUE.entries} == set(EXAMPLES)
    assert len({entry.name for entry in CATALOGUE.entries}) == len(CATALOGUE.entries)


@pytest.mark.parametrize("entry", CATALOGUE.entries, ids=lambda entry: entry.name)
def test_an_entry_matches_its_drives_and_no_others(entry: Entry) -> None:
    assert entry.matches_drive(make_drive(entry))
    other = EXAMPLES[entry.name][3]
    assert other is None or not entry.matches_drive(make_drive(entry, other))
    assert not entry.matches_drive(make_drive(entry, f"x{EXAMPLES[entry.name][0]}")) or entry.model is None
    assert not entry.matches_drive(replace(make_drive(entry), model=None, family=None, firmware=None))


@pytest.mark.parametrize("entry", ATA, ids=lambda entry: entry.name)
def test_a_good_drive_has_its_bytes(entry: Entry) -> None:
    assert entry.host
    proven = report_evidence(make_sata_evidence(entry))
    host, nand = proven.readings["host_written"], proven.readings["nand_written"]
    assert host.value is not None and abs(host.value - 10**14) <= entry.host.units[0]
    assert (host.proof, host.quantum) == (Proof.CATALOGUE, entry.host.quantum)
    if entry.nand:
        assert nand.value is not None and abs(nand.value - 2 * 10**14) <= 4 * entry.nand.quantum + 65536
    else:
        assert nand.value is None and nand.reason


@pytest.mark.parametrize(
    ("name", "counter", "step"),
    [
        ("sandforce-sf1200", "host_written", 64 << 30),
        ("dell-samsung", "nand_written", 1024 * 512),
        ("samsung-datacentre", "nand_written", 1024 * 512),
        ("micron-client-16k", "nand_written", 32 * 16384),
    ],
)
def test_the_step_of_a_counter_is_the_largest_of_its_firmwares(name: str, counter: str, step: int) -> None:
    [entry] = [entry for entry in ATA if entry.name == name]
    assert report_evidence(make_sata_evidence(entry)).readings[counter].quantum == step


def change_attribute(evidence: Evidence, number: int, **values: object) -> Evidence:
    attributes = tuple(
        replace(attribute, **values) if attribute.id == number else attribute  # type: ignore[arg-type]
        for attribute in evidence.attributes
    )
    return replace(evidence, attributes=attributes)


@pytest.mark.parametrize("entry", ATA, ids=lambda entry: entry.name)
def test_doubtful_drive_has_no_bytes(entry: Entry) -> None:
    assert entry.host
    term, good = int(entry.host.terms[0]), make_sata_evidence(entry)
    doubtful = [
        change_attribute(good, term, raw=(1 << 48) - 1),  # all ones
        change_attribute(good, term, raw=0),  # not implemented
        change_attribute(good, term, raw=None),  # several numbers in the raw value
        change_attribute(good, term, name="Power_Loss_Count"),  # relabelled
        make_sata_evidence(entry, scale=10**6),  # more than the interface can transfer
        replace(good, attributes=tuple(attribute for attribute in good.attributes if attribute.id != term)),
        replace(good, attributes=(*good.attributes, *good.attributes)),
        replace(good, drive=replace(good.drive, model="ACME", family=None)),
    ]
    for evidence in doubtful:
        reading = report_evidence(evidence).readings["host_written"]
        assert reading.value is None and reading.reason


@pytest.mark.parametrize(
    "entry", [entry for entry in ATA if entry.nand and not entry.below_host], ids=lambda entry: entry.name
)
def test_nand_below_the_host_is_refused(entry: Entry) -> None:
    assert entry.nand and entry.host
    good = make_sata_evidence(entry)
    for term in entry.nand.terms:
        good = change_attribute(good, int(term), raw=1000)
    assert report_evidence(good).readings["nand_written"].value is None


@pytest.mark.parametrize("entry", ATA, ids=lambda entry: entry.name)
def test_device_statistics_that_disagree_are_not_averaged(entry: Entry) -> None:
    good = replace(make_sata_evidence(entry), statistics=Statistics({(1, 0x18): 10**14 // 512 * 3}))
    assert report_evidence(good).readings["host_written"].value is None
    agree = replace(make_sata_evidence(entry), statistics=Statistics({(1, 0x18): 10**14 // 512}))
    assert report_evidence(agree).readings["host_written"].proof is Proof.SPEC
    wrapped = replace(make_sata_evidence(entry), statistics=Statistics({(1, 0x18): 10**14 // 512 % 2**32}))
    assert report_evidence(wrapped).readings["host_written"].proof is Proof.CALIBRATED


def test_statistics_that_may_have_wrapped_are_refused() -> None:
    entry = next(
        entry_of_list for entry_of_list in CATALOGUE.entries if entry_of_list.name == "statistics-wrap"
    )
    short = Evidence(drive=make_drive(entry), statistics=Statistics({(1, 0x18): 10**9}), power_on_hours=HOURS)
    assert report_evidence(short).readings["host_written"].value is None
    beyond = replace(short, statistics=Statistics({(1, 0x18): 10**10}))
    assert report_evidence(beyond).readings["host_written"].value == 512 * 10**10


def test_statistics_that_an_attribute_contradicts_are_refused() -> None:
    def make_acme_evidence(**raws: int) -> Evidence:
        attributes = tuple(
            Attribute(int(key[1:]), "Total_LBAs_Written", raw, str(raw)) for key, raw in raws.items()
        )
        statistics = Statistics({(1, 0x18): 1 << 31})
        return Evidence(DriveFacts("ata", "ACME"), attributes=attributes, statistics=statistics)

    one_tib = (1 << 31) * 512
    for raws in ({}, {"a241": 1 << 10}, {"a241": 1 << 15}, {"a241": 777, "a233": 1 << 15}):
        assert report_evidence(make_acme_evidence(**raws)).readings["host_written"].value == one_tib
    assert report_evidence(make_acme_evidence(a241=777)).readings["host_written"].value is None
    # The value is equal modulo 2^32 sectors because the statistics have wrapped.
    wrapped = report_evidence(make_acme_evidence(a241=(1 << 31) + (3 << 32))).readings["host_written"]
    assert (wrapped.value, wrapped.proof) == (one_tib + 3 * (1 << 41), Proof.CALIBRATED)


@pytest.mark.parametrize("units", [1, 512_000])
def test_host_bytes_select_the_unit(units: int) -> None:
    entry = next(candidate for candidate in CATALOGUE.entries if candidate.name == "micron-9200-9300")
    page = bytearray(512)
    page[176:184] = (3 * 10**14 // units).to_bytes(8, "little")
    evidence = Evidence(
        drive=make_drive(entry),
        smart=SmartLog(data_units_written=10**14 // 512_000, write_commands=10**10, power_on_hours=HOURS),
        vendor=(VendorPage(0xD0, bytes(page)),),
    )
    nand = report_evidence(evidence).readings["nand_written"]
    assert nand.value == 3 * 10**14 // units * units
    alone = report_evidence(replace(evidence, smart=None)).readings["nand_written"]
    assert alone.value is None and alone.reason


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[ata]]\nname = 1", r"\bname\b"),
        ("[[ata]]\nname = 'a'\nevidence = 'e'\ndrives = 'd'", "model"),
        ("[[ata]]\nname = 'a'\nevidence = 'e'\ndrives = 'd'\nmodel = '('", r"\bmodel .*regular"),
        ("[[ata]]\nname = 'a'\nevidence = 'e'\ndrives = 'd'\nmodel = 'x'\nunits = 3", r"\bunits\b"),
        ("[[ata]]\nname = 'a'\nevidence = 'e'\ndrives = 'd'\nmodel = 'x'\nhost = { of = [241] }", "unit"),
        ("[[usb]]\nname = 'a'", r"\busb\b"),
        ("[[nvme]]\nname = 'a'\nevidence = 'e'\ndrives = 'd'\nmodel = 'x'\nhost = {of=['F5'],unit=1}", "lid"),
        ("what", "key/value"),
    ],
)
def test_invalid_catalogue_names_the_place(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        parse_catalogue(text, "mine.toml")


def test_user_entries_override_the_catalogue(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(
        "[[ata]]\nname = 'mine'\nevidence = 'measured'\ndrives = 'ours'\nmodel = 'SuperMicro SSD'\n"
        "host = { of = [241], unit = 512 }\n"
    )
    catalogue = load_catalogue([mine], system=tmp_path)
    names = [entry.name for entry in catalogue.find_entries(DriveFacts(model="SuperMicro SSD"), "ata")]
    assert names[0] == "mine" and "supermicro-satadom" in names
