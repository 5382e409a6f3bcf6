"""Build the report of a drive: each counter, or the reason why it is missing."""

from __future__ import annotations

from dataclasses import replace

from opwatch.counters.catalogue.families import Catalogue
from opwatch.counters.decode.smart_log import UNIT_BYTES
from opwatch.counters.evidence import Evidence
from opwatch.counters.prove import sanity
from opwatch.counters.prove.ata import AtaProof
from opwatch.counters.prove.health import health_notes, wear_pace
from opwatch.counters.prove.lifetime import lifetime_ratio
from opwatch.counters.prove.nvme import NvmeProof
from opwatch.counters.prove.wear import percentages_used
from opwatch.counters.reading import CounterReading, Proof, Report, unknown

_MB = 10**6


def _of(record: object | None, name: str) -> int | None:
    """Return a field of a page, or None without the page."""
    value: int | None = getattr(record, name) if record else None
    return value


def _spec(value: int | None, unit: str, source: str, reason: str) -> CounterReading:
    if value is None:
        return unknown(reason, unit)
    return CounterReading(value, unit, 1, source, Proof.SPEC)


def _health(evidence: Evidence) -> dict[str, CounterReading]:
    """Return the health readings that all protocols share."""
    smart = evidence.smart
    missing = "it was not read, or the drive does not report it"
    temperature = smart.temperature_celsius if smart else None
    if temperature is None:
        temperature = evidence.temperature_celsius
    hours = smart.power_on_hours if smart else evidence.power_on_hours
    return {
        "percentage_used": percentages_used(evidence)[0],
        "available_spare": _spec(_of(smart, "available_spare"), "percent", "log 02h", missing),
        "spare_threshold": _spec(_of(smart, "spare_threshold"), "percent", "log 02h", missing),
        "temperature": _spec(temperature, "celsius", "the drive's sensor", missing),
        "power_on_hours": _spec(hours, "hours", "log 02h" if smart else "power-on hours", missing),
        "power_cycles": _spec(_of(smart, "power_cycles"), "cycles", "log 02h", missing),
        "unsafe_shutdowns": _spec(_of(smart, "unsafe_shutdowns"), "shutdowns", "log 02h", missing),
    }


def _used(evidence: Evidence) -> CounterReading:
    """Return NUSE in bytes. Some drives always report the full namespace instead of tracking the use."""
    namespace = evidence.namespace
    used = namespace.used_lbas if namespace else None
    if namespace is None or used is None:
        return unknown("Identify Namespace was not read")
    lba = namespace.lba_bytes or evidence.drive.lba_bytes
    if not lba:
        return unknown("the size of a logical block is not known")
    reading = CounterReading(used * lba, "bytes", lba, "Identify Namespace NUSE", Proof.SPEC)
    if used == namespace.size_lbas and not namespace_is_thin(evidence):
        return reading.noted("equal to the namespace: the drive may not track it")
    return reading


def namespace_is_thin(evidence: Evidence) -> bool:
    """Return whether the namespace is thin provisioned (capacity below size). Its use is tracked then."""
    namespace = evidence.namespace
    if not namespace or namespace.capacity_lbas is None or namespace.size_lbas is None:
        return False
    return namespace.capacity_lbas < namespace.size_lbas


def _erases(evidence: Evidence) -> dict[str, CounterReading]:
    readings: dict[str, CounterReading] = {}
    page = evidence.ocp
    for name in ("erase_max", "erase_min", "erase_average"):
        value = _of(page, name)
        source = f"log C0h {name.removeprefix('erase_')} user data erase count"
        reading = _spec(value, "erases", source, "the drive does not report it in a page that was read")
        readings[name] = reading
    return readings


def _nvme(evidence: Evidence, catalogue: Catalogue) -> Report:
    proof = NvmeProof(evidence, catalogue)
    hosts = proof.host()
    nands = proof.nand(hosts[0])
    smart = evidence.smart
    units = smart.data_units_read if smart else None
    read = unknown("log 02h was not read")
    if units is not None and smart:
        source = f"log 02h data units read ({UNIT_BYTES} B, rounded up)"
        read = CounterReading(units * UNIT_BYTES, "bytes", UNIT_BYTES, source, Proof.SPEC)
        fault = proof.fault()
        reason = fault.fault if fault else sanity.too_fast(units * UNIT_BYTES, smart.power_on_hours, "nvme")
        reason = reason or proof.beyond_commands(units * UNIT_BYTES, smart.read_commands)
        read = read.refused(reason.replace("write", "read")) if reason else read
    page = evidence.ocp
    missing = "log C0h was not read, or is not the OCP one"
    readings = {
        "host_written": hosts[0],
        "nand_written": nands[0],
        "host_read": read,
        **_erases(evidence),
        **(proof.erases() if not page else {}),
        **_health(evidence),
        "nuse": _used(evidence),
        "free_blocks": _spec(_of(page, "percent_free_blocks"), "percent", "log C0h", missing),
        "refresh_count": _spec(_of(page, "refresh_count"), "blocks", "log C0h", missing),
        "incomplete_shutdowns": _spec(_of(page, "incomplete_shutdowns"), "shutdowns", "log C0h", missing),
    }
    fdp = evidence.fdp
    others = {"host_written": hosts[1:], "nand_written": nands[1:]}
    if fdp and fdp.host_bytes_written is not None and not hosts[0].source.startswith("log 22h"):
        others["host_written"].append(proof.placement(fdp.host_bytes_written, "HBMW"))
    return Report(evidence.drive, readings, others, evidence.failures)


