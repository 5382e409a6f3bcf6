"""The target's Identify pages, field by field."""

from __future__ import annotations

from tests.vm.guest.target.drive import BLOCK, CONTROLLER, MAX_NAMESPACES, MODEL, SERIAL, TargetDrive
from tests.vm.guest.target.statuses import INVALID_FIELD, Status

NQN = "nqn.2026-11.org.example:namespaces"
PAGE = 4096
VERSION = 0x00010400
# Commands of up to this size carry their data; for larger writes the target requests the data (R2T).
IN_CAPSULE = 8192


class Page:
    """A page that is filled field by field."""

    def __init__(self, length: int = PAGE) -> None:
        self.bytes = bytearray(length)

    def set_number(self, at: int, length: int, value: int) -> None:
        self.bytes[at : at + length] = value.to_bytes(length, "little")

    def set_text(self, at: int, length: int, text: str) -> None:
        self.bytes[at : at + length] = text.encode().ljust(length)


def build_identify_page(drive: TargetDrive, cns: int, namespace: int, controller: int) -> bytes:
    """Return the page of a CNS value."""
    if cns == 0x01:
        return _build_controller(drive)
    if cns in (0x00, 0x11):
        return _build_namespace(drive, namespace, is_active=cns == 0x00)
    if cns == 0x03:
        return _build_descriptors(drive, namespace)
    if cns in (0x02, 0x10):
        active = {number for number, one in drive.namespaces.items() if cns == 0x10 or one.is_attached}
        return _encode_list(sorted(number for number in active if number > namespace), 4)
    if cns == 0x12:
        attached = drive.find_namespace(namespace).is_attached
        return _encode_list([1, CONTROLLER] if attached else [0], 2)
    if cns == 0x13:
        there = [CONTROLLER + place for place in range(drive.controllers)]
        return _encode_list([len(there), *there], 2)
    raise Status(INVALID_FIELD)


def _encode_list(numbers: list[int], width: int) -> bytes:
    return b"".join(number.to_bytes(width, "little") for number in numbers).ljust(PAGE, b"\0")


def _build_controller(drive: TargetDrive) -> bytes:
    page = Page()
    page.set_number(0, 2, 0x1D1D)
    page.set_text(4, 20, SERIAL)
    page.set_text(24, 40, MODEL)
    page.set_text(64, 8, "1")
    page.set_number(76, 1, 0b10 if drive.controllers > 1 else 0)
    page.set_number(77, 1, 5)  # MDTS: 128 KiB
    page.set_number(78, 2, CONTROLLER)
    page.set_number(80, 4, VERSION)
    page.set_number(92, 4, 1 << 8)  # OAES: namespace attributes
    page.set_number(111, 1, 1)  # an I/O controller
    page.set_number(256, 2, 1 << 3)  # OACS: namespace management
    page.set_number(259, 1, 3)
    page.set_number(261, 1, 1 << 1)  # LPA: the effects log
    page.set_number(280, 16, drive.capacity)
    page.set_number(296, 16, drive.free_bytes)
    page.set_number(320, 2, 10)  # KAS, in 100 ms
    page.set_number(328, 4, drive.sanitizing.read_orders().offers)  # SANICAP
    page.set_number(512, 2, 0x4466)
    page.set_number(514, 2, 128)
    page.set_number(516, 4, MAX_NAMESPACES)
    page.set_number(520, 2, 0b1100)  # ONCS: dataset management, write zeroes
    page.set_number(536, 4, 1)  # SGLS
    page.bytes[768 : 768 + len(NQN)] = NQN.encode()
    page.set_number(1792, 4, (64 + IN_CAPSULE) // 16)
    page.set_number(1796, 4, 1)
    page.set_number(1803, 1, 1)
    return bytes(page.bytes)


def _build_namespace(drive: TargetDrive, number: int, *, is_active: bool) -> bytes:
    page = Page()
    if number == 0xFFFFFFFF:
        page.set_number(128 + 2, 1, BLOCK.bit_length() - 1)
        return bytes(page.bytes)
    drive.find_namespace(number)
    one = drive.namespaces[number]
    # If a host asks for active namespaces, an unattached namespace is all zeroes.
    if one.is_attached or not is_active:
        page.set_number(0, 8, one.size)
        page.set_number(8, 8, one.capacity)
        page.set_number(16, 8, one.size)
        page.set_number(26, 1, one.lba_format)
        page.set_number(30, 1, one.sharing)
        page.set_number(33, 1, 1)  # deallocated blocks read as zeroes
        page.set_number(104, 16, one.guid << 64 | 0x5EED)
        page.set_number(128 + 2, 1, BLOCK.bit_length() - 1)
    return bytes(page.bytes)


def _build_descriptors(drive: TargetDrive, number: int) -> bytes:
    one = drive.find_namespace(number, is_active=True)
    guid = (one.guid << 64 | 0x5EED).to_bytes(16, "little")
    return (bytes([2, 16, 0, 0]) + guid).ljust(PAGE, b"\0")
