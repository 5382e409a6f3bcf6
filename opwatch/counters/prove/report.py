"""Build the report of a drive: each counter, or the reason why it is missing."""

from __future__ import annotations

from dataclasses import replace

from opwatch.counters.catalogue.families import Catalogue
from opwatch.counters.decode.smart_log import UNIT_BYTES
from opwatch.counters.evidence import Evidence
from opwatch.counters.prove import sanity
from opwatch.counters.prove.ata import AtaProof
from opwatch.counters.prove.health import collect_health_notes, compute_wear_pace
from opwatch.counters.prove.lifetime import compute_lifetime_ratio
from opwatch.counters.prove.nvme import NvmeProof
from opwatch.counters.prove.wear import find_percentages_used
from opwatch.counters.reading import CounterReading, Proof, Report, make_unknown

_MB = 10**6


def _get_field(record: object | None, name: str) -> int | None:
    """Return a field of a page, or None without the page."""
    value: int | None = getattr(record, name) if record else None
    return value


def _make_spec_reading(value: int | None, unit: str, source: str, reason: str) -> CounterReading:
    if value is None:
        return make_unknown(reason, unit)
    return CounterReading(value, unit, 1, source, Proof.SPEC)


def _collect_health(evidence: Evidence) -> dict[str, CounterReading]:
    """Return the health readings that all protocols share."""
    smart = evidence.smart
    missing = "it was not read, or the drive does not report it"
    temperature = smart.temperature_celsius if smart else None
    if temperature is None:
        temperature = evidence.temperature_celsius
    hours = smart.power_on_hours if smart else evidence.power_on_hours
    return {
        "percentage_used": find_percentages_used(evidence)[0],
        "available_spare": _make_spec_reading(
            _get_field(smart, "available_spare"), "percent", "log 02h", missing
        ),
        "spare_threshold": _make_spec_reading(
            _get_field(smart, "spare_threshold"), "percent", "log 02h", missing
        ),
        "temperature": _make_spec_reading(temperature, "celsius", "the drive's sensor", missing),
        "power_on_hours": _make_spec_reading(
            hours, "hours", "log 02h" if smart else "power-on hours", missing
        ),
        "power_cycles": _make_spec_reading(_get_field(smart, "power_cycles"), "cycles", "log 02h", missing),
        "unsafe_shutdowns": _make_spec_reading(
            _get_field(smart, "unsafe_shutdowns"), "shutdowns", "log 02h", missing
        ),
    }


def _read_used_bytes(evidence: Evidence) -> CounterReading:
    """Return NUSE in bytes. Some drives always report the full namespace instead of tracking the use."""
    namespace = evidence.namespace
    used = namespace.used_lbas if namespace else None
    if namespace is None or used is None:
        return make_unknown("Identify Namespace was not read")
    lba = namespace.lba_bytes or evidence.drive.lba_bytes
    if not lba:
        return make_unknown("the logical block size is unknown")
    reading = CounterReading(used * lba, "bytes", lba, "Identify Namespace NUSE", Proof.SPEC)
    if used == namespace.size_lbas and not is_namespace_thin(evidence):
        return reading.with_caveat("equal to the namespace size: the drive may not track it")
    return reading


def is_namespace_thin(evidence: Evidence) -> bool:
    """Return whether the namespace is thin provisioned (capacity below size). Its use is tracked then."""
    namespace = evidence.namespace
    if not namespace or namespace.capacity_lbas is None or namespace.size_lbas is None:
        return False
    return namespace.capacity_lbas < namespace.size_lbas


def _read_erases(evidence: Evidence) -> dict[str, CounterReading]:
    readings: dict[str, CounterReading] = {}
    page = evidence.ocp
    for name in ("erase_max", "erase_min", "erase_average"):
        value = _get_field(page, name)
        source = f"log C0h {name.removeprefix('erase_')} user data erase count"
        reading = _make_spec_reading(value, "erases", source, "no page that was read reports it")
        readings[name] = reading
    return readings


def _report_nvme(evidence: Evidence, catalogue: Catalogue) -> Report:
    proof = NvmeProof(evidence, catalogue)
    hosts = proof.list_host_counts()
    nands = proof.list_nand_counts(hosts[0])
    smart = evidence.smart
    units = smart.data_units_read if smart else None
    read = make_unknown("log 02h was not read")
    if units is not None and smart:
        source = f"log 02h data units read ({UNIT_BYTES} B, rounded up)"
        read = CounterReading(units * UNIT_BYTES, "bytes", UNIT_BYTES, source, Proof.SPEC)
        fault = proof.find_fault()
        reason = (
            fault.fault if fault else sanity.check_speed(units * UNIT_BYTES, smart.power_on_hours, "nvme")
        )
        reason = reason or proof.check_commands(units * UNIT_BYTES, smart.read_commands)
        read = read.without_value(reason.replace("write", "read")) if reason else read
    page = evidence.ocp
    missing = "log C0h was not read, or is not an OCP log"
    readings = {
        "host_written": hosts[0],
        "nand_written": nands[0],
        "host_read": read,
        **_read_erases(evidence),
        **(proof.read_erases() if not page else {}),
        **_collect_health(evidence),
        "nuse": _read_used_bytes(evidence),
        "free_blocks": _make_spec_reading(
            _get_field(page, "percent_free_blocks"), "percent", "log C0h", missing
        ),
        "refresh_count": _make_spec_reading(_get_field(page, "refresh_count"), "blocks", "log C0h", missing),
        "incomplete_shutdowns": _make_spec_reading(
            _get_field(page, "incomplete_shutdowns"), "shutdowns", "log C0h", missing
        ),
    }
    fdp = evidence.fdp
    others = {"host_written": hosts[1:], "nand_written": nands[1:]}
    if fdp and fdp.host_bytes_written is not None and not hosts[0].source.startswith("log 22h"):
        others["host_written"].append(proof.make_placement_reading(fdp.host_bytes_written, "HBMW"))
    return Report(evidence.drive, readings, others, evidence.failures)


