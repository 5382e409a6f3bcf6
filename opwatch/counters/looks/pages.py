"""Convert raw structures of an NVMe drive to evidence, from a drive or from a file."""

from __future__ import annotations

from dataclasses import replace

from opwatch.counters.decode import endurance, fdp, identify, ocp, smart_log, telemetry
from opwatch.counters.decode.pages import BadPage
from opwatch.counters.evidence import Evidence, VendorPage
from opwatch.counters.reading import DriveFacts


def decode_controller_evidence(raw: bytes) -> Evidence:
    """Return the drive facts in Identify Controller."""
    controller = identify.decode_controller(raw)
    return Evidence(
        drive=DriveFacts(
            protocol="nvme",
            model=controller.model,
            serial=controller.serial,
            firmware=controller.firmware,
            vendor_id=controller.vendor_id,
            capacity_bytes=controller.capacity_bytes,
            max_transfer_bytes=controller.max_transfer_bytes,
        )
    )


def decode_page_evidence(lid: int, raw: bytes) -> Evidence:
    """Convert a log page to evidence, or raise BadPage if content and number do not match."""
    evidence = Evidence(drive=DriveFacts(protocol="nvme"))
    if lid == smart_log.LID:
        return replace(evidence, smart=smart_log.decode_smart_log(raw))
    if lid == endurance.LID:
        return replace(evidence, endurance=endurance.decode_endurance_group(raw))
    if lid == fdp.LID:
        return replace(evidence, fdp=fdp.decode_fdp_statistics(raw))
    if lid == ocp.LID:
        page = ocp.decode_c0(raw)
        if isinstance(page, ocp.CloudLog):
            return replace(evidence, ocp=page)
        return replace(evidence, boot=page)
    if lid in (telemetry.HOST_LID, telemetry.CONTROLLER_LID):
        return replace(evidence, telemetry=telemetry.decode_telemetry(raw))
    if lid >= 0xC0:
        return replace(evidence, vendor=(VendorPage(lid, raw),))
    raise BadPage(f"log page {lid:02X}h contains no counters that opwatch knows")
