"""Plant files of known contents, delete and trim them, and read their blocks back from the drive.

Writes nothing but these files.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from opwatch.collectors.space.ext4 import read_groups
from opwatch.collectors.space.free_space import read_free_space, sync_filesystem
from opwatch.collectors.space.lowest import AddressMap, read_file_extents
from opwatch.collectors.space.mount_handle import open_mount
from opwatch.collectors.space.raw_disk import RawDisk
from opwatch.errors import OpwatchError, RefusedError, Unsupported
from opwatch.host.device import Devices
from opwatch.host.usage import Mount
from opwatch.tools.acting.stale.unnamed_file import create_unnamed_file, remove_leftovers
from opwatch.tools.acting.trim.fitrim import trim_mount
from opwatch.trim.audit.fitrim import Asked
from opwatch.trim.filesystems.kinds import find_filesystem
from opwatch.trim.layers.kinds import find_granule_or_sector
from opwatch.trim.layers.remap import can_read_cache, split_contiguous
from opwatch.trim.space.extents import Extents
from opwatch.trim.space.fiemap import FileExtent
from opwatch.trim.space.free import FreeSpace, Number
from opwatch.trim.stack.layers import Stack
from opwatch.trim.stale.sentinel import BLOCK, ReadsAs, SentinelResult, is_near_boundary
from opwatch.trim.stale.sentinel_contents import classify_block, compute_digest, make_pattern

_PUNCH_HOLE = 3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
_FREED_WITHIN_S = 10.0
_READ_AT_ONCE = 1 << 20


class Block(NamedTuple):
    """Block of a sentinel at `at` of the file system's device, read at `offset` of the lowest device."""

    file: int
    number: Number
    at: int
    device: str
    offset: int
    encrypted: bool
    before: bytes  # Digest of the lowest device's data before the trim


