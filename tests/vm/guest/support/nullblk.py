"""null_blk devices through configfs: completion by timer, by softirq or inline, and several queues."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path

from tests.vm.guest.support.shell import ensure_mounted, write_attribute
from tests.vm.guest.support.sysfs import SYS_BLOCK, wait_for
from tests.vm.requirements import need_module

_CONFIGFS = Path("/sys/kernel/config")
_serial = itertools.count(1)


class Irq(IntEnum):
    """The context in which a request completes."""

    NONE = 0
    SOFTIRQ = 1
    TIMER = 2


@dataclass(frozen=True)
class NullBlk:
    """Attributes by their configfs names; size, zone_size and cache_size are in MiB. queue_mode 0 makes a
    driver that takes bios. With a cache, flushes have an effect."""

    size: int = 1024
    blocksize: int = 512
    queue_mode: int = 2
    submit_queues: int = 2
    poll_queues: int = 0
    hw_queue_depth: int = 64
    irqmode: Irq = Irq.SOFTIRQ
    completion_nsec: int = 10_000
    memory_backed: int = 0
    discard: int = 0
    zoned: int = 0
    zone_size: int = 4
    zone_max_active: int = 0
    cache_size: int = 0

    def __post_init__(self) -> None:
        """A null_blk without memory accepts these settings but ignores them."""
        if (self.discard or self.cache_size) and not self.memory_backed:
            raise ValueError("discard and cache_size of null_blk need memory_backed")


@contextlib.contextmanager
def create_null_blk(config: NullBlk) -> Iterator[str]:
    """Yield the name of a device with these attributes."""
    need_module("configfs")
    need_module("null_blk", "nr_devices=0")
    ensure_mounted("configfs", _CONFIGFS)
    folder = _CONFIGFS / "nullb" / f"opw{next(_serial)}"
    folder.mkdir()
    try:
        for name, value in asdict(config).items():
            # Kernels without polling (5.10) lack the attribute.
            if value or (folder / name).exists():
                write_attribute(folder / name, int(value))
        write_attribute(folder / "power", 1)
        name = _find_name(folder)
        yield name
        write_attribute(folder / "power", 0)
    finally:
        folder.rmdir()


def _find_name(folder: Path) -> str:
    """Return the disk's name: newer kernels use the folder's name, older kernels its index."""
    names = (folder.name, f"nullb{(folder / 'index').read_text().strip()}")
    wait_for(f"disk {names}", lambda: any((SYS_BLOCK / name).exists() for name in names))
    return next(name for name in names if (SYS_BLOCK / name).exists())
