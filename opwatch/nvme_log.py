"""NVMe log pages and Identify data, decoded. Pure: bytes in, numbers out, whoever read them.

A page that is too short, or is not the layout it should be, is an OpwatchError: never a row of zeroes.
"""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.errors import OpwatchError

SMART, ENDURANCE_GROUP, FDP_STATISTICS, OCP_SMART = 0x02, 0x09, 0x22, 0xC0
LENGTH = {SMART: 512, ENDURANCE_GROUP: 512, FDP_STATISTICS: 64, OCP_SMART: 512}
SMART_UNIT_BYTES = 512_000
ENDURANCE_UNIT_BYTES = 10**9
# GUID AFD514C9-7C6F-4F9C-A4F2-BFEA2810AFC5 as it comes over the wire.
OCP_GUID = bytes.fromhex("c5af1028eabff2a49c4f6f7cc914d5af")


def _page(raw: bytes, lid: int) -> bytes:
    if len(raw) < LENGTH[lid]:
        raise OpwatchError(f"log page {lid:02X}h has {len(raw)} bytes, not {LENGTH[lid]}")
    return raw


def _number(raw: bytes, offset: int, width: int) -> int:
    return int.from_bytes(raw[offset : offset + width], "little")


@dataclass(frozen=True, slots=True)
class Smart:
    """Log page 02h. Data units are thousands of 512 bytes, rounded up."""

    critical_warning: int
    available_spare_percent: int
    percentage_used: int
    data_units_read: int
    data_units_written: int
    host_reads: int
    host_writes: int
    power_cycles: int
    unsafe_shutdowns: int
    media_errors: int


def decode_smart(raw: bytes) -> Smart:
    page = _page(raw, SMART)
    return Smart(
        critical_warning=page[0],
        available_spare_percent=page[3],
        percentage_used=page[5],
        data_units_read=_number(page, 32, 16),
        data_units_written=_number(page, 48, 16),
        host_reads=_number(page, 64, 16),
        host_writes=_number(page, 80, 16),
        power_cycles=_number(page, 112, 16),
        unsafe_shutdowns=_number(page, 144, 16),
        media_errors=_number(page, 160, 16),
    )


@dataclass(frozen=True, slots=True)
class EnduranceGroup:
    """Log page 09h. Units are 10^9 bytes, rounded up; media units of 0 are not reported."""

    data_units_read: int
    data_units_written: int
    media_units_written: int


def decode_endurance_group(raw: bytes) -> EnduranceGroup:
    page = _page(raw, ENDURANCE_GROUP)
    return EnduranceGroup(_number(page, 48, 16), _number(page, 64, 16), _number(page, 80, 16))


@dataclass(frozen=True, slots=True)
class FdpStatistics:
    """Log page 22h, in bytes."""

    host_bytes_written: int
    media_bytes_written: int
    media_bytes_erased: int


def decode_fdp_statistics(raw: bytes) -> FdpStatistics:
    page = _page(raw, FDP_STATISTICS)
    return FdpStatistics(_number(page, 0, 16), _number(page, 16, 16), _number(page, 32, 16))


@dataclass(frozen=True, slots=True)
class OcpSmart:
    """Log page C0h of the OCP Datacenter NVMe SSD specification."""

    media_bytes_written: int
    media_bytes_read: int
    erase_count_max: int
    erase_count_min: int
    incomplete_shutdowns: int
    unaligned_writes: int
    used_lbas: int
    version: int


def decode_ocp_smart(raw: bytes) -> OcpSmart:
    """Checks the GUID first: other layouts live under the same number."""
    page = _page(raw, OCP_SMART)
    if page[496:512] != OCP_GUID:
        raise OpwatchError("log page C0h is not the OCP one: its GUID is another")
    return OcpSmart(
        media_bytes_written=_number(page, 0, 16),
        media_bytes_read=_number(page, 16, 16),
        erase_count_max=_number(page, 88, 4),
        erase_count_min=_number(page, 92, 4),
        incomplete_shutdowns=_number(page, 112, 4),
        unaligned_writes=_number(page, 136, 8),
        used_lbas=_number(page, 152, 8),
        version=_number(page, 494, 2),
    )


@dataclass(frozen=True, slots=True)
class Namespace:
    """Identify Namespace: sizes in LBAs, and the LBA in bytes."""

    size_lbas: int
    capacity_lbas: int
    used_lbas: int
    lba_bytes: int


def decode_namespace(raw: bytes) -> Namespace:
    if len(raw) < 4096:
        raise OpwatchError(f"Identify Namespace has {len(raw)} bytes, not 4096")
    lba_format = 128 + 4 * (raw[26] & 15)
    return Namespace(_number(raw, 0, 8), _number(raw, 8, 8), _number(raw, 16, 8), 1 << raw[lba_format + 2])
