"""Decode vendor log pages in layouts shared by several vendors. The catalogue defines the items' meaning."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from opwatch.counters.decode.pages import BadPage, read_field, require_page


@dataclass(frozen=True, slots=True)
class Item:
    """Raw number and its step, with the normalized health value if the layout has one."""

    raw: int
    normalized: int | None = None
    step: int = 1


Items = Mapping[str, Item]


def decode_kv12(raw: bytes) -> dict[str, Item]:
    """Decode 12-byte items by key: key, 2 reserved, health, 1 reserved, 48 bits raw, 1 reserved."""
    page = require_page(raw, min(max(len(raw), 156), 512), "the vendor page")
    items: dict[str, Item] = {}
    for offset in range(0, len(page) - 11, 12):
        key, value = page[offset], read_field(page, offset + 5, 6)
        if not key or value is None:
            continue
        if f"{key:02X}" in items:
            raise BadPage(f"the vendor page has the key {key:02X}h twice: its layout is different")
        items[f"{key:02X}"] = Item(value, page[offset + 3])
    return items


def make_wear_item(least: int, most: int, average: int) -> Item:
    """Build item ADh of Intel's page from its three 16-bit erase counts."""
    return Item(least | most << 16 | average << 32)


def decode_wear_counts(item: Item) -> tuple[int, int, int] | None:
    """Return the smallest, largest and average erase count of item ADh, or None if implausible."""
    least, most, average = (item.raw >> shift & 0xFFFF for shift in (0, 16, 32))
    return (least, most, average) if least <= average <= most and most and item.raw < 1 << 48 else None


def decode_kv10(raw: bytes) -> dict[str, Item]:
    """Decode 10-byte items by key: key, health, 48 bits raw, 2 reserved.

    The last byte of the page is the layout version, which must be 3.
    """
    page = require_page(raw, 512, "the vendor page")
    if page[511] != 3:
        raise BadPage(f"the vendor page has version {page[511]}, not 3: its layout is different")
    items: dict[str, Item] = {}
    for offset in range(0, 510 - 9, 10):
        key, value = page[offset], read_field(page, offset + 2, 6)
        if not key or value is None:
            continue
        if f"{key:02X}" in items:
            raise BadPage(f"the vendor page has the key {key:02X}h twice: its layout is different")
        items[f"{key:02X}"] = Item(value, page[offset + 1])
    return items


def decode_seagate(raw: bytes) -> dict[str, Item]:
    """Decode log page C4h: a version, then 42 items of 12 bytes by number."""
    page = require_page(raw, 506, "log page C4h")
    version = int.from_bytes(page[:2], "little")
    items: dict[str, Item] = {}
    for offset in range(2, 2 + 42 * 12, 12):
        field = slice(offset + 4, offset + 12) if version >= 2 else slice(offset + 5, offset + 9)
        if page[offset]:
            items.setdefault(str(page[offset]), Item(int.from_bytes(page[field], "little")))
    return items


def decode_fixed(raw: bytes) -> dict[str, Item]:
    """Check a page without a layout. Its fields are picked by `offset:width`, see `find_item`."""
    return {"": Item(len(require_page(raw, min(max(len(raw), 128), 512), "the vendor page")))}


LAYOUTS: dict[str, Callable[[bytes], dict[str, Item]]] = {
    "kv12": decode_kv12,
    "kv10": decode_kv10,
    "seagate": decode_seagate,
    "fixed": decode_fixed,
}
_FIELD = re.compile(r"(\d{1,4}):(\d{1,2})")


def find_item(items: Items, raw: bytes | None, term: str) -> Item | None:
    """Return the item for a key, or for `offset:width` of the raw page. None if it is absent."""
    if term in items:
        return items[term]
    field = _FIELD.fullmatch(term)
    if not field or raw is None:
        return None
    value = read_field(raw, int(field[1]), int(field[2]))
    return None if value is None else Item(value)
