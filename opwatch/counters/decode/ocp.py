"""Decode log page C0h of the OCP specifications. The GUID selects between two layouts."""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.counters.decode.pages import BadPage, read_field, require_page

LID, LENGTH = 0xC0, 512
# GUID AFD514C9-7C6F-4F9C-A4F2-BFEA2810AFC5 in wire order.
CLOUD_GUID = bytes.fromhex("c5af1028eabff2a49c4f6f7cc914d5af")
BOOT_GUID = bytes.fromhex("65438878acd878a166421e0f92d76dc4")
# By the specification, drives may refresh the page only every ten minutes.
REFRESH_S = 600


@dataclass(frozen=True, slots=True)
class CloudLog:
    """Layout of datacenter drives. Media units are bytes."""

    media_written: int | None = None
    media_read: int | None = None
    erase_max: int | None = None
    erase_min: int | None = None
    erase_average: int | None = None
    refresh_count: int | None = None
    incomplete_shutdowns: int | None = None
    percent_free_blocks: int | None = None
    unaligned_io: int | None = None
    used_lbas: int | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class BootLog:
    """Layout of boot drives. The unit of the written counts differs between drives."""

    tlc_written: int | None = None
    slc_written: int | None = None
    tlc_erase_average: int | None = None
    tlc_erase_max: int | None = None
    tlc_erase_min: int | None = None
    used_lbas: int | None = None
    version: int | None = None
    deallocate_commands: int | None = None


def decode_c0(raw: bytes) -> CloudLog | BootLog:
    """Decode log page C0h by GUID, or raise BadPage for other pages with the same number."""
    page = require_page(raw, LENGTH, "log page C0h")
    guid = page[496:512]
    if guid == CLOUD_GUID:
        return _decode_cloud(page)
    if guid == BOOT_GUID:
        return _decode_boot(page)
    raise BadPage("log page C0h has neither GUID of the OCP specifications: it is a different page")


def _decode_cloud(page: bytes) -> CloudLog:
    version = read_field(page, 494, 2)
    return CloudLog(
        media_written=read_field(page, 0, 16),
        media_read=read_field(page, 16, 16),
        refresh_count=read_field(page, 81, 7),
        erase_max=read_field(page, 88, 4),
        erase_min=read_field(page, 92, 4),
        incomplete_shutdowns=read_field(page, 112, 4),
        percent_free_blocks=page[120] if page[120] <= 100 else None,
        unaligned_io=read_field(page, 136, 8),
        used_lbas=read_field(page, 152, 8),
        erase_average=read_field(page, 224, 8) if version and version >= 5 else None,
        version=version,
    )


def _decode_boot(page: bytes) -> BootLog:
    return BootLog(
        tlc_written=read_field(page, 0, 16),
        slc_written=read_field(page, 16, 16),
        tlc_erase_min=read_field(page, 84, 8),
        tlc_erase_max=read_field(page, 92, 8),
        tlc_erase_average=read_field(page, 100, 8),
        used_lbas=read_field(page, 188, 8),
        version=read_field(page, 494, 2),
        deallocate_commands=read_field(page, 172, 16),
    )
