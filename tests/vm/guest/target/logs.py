"""The target's log pages. NAND writes equal host writes, because the target writes in place."""

from __future__ import annotations

from tests.vm.guest.target.drive import TargetDrive
from tests.vm.guest.target.identify import Page
from tests.vm.guest.target.statuses import INVALID_FIELD, Status

_UNIT = 512_000
_GUID = bytes.fromhex("c5af1028eabff2a49c4f6f7cc914d5af")
# Supported commands and their effects: CSUPP, and NIC for changes of the namespace inventory.
_ADMIN = {0x02: 1, 0x06: 1, 0x09: 1, 0x0A: 1, 0x0C: 1, 0x0D: 1 | 1 << 3, 0x15: 1 | 1 << 3, 0x18: 1, 0x84: 3}
_IO = {0x00: 1, 0x01: 3, 0x02: 1, 0x08: 3, 0x09: 3}


def build_log_page(drive: TargetDrive, number: int) -> bytes:
    """Return the whole page of a log identifier."""
    if number == 0x02:
        return _build_smart_page(drive)
    if number == 0x04:
        changed, drive.changed = sorted(drive.changed), set()
        return b"".join(one.to_bytes(4, "little") for one in changed).ljust(4096, b"\0")
    if number == 0x05:
        page = Page()
        for begin, known in ((0, _ADMIN), (1024, _IO)):
            for opcode, effects in known.items():
                page.set_number(begin + 4 * opcode, 4, effects)
        return bytes(page.bytes)
    if number == 0x81:
        return drive.sanitizing.encode_page()
    if number == 0xC0:
        page = Page(512)
        page.set_number(0, 16, drive.written)
        page.set_number(16, 16, drive.read)
        page.set_number(494, 2, 3)
        page.bytes[496:512] = _GUID
        return bytes(page.bytes)
    raise Status(INVALID_FIELD)


def _build_smart_page(drive: TargetDrive) -> bytes:
    page = Page(512)
    page.set_number(1, 2, 273 + 30)
    page.set_number(3, 1, 100)
    page.set_number(4, 1, 10)
    page.set_number(32, 16, -(-drive.read // _UNIT))
    page.set_number(48, 16, -(-drive.written // _UNIT))
    return bytes(page.bytes)
