"""Disks in memory: zram, brd and pmem. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from opwatch.trim.layers.disk import Disk
from opwatch.trim.stack.causes import Reason
from opwatch.trim.stack.layers import Layer, Stack

PREFIXES = ("zram", "ram", "brd", "pmem")


class MemoryDisk(Disk):
    """A disk in memory, which frees what it is told to free."""

    def find_hints(self, stack: Stack, layer: Layer) -> Iterator[Reason]:
        return iter(())