def _report_ata(evidence: Evidence, catalogue: Catalogue) -> Report:
    proof = AtaProof(evidence, catalogue)
    hosts = proof.list_host_counts()
    nands = proof.list_nand_counts(hosts[0])
    if evidence.drive.rotational:
        nands = [make_unknown("not a flash drive: it has no NAND")]
    erases = _read_erases(evidence)
    average = proof.find_erase_average()
    if average:
        erases["erase_average"] = average
    readings = {
        "host_written": hosts[0],
        "nand_written": nands[0],
        "host_read": proof.find_host_read(),
        **erases,
        **_collect_health(evidence),
        "nuse": make_unknown("ATA has no count of used blocks"),
    }
    others = {"host_written": hosts[1:], "nand_written": nands[1:]}
    return Report(evidence.drive, readings, others, evidence.failures, lifetime=proof.compute_page_ratio())


def _read_scsi_bytes(megabytes: int | None, name: str, hours: int | None) -> CounterReading:
    if megabytes is None:
        return make_unknown("the error counter logs were not read, or do not report bytes")
    source = f"SCSI {name} error counter log, bytes processed"
    reading = CounterReading(megabytes * _MB, "bytes", _MB, source, Proof.SPEC)
    if not megabytes:
        return reading.without_value("the counter is 0: nothing was processed, or the drive does not count")
    reason = sanity.check_speed(megabytes * _MB, hours, "scsi")
    return reading.without_value(reason) if reason else reading


def _report_scsi(evidence: Evidence) -> Report:
    counters = evidence.scsi
    hours = evidence.power_on_hours
    written = _read_scsi_bytes(counters.written_mb if counters else None, "write", hours)
    others: list[CounterReading] = []
    blocks, lba = counters.blocks_received if counters else None, evidence.drive.lba_bytes
    if blocks and lba:
        source = "SCSI general statistics, logical blocks received"
        finer = CounterReading(blocks * lba, "bytes", lba, source, Proof.SPEC)
        if written.value is None:
            written = finer
        elif abs(blocks * lba - written.value) <= 0.02 * written.value + 2 * _MB:
            written, others = finer, [written]
        else:
            others = [finer.without_value("it differs from the error counter log")]
    nand = "not measurable: SCSI defines no counter of NAND writes"
    if evidence.drive.rotational:
        nand = "not a flash drive: it has no NAND"
    readings = {
        "host_written": written,
        "nand_written": make_unknown(nand),
        "host_read": _read_scsi_bytes(counters.read_mb if counters else None, "read", hours),
        **_read_erases(evidence),
        **_collect_health(evidence),
        "nuse": make_unknown("it was not read"),
    }
    return Report(evidence.drive, readings, {"host_written": others, "nand_written": []}, evidence.failures)


def _refuse_absurd(reading: CounterReading) -> CounterReading:
    reason = sanity.check_value(reading.value, reading.unit) if reading.value is not None else None
    return reading.without_value(reason) if reason else reading


def make_report(evidence: Evidence, catalogue: Catalogue) -> Report:
    """Return the report of a drive. Without a known protocol it contains only reasons."""
    unchecked = _report_by_protocol(evidence, catalogue)
    readings = {name: _refuse_absurd(reading) for name, reading in unchecked.readings.items()}
    used = readings["percentage_used"]
    pace = compute_wear_pace(used, readings["power_on_hours"])
    others = {**unchecked.others, "percentage_used": find_percentages_used(evidence)[1:]}
    return replace(
        unchecked,
        readings=readings,
        health=collect_health_notes(evidence, used),
        paces=(pace,) if pace else (),
        lifetime=compute_lifetime_ratio(readings["host_written"], readings["nand_written"])
        or unchecked.lifetime,
        others={name: [_refuse_absurd(reading) for reading in some] for name, some in others.items()},
    )


def _report_by_protocol(evidence: Evidence, catalogue: Catalogue) -> Report:
    protocol = evidence.drive.protocol
    if protocol is None and (evidence.attributes or evidence.statistics):
        protocol = "ata"
    if protocol == "nvme":
        return _report_nvme(evidence, catalogue)
    if protocol == "ata":
        return _report_ata(evidence, catalogue)
    if protocol == "scsi" or evidence.scsi:
        return _report_scsi(evidence)
    nothing = make_unknown("no counter of this device was read")
    readings = {"host_written": nothing, "nand_written": nothing, "host_read": nothing}
    readings |= {**_read_erases(evidence), **_collect_health(evidence), "nuse": nothing}
    return Report(evidence.drive, readings, failures=evidence.failures)
