"""The table of kinds of layers."""

from __future__ import annotations

from opwatch.trim.layers import bcache, memory, nvme
from opwatch.trim.layers.arrays import DmRaidFacts
from opwatch.trim.layers.base import LayerKind
from opwatch.trim.layers.bcache import Bcache
from opwatch.trim.layers.cache import Cache
from opwatch.trim.layers.crypt import Crypt
from opwatch.trim.layers.disk import Disk
from opwatch.trim.layers.dm import Dm, Integrity, Linear, Vdo, Verity
from opwatch.trim.layers.dm_raid import DmRaid
from opwatch.trim.layers.loop import Loop
from opwatch.trim.layers.md import Md
from opwatch.trim.layers.memory import MemoryDisk
from opwatch.trim.layers.multipath import Multipath
from opwatch.trim.layers.nvme import MultipathHead, Nvme
from opwatch.trim.layers.partition import Partition
from opwatch.trim.layers.snapshot import DmSnapshot
from opwatch.trim.layers.thin import Thin, ThinPool
from opwatch.trim.stack.facts import LayerFacts
from opwatch.trim.stack.layers import Kind, Layer

BY_KIND: dict[Kind, LayerKind] = {
    Kind.PARTITION: Partition(),
    Kind.CRYPT: Crypt(),
    Kind.THIN: Thin(),
    Kind.THIN_POOL: ThinPool(),
    Kind.DM: Dm(),
    Kind.MD: Md(),
    Kind.LOOP: Loop(),
    Kind.MULTIPATH: MultipathHead(),
    Kind.DISK: Disk(),
}
# Disks of a driver, by device name prefix.
_BY_PREFIX: dict[str, LayerKind] = {
    nvme.PREFIX: Nvme(),
    bcache.PREFIX: Bcache(),
    **dict.fromkeys(memory.PREFIXES, MemoryDisk()),
}
# Device-mapper devices by target.
_BY_TARGET: dict[str, LayerKind] = {
    target: kind
    for kind in (Cache(), DmRaid(), Integrity(), Linear(), Multipath(), DmSnapshot(), Vdo(), Verity())
    for target in kind.targets
}


def find_kind(layer: Layer) -> LayerKind:
    """Return the kind of a layer, which answers every question about it."""
    if layer.kind is Kind.DISK:
        for prefix, kind in _BY_PREFIX.items():
            if layer.device.startswith(prefix):
                return kind
    if layer.kind is Kind.DM:
        target = "raid" if isinstance(layer.facts, DmRaidFacts) else layer.target
        return _BY_TARGET.get(target or "", BY_KIND[Kind.DM])
    return BY_KIND[layer.kind]


def find_granule(layer: Layer) -> tuple[int, int] | None:
    """Return (bytes, offset) of a layer's discard units; None if unknown."""
    return find_kind(layer).find_granule(layer)


def find_granule_or_sector(layer: Layer | None) -> tuple[int, int]:
    """Return (bytes, offset) of a layer's discard units, or one sector if unknown."""
    return (find_granule(layer) if layer else None) or (512, 0)


def list_facts() -> tuple[type[LayerFacts], ...]:
    """Return the classes of facts of all kinds."""
    kinds = (*BY_KIND.values(), *_BY_PREFIX.values(), *_BY_TARGET.values())
    return (LayerFacts, *dict.fromkeys(kind.facts for kind in kinds))
