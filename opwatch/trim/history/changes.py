"""Records of a disk's changes (bpf/abi/history.h), and passthrough commands that change nothing. Pure."""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import NamedTuple

from opwatch.errors import BadInput
from opwatch.trace.programs import Program, ProgramSet

# Programs for completions on a disk, and for NVMe passthrough commands.
_PROGRAMS = (Program("history_done"),)
_NVME_PROGRAMS = (*_PROGRAMS, Program("history_nvme"))


def select_history_programs(disk: str) -> ProgramSet:
    """Return the BPF programs that record a disk's changes, by the disk's name."""
    return _NVME_PROGRAMS if disk.startswith("nvme") else _PROGRAMS


class ChangeKind(enum.IntEnum):
    """Kind of a change (enum ow_change_kind)."""

    WRITE = 0
    ZEROES = 1
    DISCARD = 2
    ERASE = 3
    SCSI = 4
    NVME = 5
    ADMIN = 6
    OTHER = 7


class DiskChange(NamedTuple):
    """A completed change (struct ow_change) with start and end times. For a SCSI passthrough command `sector`
    and `begin_ns` hold the CDB's 16 bytes; for an NVMe command `sector` holds the opcode. `owner` has the low
    bits of the control group's id, or 0 if it is unknown."""

    sector: int
    begin_ns: int
    end_ns: int
    sectors: int
    kind: int
    status: int
    owner: int = 0

    @property
    def end(self) -> int:
        return self.sector + self.sectors


class HistoryLoss(NamedTuple):
    """Records lost since the start because the ring was full (struct ow_history_loss)."""

    write_sectors: int = 0
    discard_sectors: int = 0
    commands: int = 0


RECORD = struct.Struct("=3QI2BH")
_KINDS = len(ChangeKind)
# Larger than any disk, in sectors of 512 bytes.
_MAX_SECTOR = 1 << 55


def decode_changes(raw: bytes) -> Iterator[tuple[int, int, int, int, int, int, int]]:
    """Yield the fields of each record, in DiskChange's order. Raise BadInput for records that the BPF
    programs never write."""
    if len(raw) % RECORD.size:
        raise BadInput(f"{len(raw)} bytes are not a multiple of a record's {RECORD.size}")
    for fields in RECORD.iter_unpack(raw):
        if fields[4] >= ChangeKind.SCSI:
            if fields[4] >= _KINDS:
                raise BadInput(f"unknown kind of change: {fields[4]}")
        elif fields[0] + fields[3] > _MAX_SECTOR or not fields[3]:
            raise BadInput(f"invalid change of {fields[3]} sectors at {fields[0]}")
        yield fields


# Commands that only read or do not concern data. SCSI: TEST UNIT READY, REQUEST SENSE, READ(6), INQUIRY, MODE
# SENSE, START STOP, RECEIVE DIAGNOSTIC RESULTS, PREVENT ALLOW, READ CAPACITY, READ(10), SYNCHRONIZE CACHE,
# READ DEFECT DATA, READ BUFFER, LOG SENSE, MODE SENSE(10), PERSISTENT RESERVE IN, READ(16), SYNCHRONIZE
# CACHE(16), SERVICE ACTION IN (READ CAPACITY(16), GET LBA STATUS), REPORT LUNS, SECURITY PROTOCOL IN,
# MAINTENANCE IN, READ(12), READ DEFECT DATA(12).
_SCSI_READS = frozenset(
    bytes.fromhex("00 03 08 12 1a 1b 1c 1e 25 28 35 37 3c 4d 5a 5e 88 91 9e a0 a2 a3 a8 b7")
)
# ATA PASS-THROUGH: opcode of the CDB -> offset of the ATA command in the CDB.
_ATA_COMMAND_AT = {0x85: 14, 0xA1: 9}
# READ SECTORS, READ EXT, READ DMA EXT, READ LOG EXT, READ VERIFY, READ VERIFY EXT, READ LOG DMA EXT, IDENTIFY
# PACKET, SMART, READ DMA, STANDBY and IDLE (both forms), CHECK POWER MODE, FLUSH CACHE, FLUSH CACHE EXT,
# IDENTIFY, SET FEATURES.
_ATA_READS = frozenset(bytes.fromhex("20 24 25 2f 40 42 47 a1 b0 c8 e0 e1 e2 e3 e5 e7 ea ec ef"))
# Flush, Read, Compare, Verify, and the reservation commands.
_NVME_READS = frozenset(bytes.fromhex("00 02 05 0c 0d 0e 11 15"))
# Commands to create and delete queues, Get Log Page, Identify, Abort, Set and Get Features, Asynchronous
# Event, Device Self-test, Keep Alive, Doorbell Buffer Config, Fabrics, Security Receive.
_ADMIN_READS = frozenset(bytes.fromhex("00 01 02 04 05 06 08 09 0a 0c 14 18 7c 7f 82"))


def is_harmless_command(kind: int, sector: int, begin_ns: int) -> bool:
    """Return True if a passthrough command leaves the disk's contents unchanged. An unknown command counts as
    a change."""
    if kind == ChangeKind.NVME:
        return sector in _NVME_READS
    if kind == ChangeKind.ADMIN:
        return sector in _ADMIN_READS
    if kind != ChangeKind.SCSI:
        return False
    cdb = struct.pack("=2Q", sector, begin_ns)
    at = _ATA_COMMAND_AT.get(cdb[0])
    return cdb[at] in _ATA_READS if at else cdb[0] in _SCSI_READS
