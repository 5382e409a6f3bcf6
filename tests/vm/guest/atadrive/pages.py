"""INQUIRY and READ CAPACITY data, as SAT requires for an ATA drive."""

from __future__ import annotations

from tests.vm.guest.atadrive.ata import AtaDrive
from tests.vm.guest.atadrive.identify import FIRMWARE, MODEL

SECTOR = 512
_VENDOR = b"ATA     "
_MAX_UNMAP, _MAX_RANGES = 0x100000, 64
_COMMAND_IDENTIFY = 0xEC


def build_inquiry_data() -> bytes:
    raw = bytes([0, 0, 6, 2, 91, 0, 0, 2]) + _VENDOR + MODEL[:16].ljust(16).encode()
    return (raw + FIRMWARE.ljust(4).encode()).ljust(96, b"\0")


def build_vpd_page(number: int, drive: AtaDrive) -> bytes | None:
    """Return a page of vital product data, or None if the disk lacks the page."""
    serial = drive.wishes.serial.ljust(20).encode()
    pages = {
        0x80: serial,
        0x83: _build_designator(serial),
        0x89: _build_ata_information(drive),
        0xB0: _build_limits(),
        0xB1: bytes([0, 1]).ljust(60, b"\0"),
        0xB2: bytes([0, 0xE4, 2, 0]),
    }
    pages[0x00] = bytes([0, *pages])
    content = pages.get(number)
    return None if content is None else bytes([0, number]) + len(content).to_bytes(2, "big") + content


def _build_designator(serial: bytes) -> bytes:
    """Return vendor, model and serial number in one text, as for ATA drives without a World Wide Name."""
    text = _VENDOR + MODEL.ljust(40).encode() + serial
    return bytes([2, 1, 0, len(text)]) + text


def _build_ata_information(drive: AtaDrive) -> bytes:
    head = bytes(4) + b"opwatch ".ljust(8) + b"test translator".ljust(16) + b"1".ljust(4)
    signature = bytes(20)
    return head + signature + bytes([_COMMAND_IDENTIFY, 0, 0, 0]) + drive.identify()


def _build_limits() -> bytes:
    raw = bytearray(60)
    raw[16:20], raw[20:24] = _MAX_UNMAP.to_bytes(4, "big"), _MAX_RANGES.to_bytes(4, "big")
    raw[24:28] = (8).to_bytes(4, "big")
    return bytes(raw)


def build_capacity_10(sectors: int) -> bytes:
    return min(sectors - 1, 0xFFFFFFFF).to_bytes(4, "big") + SECTOR.to_bytes(4, "big")


def build_capacity_16(sectors: int) -> bytes:
    # Logical blocks are thin provisioned and read as zeros when unmapped.
    return ((sectors - 1).to_bytes(8, "big") + SECTOR.to_bytes(4, "big") + bytes([0, 0, 0xC0])).ljust(
        32, b"\0"
    )
