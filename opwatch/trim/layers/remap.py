"""Map bytes of a device to the devices below, as far as the mapping is exact. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from opwatch.trim.layers.discard_path import find_receivers
from opwatch.trim.layers.kinds import find_kind
from opwatch.trim.space.extents import Extents
from opwatch.trim.stack.layers import Stack


@dataclass(frozen=True, slots=True)
class Landing:
    """A range of a device, to be read there. `encrypted`: a layer above encrypts the data. `stopped`: why the
    range was not traced further down; None at a disk."""

    device: str
    extents: Extents
    encrypted: bool = False
    stopped: str | None = None


def keep_unmoved(before: Iterable[Landing], later: Iterable[Landing]) -> list[Landing]:
    """Return the parts of `before` that are still at the same place in `later`."""
    kept = {(landing.device, landing.encrypted, landing.stopped): landing.extents for landing in later}
    return [
        replace(
            landing,
            extents=landing.extents
            & kept.get((landing.device, landing.encrypted, landing.stopped), Extents()),
        )
        for landing in before
    ]


def map_down(
    stack: Stack, device: str, extents: Extents, *, encrypted: bool = False, copies: bool = False
) -> Iterator[Landing]:
    """Yield the landings of a device's `extents`. With `copies`, include every copy in an array, and the copy
    on a cache's origin."""
    layer = stack.find_layer(device)
    if not extents:
        return
    if layer is None:
        yield Landing(device, extents, encrypted, f"{device} is not a layer below the filesystem")
        return
    for name, part, is_encrypted, stopped in find_kind(layer).map_range(stack, layer, extents, copies=copies):
        crypt = encrypted or is_encrypted
        if name is None:
            yield Landing(device, part, crypt, stopped)
        else:
            yield from map_down(stack, name, part, encrypted=crypt, copies=copies)


def split_contiguous(
    stack: Stack, device: str, start: int, end: int, block: int, *, copies: bool = False
) -> Iterator[tuple[int, Landing]]:
    """Split a range into pieces of blocks, as long as possible, each contiguous on the lower device. Yield
    (start, landing). Blocks split by a layer are left out, and so is an incomplete block at the end."""
    end -= (end - start) % block
    landings = list(map_down(stack, device, Extents.from_pairs([(start, end)]), copies=copies))
    # A contiguous piece keeps its order, because each target of a table gives a separate landing.
    whole = [
        landing for landing in landings if [last - first for first, last in landing.extents] == [end - start]
    ]
    if len(whole) == len(landings) or end - start == block:
        yield from ((start, landing) for landing in whole)
        return
    middle = start + max((end - start) // 2 // block, 1) * block
    yield from split_contiguous(stack, device, start, middle, block, copies=copies)
    yield from split_contiguous(stack, device, middle, end, block, copies=copies)


def can_read_cache(stack: Stack, device: str) -> bool:
    """Return True if reads of a device may come from a cache below, which keeps discarded data. A thin volume
    returns zeros for freed blocks without reading any lower device."""
    layer = stack.find_layer(device)
    below = find_receivers(stack, layer) if layer and not find_kind(layer).answers_freed_reads else []
    return any(find_kind(lower).is_cache(lower) or can_read_cache(stack, lower.device) for lower in below)


def merge_landings(landings: list[Landing]) -> list[Landing]:
    """Merge landings with the same device, encryption and stop reason."""
    extents_by_key: dict[tuple[str, bool, str | None], Extents] = {}
    for landing in landings:
        key = (landing.device, landing.encrypted, landing.stopped)
        extents_by_key[key] = (
            extents_by_key[key] | landing.extents if key in extents_by_key else landing.extents
        )
    return [Landing(key[0], extents, key[1], key[2]) for key, extents in extents_by_key.items()]