def _ata(evidence: Evidence, catalogue: Catalogue) -> Report:
    proof = AtaProof(evidence, catalogue)
    hosts = proof.host()
    nands = proof.nand(hosts[0])
    if evidence.drive.rotational:
        nands = [unknown("not a flash drive: it has no NAND")]
    erases = _erases(evidence)
    average = proof.erase_average()
    if average:
        erases["erase_average"] = average
    readings = {
        "host_written": hosts[0],
        "nand_written": nands[0],
        "host_read": proof.host_read(),
        **erases,
        **_health(evidence),
        "nuse": unknown("ATA has no count of used blocks"),
    }
    others = {"host_written": hosts[1:], "nand_written": nands[1:]}
    return Report(evidence.drive, readings, others, evidence.failures, lifetime=proof.page_ratio())


def _scsi_side(megabytes: int | None, name: str, hours: int | None) -> CounterReading:
    if megabytes is None:
        return unknown("the error counter logs were not read, or do not tell bytes")
    source = f"SCSI {name} error counter log, bytes processed"
    reading = CounterReading(megabytes * _MB, "bytes", _MB, source, Proof.SPEC)
    if not megabytes:
        return reading.refused("the counter is 0: nothing was processed, or the drive does not count")
    reason = sanity.too_fast(megabytes * _MB, hours, "scsi")
    return reading.refused(reason) if reason else reading


def _scsi(evidence: Evidence) -> Report:
    counters = evidence.scsi
    hours = evidence.power_on_hours
    written = _scsi_side(counters.written_mb if counters else None, "write", hours)
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
            others = [finer.refused("it is not what the error counter log says")]
    nand = "not measurable: SCSI defines no counter of NAND writes"
    if evidence.drive.rotational:
        nand = "not a flash drive: it has no NAND"
    readings = {
        "host_written": written,
        "nand_written": unknown(nand),
        "host_read": _scsi_side(counters.read_mb if counters else None, "read", hours),
        **_erases(evidence),
        **_health(evidence),
        "nuse": unknown("it was not read"),
    }
    return Report(evidence.drive, readings, {"host_written": others, "nand_written": []}, evidence.failures)


def _credible(reading: CounterReading) -> CounterReading:
    reason = sanity.absurd(reading.value, reading.unit) if reading.value is not None else None
    return reading.refused(reason) if reason else reading


def report(evidence: Evidence, catalogue: Catalogue) -> Report:
    """Return the report of a drive. Without a known protocol it contains only reasons."""
    unchecked = _by_protocol(evidence, catalogue)
    readings = {name: _credible(reading) for name, reading in unchecked.readings.items()}
    used = readings["percentage_used"]
    pace = wear_pace(used, readings["power_on_hours"])
    others = {**unchecked.others, "percentage_used": percentages_used(evidence)[1:]}
    return replace(
        unchecked,
        readings=readings,
        health=health_notes(evidence, used),
        paces=(pace,) if pace else (),
        lifetime=lifetime_ratio(readings["host_written"], readings["nand_written"]) or unchecked.lifetime,
        others={name: [_credible(reading) for reading in some] for name, some in others.items()},
    )


def _by_protocol(evidence: Evidence, catalogue: Catalogue) -> Report:
    protocol = evidence.drive.protocol
    if protocol is None and (evidence.attributes or evidence.statistics):
        protocol = "ata"
    if protocol == "nvme":
        return _nvme(evidence, catalogue)
    if protocol == "ata":
        return _ata(evidence, catalogue)
    if protocol == "scsi" or evidence.scsi:
        return _scsi(evidence)
    nothing = unknown("no counter of this device was read")
    readings = {"host_written": nothing, "nand_written": nothing, "host_read": nothing}
    readings |= {**_erases(evidence), **_health(evidence), "nuse": nothing}
    return Report(evidence.drive, readings, failures=evidence.failures)
