"""Translate addresses of a file system to the lowest devices that allow raw reads."""

from __future__ import annotations

import fcntl
from collections.abc import Iterable, Mapping

from opwatch.collectors.space.btrfs import read_geometry
from opwatch.collectors.space.free_in_btrfs import find_device_number, read_chunks
from opwatch.collectors.space.free_space import read_free_space, sync_filesystem
from opwatch.collectors.space.mount_handle import open_mount
from opwatch.errors import OpwatchError, Unsupported
from opwatch.host.device import Devices
from opwatch.host.usage import Mount
from opwatch.trim.layers.remap import Landing, map_down, merge_landings
from opwatch.trim.space import btrfs, fiemap
from opwatch.trim.space.extents import Extents
from opwatch.trim.space.fiemap import FileExtent
from opwatch.trim.stack.layers import Stack

Number = tuple[int, int]
_FIEMAP = 0xC020660B
_EXTENTS = 512


def find_landings(devices: Devices, stack: Stack, extents: Mapping[Number, Extents]) -> list[Landing]:
    """Return the lowest locations of extents on the file system's devices, by device number."""
    lowest: list[Landing] = []
    for number, part in extents.items():
        device = devices.by_number(*number)
        if device is None:
            raise OpwatchError(f"the filesystem's device {number[0]}:{number[1]} is gone")
        lowest += map_down(stack, device.name, part)
    return merge_landings(lowest)


def find_free_landings(
    devices: Devices, stack: Stack, mount: Mount | None, *, settled: bool
) -> tuple[list[Landing], tuple[str, ...]]:
    """Return (locations of free space, notes). A device without a mount counts as entirely free.

    `settled`: sync the file system first.
    """
    if not mount:
        top = stack.layers[0]
        major, minor = (int(field) for field in top.dev.split(":"))
        whole = Extents.from_pairs([(0, top.size_bytes)])
        return find_landings(devices, stack, {(major, minor): whole}), ()
    if settled:
        with open_mount(mount) as descriptor:
            sync_filesystem(descriptor)
    space = read_free_space(mount)
    return find_landings(devices, stack, space.extents), space.notes


def read_file_extents(descriptor: int) -> list[FileExtent]:
    """Return the file's extents in addresses of its file system."""
    extents: list[FileExtent] = []
    try:
        while True:
            end = extents[-1].logical + extents[-1].length if extents else 0
            buffer = fiemap.encode_request(_EXTENTS, end)
            fcntl.ioctl(descriptor, _FIEMAP, buffer)
            more = fiemap.decode_extents(buffer)
            extents += more
            if len(more) < _EXTENTS:
                return extents
    except OSError as error:
        raise Unsupported(
            f"the filesystem does not report the location of its files: {error.strerror}"
        ) from error
    except ValueError as error:
        raise OpwatchError(f"unexpected result from the kernel: {error}") from error


class AddressMap:
    """Maps addresses of a file system to bytes of its devices. Trivial for one device; btrfs has chunks."""

    def __init__(self, filesystem: str, descriptor: int, main: Number) -> None:
        self._main = main
        self._chunks: list[btrfs.Chunk] = []
        self._numbers: dict[int, Number] = {}
        if filesystem == "btrfs":
            self._chunks = read_chunks(descriptor)
            for member in read_geometry(descriptor).members:
                number = find_device_number(member.path)
                if number:
                    self._numbers[member.number] = number

    def find_copies(self, start: int, end: int) -> dict[Number, Extents]:
        """Return all copies of an address range, by device number."""
        if not self._chunks:
            return {self._main: Extents.from_pairs([(start, end)])}
        ranges: dict[Number, list[tuple[int, int]]] = {}
        for number, low, high in self._map_copies(start, end):
            ranges.setdefault(number, []).append((low, high))
        return {number: Extents.from_pairs(pairs) for number, pairs in ranges.items()}

    def find_trim_start(self, start: int) -> int:
        """Return the start address of a trim that reaches an address.

        btrfs skips a block group unless the range starts at or before its start.
        """
        return next((part.start for part in self._chunks if part.start <= start < part.end), start)

    def _map_copies(self, start: int, end: int) -> Iterable[tuple[Number, int, int]]:
        for part in self._chunks:
            low, high = max(start, part.start), min(end, part.end)
            if low < high:
                for member, first, last in btrfs.map_to_devices(part, low, high):
                    if member in self._numbers:
                        yield self._numbers[member], first, last
