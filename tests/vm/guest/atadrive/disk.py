"""A SCSI disk in front of an ATA drive: reads and writes go to a file, other commands to the drive."""

from __future__ import annotations

import ctypes
import os

from tests.vm.guest.atadrive import pages
from tests.vm.guest.atadrive.ata import AtaDrive, TaskFile
from tests.vm.guest.atadrive.ring import Answer
from tests.vm.guest.atadrive.sense import (
    make_ata_answer,
    make_no_access,
    make_out_of_range,
    make_unknown_command,
    make_unknown_field,
)

_SECTOR = pages.SECTOR
_KEEP_SIZE_PUNCH = 0x3
_CHECK = 1 << 5
_MEDIA_COMMANDS = (0x28, 0x88, 0x2A, 0x8A, 0x42)
_LIBC = ctypes.CDLL(None, use_errno=True)


def _decode_number(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


class ScsiDisk:
    """Answers commands. `descriptor` is the file that holds the contents."""

    def __init__(self, drive: AtaDrive, descriptor: int) -> None:
        self._drive, self._descriptor = drive, descriptor
        self._first = drive.current
        drive.let_go = lambda share: self._punch_hole(0, int(share * drive.wishes.sectors) * _SECTOR)
        drive.mapped = lambda: os.fstat(descriptor).st_blocks * 512 if descriptor >= 0 else 0
        self._commands = {
            **dict.fromkeys((0x00, 0x1B, 0x35, 0x91, 0x2F, 0x8F), lambda _, __: Answer()),
            0x12: self._answer_inquiry,
            0x1A: lambda _, __: Answer(data=bytes([3, 0, 0, 0])),
            0x5A: lambda _, __: Answer(data=bytes([0, 6, 0, 0, 0, 0, 0, 0])),
            0x25: lambda _, __: Answer(data=pages.build_capacity_10(self._sector_count)),
            0x9E: self._answer_service_action,
            **dict.fromkeys((0x28, 0x88), self._read_blocks),
            **dict.fromkeys((0x2A, 0x8A), self._write_blocks),
            0x42: self._unmap_blocks,
            0x85: self._pass_through_16,
            0xA1: self._pass_through_12,
        }

    @property
    def _sector_count(self) -> int:
        return self._first if self._drive.wishes.size_of_start else self._drive.current

    def answer_command(self, cdb: bytes, data: bytes) -> Answer:
        do = self._commands.get(cdb[0])
        # Reads, writes and discards count as commands of the drive too.
        if cdb[0] in _MEDIA_COMMANDS:
            self._drive.lock.cancel_prepared_erase()
            if self._drive.lock.is_locked:
                return make_no_access()
        return do(cdb, data) if do else make_unknown_command()

    def _answer_inquiry(self, cdb: bytes, _: bytes) -> Answer:
        if not cdb[1] & 1:
            return Answer(data=pages.build_inquiry_data()[: _decode_number(cdb[3:5])])
        page = pages.build_vpd_page(cdb[2], self._drive)
        return make_unknown_field() if page is None else Answer(data=page[: _decode_number(cdb[3:5])])

    def _answer_service_action(self, cdb: bytes, _: bytes) -> Answer:
        if cdb[1] & 0x1F != 0x10:
            return make_unknown_field()
        return Answer(data=pages.build_capacity_16(self._sector_count)[: _decode_number(cdb[10:14])])

    def _parse_range(self, cdb: bytes) -> tuple[int, int] | None:
        """Return (first sector, count), or None if the range ends past the highest address."""
        is_long = cdb[0] >= 0x80
        first, count = (
            (_decode_number(cdb[2:10]), _decode_number(cdb[10:14]))
            if is_long
            else (
                _decode_number(cdb[2:6]),
                _decode_number(cdb[7:9]),
            )
        )
        return (first, count) if first + count <= self._drive.current else None

    def _read_blocks(self, cdb: bytes, _: bytes) -> Answer:
        place = self._parse_range(cdb)
        if place is None:
            return make_out_of_range()
        first, count = place
        raw = os.pread(self._descriptor, count * _SECTOR, first * _SECTOR)
        return Answer(data=raw.ljust(count * _SECTOR, b"\0"))

    def _write_blocks(self, cdb: bytes, data: bytes) -> Answer:
        place = self._parse_range(cdb)
        if place is None:
            return make_out_of_range()
        first, count = place
        os.pwrite(self._descriptor, data[: count * _SECTOR], first * _SECTOR)
        self._drive.track_write(first + count)
        return Answer()

    def _unmap_blocks(self, _: bytes, data: bytes) -> Answer:
        for at in range(8, 8 + _decode_number(data[2:4]), 16):
            first, count = _decode_number(data[at : at + 8]), _decode_number(data[at + 8 : at + 12])
            if first + count > self._drive.current:
                return make_out_of_range()
            self._punch_hole(first * _SECTOR, count * _SECTOR)
        return Answer()

    def _punch_hole(self, begin: int, length: int) -> None:
        done = _LIBC.fallocate(
            self._descriptor, _KEEP_SIZE_PUNCH, ctypes.c_int64(begin), ctypes.c_int64(length)
        )
        if length and done:
            raise OSError(ctypes.get_errno(), "no hole can be made in the file")

    def _pass_through_16(self, cdb: bytes, data: bytes) -> Answer:
        upper = cdb[1] & 1
        parts = (cdb[8], cdb[10], cdb[12], cdb[7], cdb[9], cdb[11])
        lba = int.from_bytes(bytes(parts if upper else parts[:3]), "little")
        features = cdb[4] | (cdb[3] << 8 if upper else 0)
        task = TaskFile(features, cdb[6] | (cdb[5] << 8 if upper else 0), lba, cdb[14], data)
        return make_ata_answer(self._drive.run_task(task), is_asked=bool(cdb[2] & _CHECK))

    def _pass_through_12(self, cdb: bytes, data: bytes) -> Answer:
        task = TaskFile(cdb[3], cdb[4], int.from_bytes(cdb[5:8], "little"), cdb[9], data)
        return make_ata_answer(self._drive.run_task(task), is_asked=bool(cdb[2] & _CHECK))
