"""Decode NVMe Identify structures of controllers and namespaces."""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.counters.decode.pages import BadPage, read_field, require_page

LENGTH = 4096
# Selects the OCP specification's pages where several vendors' pages share a number.
OCP_UUID = bytes.fromhex("c194d55be0944794a21d29998f56be6f")
NAMESPACE, CONTROLLER, UUID_LIST = 0x00, 0x01, 0x17
# Lists of namespaces and controllers, and the limits for creating namespaces.
ATTACHED_LIST, ALLOCATED_LIST, ALLOCATED_NAMESPACE = 0x02, 0x10, 0x11
CONTROLLER_LIST, GRANULARITY_LIST = 0x13, 0x16
_PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Controller:
    """Fields of Identify Controller that opwatch uses."""

    vendor_id: int | None = None
    model: str | None = None
    serial: str | None = None
    firmware: str | None = None
    max_transfer_bytes: int | None = None
    capacity_bytes: int | None = None
    has_endurance_groups: bool = False
    has_placement: bool = False
    has_uuid_list: bool = False
    has_dataset_management: bool = False
    # Erase commands that cover the whole drive (OACS, FNA, SANICAP), and the maximum number of namespaces.
    can_format: bool = False
    formats_all: bool = False
    can_sanitize: bool = False
    erases_blocks: bool = False
    erases_keys: bool = False
    manages_namespaces: bool = False
    most_namespaces: int = 0
    # Several controllers in the subsystem are possible, or the controller is a virtual function (CMIC).
    has_peers: bool = False
    # Controller id in the subsystem, and whether namespace sizes have a granularity (CTRATT).
    number: int = 0
    has_granularity: bool = False
    has_effects_log: bool = False


@dataclass(frozen=True, slots=True)
class Namespace:
    """Identify Namespace: sizes in logical blocks, and the block size in bytes."""

    size_lbas: int | None = None
    capacity_lbas: int | None = None
    used_lbas: int | None = None
    lba_bytes: int | None = None
    endurance_group: int | None = None
    nvm_set: int = 0
    # Preferred deallocate granularity, or None if not reported.
    deallocate_lbas: int | None = None
    # Content of deallocated blocks, "zeros" or "ones", or None if not reported.
    deallocated_read: str | None = None
    # The namespace can be attached to several controllers (NMIC).
    is_shared: bool = False
    # Current block format, and the metadata of each block.
    lba_format: int = 0
    metadata_bytes: int = 0
    protection: int = 0


def decode_text(raw: bytes) -> str | None:
    """Return an ASCII field without padding, or None if empty."""
    shown = "".join(chr(byte) if 32 <= byte < 127 else " " for byte in raw)
    return " ".join(shown.split()) or None


def decode_controller(raw: bytes) -> Controller:
    """Decode Identify Controller, or raise BadPage if too short or empty."""
    page = require_page(raw, LENGTH, "Identify Controller")
    attributes = int.from_bytes(page[96:100], "little")
    exponent = page[77]
    return Controller(
        vendor_id=read_field(page, 0, 2),
        serial=decode_text(page[4:24]),
        model=decode_text(page[24:64]),
        firmware=decode_text(page[64:72]),
        max_transfer_bytes=_PAGE_BYTES << exponent if 0 < exponent <= 20 else None,
        capacity_bytes=read_field(page, 280, 16) or None,
        has_endurance_groups=bool(attributes & 1 << 4),
        has_uuid_list=bool(attributes & 1 << 9),
        has_placement=bool(attributes & 1 << 19),
        has_dataset_management=bool(page[520] & 1 << 2),
        can_format=bool(page[256] & 1 << 1),
        manages_namespaces=bool(page[256] & 1 << 3),
        formats_all=bool(page[524] & 3),
        can_sanitize=bool(page[328] & 7),
        erases_blocks=bool(page[328] & 1 << 1),
        erases_keys=bool(page[328] & 1),
        has_peers=bool(page[76] & 0b110),
        most_namespaces=int.from_bytes(page[516:520], "little"),
        number=int.from_bytes(page[78:80], "little"),
        has_granularity=bool(attributes & 1 << 7),
        has_effects_log=bool(page[261] & 1 << 1),
    )


def decode_namespace(raw: bytes) -> Namespace:
    """Decode Identify Namespace, or raise BadPage if too short or empty."""
    page = require_page(raw, LENGTH, "Identify Namespace")
    index = (page[26] & 0x0F) | (page[26] & 0x60) >> 1
    exponent = page[128 + 4 * index + 2]
    return Namespace(
        size_lbas=read_field(page, 0, 8),
        capacity_lbas=read_field(page, 8, 8),
        used_lbas=read_field(page, 16, 8),
        lba_bytes=1 << exponent if 9 <= exponent <= 16 else None,
        endurance_group=read_field(page, 102, 2) or None,
        nvm_set=read_field(page, 100, 2) or 0,
        # NPDG is zero-based. Bit 4 of NSFEAT declares it valid.
        deallocate_lbas=int.from_bytes(page[68:70], "little") + 1 if page[24] & 1 << 4 else None,
        deallocated_read={1: "zeros", 2: "ones"}.get(page[33] & 7),
        is_shared=bool(page[30] & 1),
        lba_format=index,
        metadata_bytes=int.from_bytes(page[128 + 4 * index :][:2], "little"),
        protection=page[29] & 7,
    )


def decode_namespace_list(raw: bytes) -> tuple[int, ...]:
    """Return the namespace ids of a list (CNS 02h, 10h), which ends at the first zero."""
    return _decode_until_zero(_require_list_page(raw, "a namespace list"), 4)


def decode_controller_list(raw: bytes) -> tuple[int, ...]:
    """Return the controller ids of a list (CNS 13h), which starts with their number."""
    page = _require_list_page(raw, "a controller list")
    count = int.from_bytes(page[:2], "little")
    if count > LENGTH // 2 - 1:
        raise BadPage(f"a controller list is damaged: it claims {count} entries")
    return tuple(int.from_bytes(page[2 * at : 2 * at + 2], "little") for at in range(1, count + 1))


def decode_granularity(raw: bytes, lba_format: int) -> tuple[int, int]:
    """Return the granularity in bytes of (size, capacity) for new namespaces of this format (CNS 16h).

    1 where the drive reports no granularity.
    """
    page = _require_list_page(raw, "the namespace granularity list")
    # Without bit 0, one descriptor applies to all formats.
    place = lba_format if page[0] & 1 else 0
    if place > min(page[4], 31):
        return 1, 1
    size, capacity = (int.from_bytes(page[32 + 16 * place + at :][:8], "little") for at in (0, 8))
    return size or 1, capacity or 1


def _require_list_page(raw: bytes, what: str) -> bytes:
    # Unlike other pages, a list may be empty.
    if len(raw) < LENGTH:
        raise BadPage(f"{what} has {len(raw)} bytes, not {LENGTH}")
    return raw[:LENGTH]


def _decode_until_zero(page: bytes, width: int) -> tuple[int, ...]:
    numbers = [int.from_bytes(page[at : at + width], "little") for at in range(0, len(page), width)]
    return tuple(numbers[: numbers.index(0)] if 0 in numbers else numbers)


def find_uuid_index(raw: bytes, wanted: bytes) -> int:
    """Return the index of a UUID in the UUID list (CNS 17h), or 0 if it is not listed."""
    page = require_page(raw, LENGTH, "the UUID list")
    for index in range(1, 128):
        uuid = page[32 * index + 16 : 32 * index + 32]
        if uuid == wanted:
            return index
        if not any(uuid):
            break
    return 0