def choose_sizes(stack: Stack) -> tuple[int, ...]:
    """Return sizes that reveal the granule: a block, a granule, and two sizes with many granules."""
    granules = {find_granule_or_sector(layer)[0] for layer in stack.find_leaves()}
    fitting = {-(-size // BLOCK) * BLOCK for size in granules if size <= 64 << 20}
    return tuple(sorted({BLOCK, 1 << 20, 8 << 20} | fitting))


class Sentinels:
    """Sentinel files of one mounted file system.

    plant() writes and maps them, delete_files() deletes them, then the caller trims (or calls
    trim_ranges() for these only), and judge_sentinels() reads them back. Closing deletes the rest.
    """

    def __init__(
        self,
        mount: Mount,
        stack: Stack,
        sizes: Sequence[int],
        devices: Devices | None = None,
        *,
        copies: bool = False,
    ) -> None:
        """Prepare without writing. `copies`: read each RAID copy of a block instead of the one the array
        returns."""
        self._mount = mount
        self._copies = copies
        self._stack = stack
        self._sizes = sizes
        self._devices = devices or Devices()
        self._run = secrets.token_bytes(16)
        self._opened = contextlib.ExitStack()
        self._home = -1  # Folder of the files
        self._files: list[int] = []
        self._written: list[set[bytes]] = [set() for _ in sizes]  # Digests of their blocks
        self._disks: dict[str, RawDisk] = {}
        # Cached, because a file has thousands of blocks on one device.
        self._names: dict[Number, str | None] = {}
        self._blocks: list[Block] = []
        self._reasons: dict[int, str] = {}
        self.ranges = Extents()  # To trim, in file system addresses
        self.checks_reallocation = True
        self._cuts: tuple[int, int] | None = None  # Boundaries that no discard crosses
        self._inner = Extents()  # All blocks except the edges of each piece
        self._window: tuple[int, int] | None = None  # Range of the blocks on the file system's device

    def __enter__(self) -> Sentinels:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_files()
        for disk in self._disks.values():
            disk.close()
        self._opened.close()

    def plant(self) -> None:
        """Write the files, find their blocks, and check by raw reads that the data are on the drive."""
        self._home = self._opened.enter_context(open_mount(self._mount))
        remove_leftovers(self._home)
        self._require_room()
        if find_filesystem(self._mount.filesystem).has_block_groups:
            self._cuts = read_groups(self._mount, os.fstatvfs(self._home).f_frsize)
        for number, size in enumerate(self._sizes):
            self._files.append(self._write_sentinel(number, size))
        sync_filesystem(self._home)
        status = os.fstat(self._home)
        main = (os.major(status.st_dev), os.minor(status.st_dev))
        places = AddressMap(self._mount.filesystem, self._home, main)
        pairs: list[tuple[int, int]] = []
        mapped: list[Block] = []
        for number, file in enumerate(self._files):
            try:
                pieces = self._find_extents(number, file)
                pairs += [
                    (places.find_trim_start(piece.physical), piece.physical + piece.length)
                    for piece in pieces
                ]
                for piece in pieces:
                    mapped += self._map_piece(number, places, piece.physical, piece.length)
            except Unsupported as error:
                self._reasons[number] = str(error)
        self._blocks = list(self._verify_written(mapped))
        self.ranges = Extents.from_pairs(pairs)
        # Not usable on btrfs, which frees only whole pieces.
        self._inner = Extents.from_pairs((start + BLOCK, end - BLOCK) for start, end in pairs)
        if self._blocks:
            places_at = [block.at for block in self._blocks]
            self._window = (min(places_at), max(places_at) + BLOCK)

    def _require_room(self) -> None:
        """Raise RefusedError unless there is room for twice the sentinels and a reserve for others."""
        info = os.fstatvfs(self._home)
        room = info.f_bavail * info.f_frsize
        needed = 2 * sum(self._sizes) + min(info.f_blocks * info.f_frsize // 100, 256 << 20)
        if info.f_flag & os.ST_RDONLY:
            raise RefusedError(f"{self._mount.point} is mounted read-only: no sentinel can be written")
        if room < needed:
            raise RefusedError(
                f"{self._mount.point} has {room} bytes left, but sentinels need {needed}: free some space"
            )

    def _write_sentinel(self, number: int, size: int) -> int:
        file = create_unnamed_file(self._home, self._mount.point)
        try:
            for block in range(size // BLOCK):
                data = make_pattern(self._run, number, block)
                self._written[number].add(compute_digest(data))
                if os.write(file, data) != BLOCK:
                    raise OpwatchError(f"{self._mount.point}: a sentinel could not be written in full")
            os.fsync(file)
        except OSError as error:
            os.close(file)
            raise OpwatchError(f"{self._mount.point}: cannot write a sentinel: {error.strerror}") from error
        except BaseException:
            os.close(file)
            raise
        return file

    def _find_extents(self, number: int, file: int) -> list[FileExtent]:
        """Return the extents of a sentinel, or raise Unsupported if any has no usable location."""
        size = self._sizes[number]
        # XFS preallocates beyond the end.
        pieces = [piece for piece in read_file_extents(file) if piece.logical + piece.length <= size]
        unusable = next((piece.unusable_reason for piece in pieces if piece.unusable_reason), None)
        if pieces and not unusable:
            return pieces
        raise Unsupported(f"its location on the disk is not usable: {unusable or 'unknown'}")

    def _map_piece(self, number: int, places: AddressMap, start: int, length: int) -> Iterator[Block]:
        """Yield the expected locations of a piece's blocks on the lowest devices."""
        for on, extents in places.find_copies(start, start + length // BLOCK * BLOCK).items():
            for first, last in extents:
                yield from self._locate_blocks(number, on, first, last - first, copies=self._copies)

    def _locate_blocks(
        self, number: int, on: Number, at: int, length: int, *, copies: bool
    ) -> Iterator[Block]:
        device = self._find_name(on)
        if device is None:
            return
        for start, landing in split_contiguous(self._stack, device, at, at + length, BLOCK, copies=copies):
            if copies and can_read_cache(self._stack, landing.device):
                self._reasons[number] = f"reads of {landing.device} may come from a cache below it"
                continue
            [(first, last)] = landing.extents
            for behind in range(0, last - first, BLOCK):
                where = (landing.device, first + behind, landing.encrypted)
                yield Block(number, on, start + behind, *where, before=b"")

    def _verify_written(self, mapped: Sequence[Block]) -> Iterator[Block]:
        """Yield the blocks that contain the written data, with a digest.

        Below encryption, a block is accepted if its data equal the data at the location that reads use.
        """
        shown = {
            block[:3]: list(self._locate_blocks(*block[:3], BLOCK, copies=False))
            for block in mapped
            if block.encrypted
        }
        contents = self._read_blocks([*mapped, *(block for blocks in shown.values() for block in blocks)])
        for block in mapped:
            data = contents[block.device, block.offset]
            as_read = {contents[other.device, other.offset] for other in shown.get(block[:3], ())}
            if data is None or not any(data):
                self._reasons[block.file] = "its blocks cannot be read at their expected location"
            elif (
                data not in as_read
                if block.encrypted
                else compute_digest(data) not in self._written[block.file]
            ):
                self._reasons[block.file] = (
                    "other data is at the expected location of its blocks: the mapping to the disk is wrong"
                )
            else:
                yield block._replace(before=compute_digest(data))

    def _read_blocks(self, blocks: Iterable[Block]) -> dict[tuple[str, int], bytes | None]:
        """Read blocks from the devices, by (device, offset)."""
        offsets: defaultdict[str, set[int]] = defaultdict(set)
        for block in blocks:
            offsets[block.device].add(block.offset)
        return {
            (device, offset): data
            for device, places in offsets.items()
            for offset, data in self._open_disk(device).read_blocks(places, BLOCK)
        }

    def _find_name(self, number: Number) -> str | None:
        if number not in self._names:
            device = self._devices.by_number(*number)
            self._names[number] = device.name if device else None
        return self._names[number]

    def _open_disk(self, device: str) -> RawDisk:
        if device not in self._disks:
            self._disks[device] = RawDisk(device, _READ_AT_ONCE)
        return self._disks[device]

    def find_extents(self, device: str, *, inner: bool = False, uncut: bool = False) -> Extents:
        """Return the sentinels' blocks on a device.

        `inner`: without the edges that delete_files() may keep. `uncut`: without blocks that a trim splits at
        a boundary, and which may therefore remain.
        """
        granule_bytes = find_granule_or_sector(self._stack.find_layer(device))[0]
        return Extents.from_pairs(
            (block.offset, block.offset + BLOCK)
            for block in self._blocks
            if block.device == device
            and (not inner or self._is_inner(block))
            and not (uncut and is_near_boundary(block.at, granule_bytes, self._cuts))
        )

    def delete_files(self, *, keep_edges: bool = False) -> None:
        """Delete the files and wait until the file system counts their blocks as free.

        With `keep_edges` the first and last block of each piece stay allocated, so that a trim of the inner
        part ends there. Otherwise most file systems extend it to the entire free extent. Not for btrfs, which
        frees whole pieces.
        """
        if keep_edges:
            self._punch_files()
        else:
            self._close_files()
        freed = [block for block in self._blocks if not keep_edges or self._is_inner(block)]
        end = time.monotonic() + _FREED_WITHIN_S
        while time.monotonic() < end:
            sync_filesystem(self._home)
            free = self._read_free_space()
            if free is None or all(_is_free(free, block) for block in freed):
                return
            time.sleep(0.05)

    def _punch_files(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        for file in self._files:
            for piece in read_file_extents(file):
                inner = (piece.logical + BLOCK, piece.length - 2 * BLOCK)
                args = [ctypes.c_longlong(value) for value in inner]
                if inner[1] > 0 and libc.fallocate(file, _PUNCH_HOLE, *args):
                    raise OpwatchError(
                        f"{self._mount.point}: cannot punch a hole: {os.strerror(ctypes.get_errno())}"
                    )

    def _is_inner(self, block: Block) -> bool:
        return self._inner.has_range(block.at, block.at + BLOCK)

    def trim_ranges(self) -> int:
        """Trim the sentinels' ranges, and return the bytes that the kernel claims.

        Most file systems trim the entire free extents that touch the range. btrfs trims block groups from
        their start, and all unallocated space.
        """
        return sum(trim_mount(self._mount, Asked(start, end - start)) for start, end in self.ranges)

    def judge_sentinels(self, wait_s: float = 0.0) -> list[SentinelResult]:
        """Return how each sentinel reads now. Slow drives are read again until `wait_s` has passed."""
        end = time.monotonic() + wait_s
        while True:
            judgements = self._judge_blocks()
            if (
                not any(judgement.inside[ReadsAs.UNCHANGED] for judgement in judgements)
                or time.monotonic() >= end
            ):
                return judgements
            time.sleep(0.2)

    def _judge_blocks(self) -> list[SentinelResult]:
        free = self._read_free_space()
        read = self._read_blocks(self._blocks)
        for disk in self._disks.values():
            disk.require_same()
        later = self._read_free_space()
        states: dict[Block, ReadsAs] = {}
        for block in self._blocks:
            is_free = free is None or later is None or (_is_free(free, block) and _is_free(later, block))
            states[block] = (
                classify_block(block.before, read[block.device, block.offset])
                if is_free
                else ReadsAs.REALLOCATED
            )
        return list(self._make_judgements(states))

    def _make_judgements(self, states: dict[Block, ReadsAs]) -> Iterator[SentinelResult]:
        for number, size in enumerate(self._sizes):
            mine = [block for block in states if block.file == number]
            for device in dict.fromkeys(block.device for block in mine):
                there = [block for block in mine if block.device == device]
                granule_bytes = find_granule_or_sector(self._stack.find_layer(device))[0]
                freed = [
                    block
                    for block in there
                    if states[block] is not ReadsAs.REALLOCATED
                    and not is_near_boundary(block.at, granule_bytes, self._cuts)
                ]
                extents = Extents.from_pairs((block.offset, block.offset + BLOCK) for block in freed)
                whole = extents.round_to_granules(*find_granule_or_sector(self._stack.find_layer(device)))
                sent = self._find_whole_granules(freed)
                inside, edges = Counter[ReadsAs](), Counter[ReadsAs]()
                for block in there:
                    is_inside = whole.has_range(block.offset, block.offset + BLOCK) and block in sent
                    (inside if is_inside else edges)[states[block]] += 1
                yield SentinelResult(
                    size_bytes=size,
                    device=device,
                    encrypted=there[0].encrypted,
                    offsets=tuple(block.offset for block in there),
                    inside=inside,
                    edges=edges,
                    reason=self._reasons.get(number),
                    free=extents,
                )
            if not mine:
                reason = self._reasons.get(number, "none of its blocks could be found on a disk")
                yield SentinelResult(
                    size_bytes=size,
                    device="",
                    encrypted=False,
                    offsets=(),
                    inside=Counter(),
                    edges=Counter(),
                    reason=reason,
                )

    def _find_whole_granules(self, blocks: Sequence[Block]) -> set[Block]:
        """Return the blocks in whole granules of the file system's device. Only those must be discarded."""
        whole: set[Block] = set()
        for number in {block.number for block in blocks}:
            mine = [block for block in blocks if block.number == number]
            dev = f"{number[0]}:{number[1]}"
            top = next((layer for layer in self._stack.layers if layer.dev == dev), None)
            granules = Extents.from_pairs((block.at, block.at + BLOCK) for block in mine).round_to_granules(
                *find_granule_or_sector(top)
            )
            whole.update(block for block in mine if granules.has_range(block.at, block.at + BLOCK))
        return whole

    def _read_free_space(self) -> FreeSpace | None:
        """Return the current free space, or None if the file system does not report it."""
        try:
            return read_free_space(self._mount, self._window)
        except Unsupported:
            self.checks_reallocation = False
            return None

    def _close_files(self) -> None:
        while self._files:
            with contextlib.suppress(OSError):
                os.close(self._files.pop())


def _is_free(free: FreeSpace, block: Block) -> bool:
    extents = free.extents.get(block.number)
    return extents is not None and extents.has_range(block.at, block.at + BLOCK)
