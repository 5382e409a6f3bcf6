"""Sample free space with raw reads, and calibrate them, to estimate how much of it the drive still holds."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from opwatch.collectors.firmware.simulated import find_simulated
from opwatch.collectors.space.device_handle import read_disk_sequence
from opwatch.collectors.space.lba_status import read_mapped_extents
from opwatch.collectors.space.lowest import find_free_landings
from opwatch.collectors.space.mount_handle import open_mount
from opwatch.collectors.space.raw_disk import RawDisk
from opwatch.collectors.stale.readback import read_promise, read_use_count
from opwatch.errors import BadInput, NotEnoughData, OpwatchError
from opwatch.foreign import parse_json, read_bytes, require_table
from opwatch.host.device import BlockDevice, Devices
from opwatch.host.usage import Mount
from opwatch.tools.acting.stale.sentinels import Sentinels
from opwatch.trim.filesystems.kinds import find_filesystem
from opwatch.trim.layers.kinds import find_granule_or_sector
from opwatch.trim.layers.remap import Landing, keep_unmoved
from opwatch.trim.stack.layers import Stack
from opwatch.trim.stale.estimate import estimate_share
from opwatch.trim.stale.judgement import ReadDevice, StaleJudgement, StaleOptions
from opwatch.trim.stale.sampling import BatchCount, Blocks, sample_blocks
from opwatch.trim.stale.sentinel import BLOCK, ReadsAs, find_common_state
from opwatch.trim.stale.stale import Calibration, Count, MappedBytes, calibrate

_SENTINEL_BYTES, _SENTINEL_MOST = 1 << 20, 64 << 20
_COUNT_FALLS_WITHIN_S = 2.5
_READ_BACK: dict[ReadsAs | None, str] = {
    ReadsAs.ZEROS: "as zeros",
    ReadsAs.ONES: "as ones",
    ReadsAs.UNCHANGED: "unchanged: trims do not reach the drive, or it returns old data",
}
# The f2fs thread processes queued discards once in 60 s, as measured on 6.1 and 6.12.
_F2FS_FILES_TRIMS = (
    "; f2fs with -o discard may delay a trim by up to a minute: mount -o remount,nodiscard, repeat the "
    "command, and remount with discard"
)


class _Space:
    """Free bytes by device, and the readings of their blocks."""

    def __init__(self, landings: Sequence[Landing], unit: int, blocks: Blocks | None = None) -> None:
        self.landings = landings
        self.unit = unit
        self.blocks = blocks or Blocks([landing.extents for landing in landings], unit)
        self.readings: dict[int, ReadsAs] = {}

    def read_blocks(self, disks: Sequence[RawDisk], numbers: list[int]) -> BatchCount:
        """Read these blocks. Content that no calibration counts as data is counted as not held."""
        numbers = sorted(numbers)
        for index, disk in enumerate(disks):
            mine = [(number, place[1]) for number in numbers if (place := self.blocks[number])[0] == index]
            contents = disk.read_all([offset for _, offset in mine], self.unit)
            for (number, _), data in zip(mine, contents, strict=True):
                self.readings[number] = self._classify_data(data)
        tally = Counter(self.readings[number] for number in numbers)
        if tally[ReadsAs.UNREADABLE] == len(numbers):
            names = ", ".join(dict.fromkeys(disk.device for disk in disks))
            raise OpwatchError(
                f"{names}: none of {len(numbers)} blocks could be read; is the drive still there?"
            )
        return BatchCount(tally[ReadsAs.OTHER], len(numbers) - tally[ReadsAs.UNREADABLE])

    def _classify_data(self, data: bytes | None) -> ReadsAs:
        if data is None:
            return ReadsAs.UNREADABLE
        if data == bytes(self.unit):
            return ReadsAs.ZEROS
        return ReadsAs.ONES if data == b"\xff" * self.unit else ReadsAs.OTHER

    def keep_free(self, later: Sequence[Landing]) -> tuple[_Space, int]:
        """Return (the space still free, the number of read blocks no longer free)."""
        now_free = keep_unmoved(self.landings, later)
        kept = _Space(now_free, self.unit, self.blocks)  # Keeps the block numbers valid
        for number, reading in self.readings.items():
            landing, offset = self.blocks[number]
            if now_free[landing].extents.has_range(offset, offset + self.unit):
                kept.readings[number] = reading
        return kept, len(self.readings) - len(kept.readings)

    def count_readings(self, landing: int) -> Counter[ReadsAs]:
        return Counter(
            reading for number, reading in self.readings.items() if self.blocks[number].landing == landing
        )


class StaleMeasurement:
    """One estimate, for a mounted file system or an unused device."""

    def __init__(self, stack: Stack, mount: Mount | None, asked: StaleOptions, devices: Devices) -> None:
        self._stack = stack
        self._mount = mount
        self._asked = asked
        self._devices = devices
        self._notes: list[str] = []
        self._mapped: MappedBytes | None = None
        self._lives = {
            leaf.device: read_disk_sequence(device)
            for leaf in stack.find_leaves()
            if (device := devices.by_name(leaf.device))
        }

    def run(self) -> StaleJudgement:
        """Measure.

        Reads the blocks before the calibration, because most file systems trim more than the requested range.
        """
        with open_mount(self._mount) if self._mount else contextlib.nullcontext():
            return self._measure_space()

    def _measure_space(self) -> StaleJudgement:
        begin = time.monotonic()
        space = _Space(self._find_free_space(settled=True), self._choose_unit())
        if not len(space.blocks):
            raise NotEnoughData("there is no free space, so nothing in it is stale")
        self._sample_space(space)
        taken = 0
        if self._mount:
            space, taken = space.keep_free(self._find_free_space(settled=False))
        self._mapped = self._read_drive_map(space.landings)
        calibrations, count = self._calibrate_devices(space.landings)
        drives = [self._make_device(landing, calibrations[landing.device]) for landing in space.landings]
        return self._make_judgement(space, drives, taken, count, time.monotonic() - begin)

    def _read_drive_map(self, landings: Sequence[Landing]) -> MappedBytes | None:
        """Return the free space in the drive's own map, if any. Not yet verified."""
        if len(landings) != 1:
            return None
        mapped = read_mapped_extents(self._find_device(landings[0].device))
        return (
            MappedBytes((landings[0].extents & mapped).total_bytes, follows=False)
            if mapped is not None
            else None
        )

    def _choose_unit(self) -> int:
        if not self._mount:
            return BLOCK
        with open_mount(self._mount) as descriptor:
            return min(BLOCK, os.fstatvfs(descriptor).f_bsize)

    def _find_free_space(self, *, settled: bool) -> list[Landing]:
        landings, notes = find_free_landings(self._devices, self._stack, self._mount, settled=settled)
        self._notes = list(notes)
        return landings

    def _sample_space(self, space: _Space) -> None:
        with contextlib.ExitStack() as opened_disks:
            disks = [
                opened_disks.enter_context(RawDisk(landing.device, life=self._lives.get(landing.device)))
                for landing in space.landings
            ]
            end = time.monotonic() + self._asked.seconds
            looks = sample_blocks(
                len(space.blocks),
                self._asked.seed,
                self._asked.confidence,
                self._asked.half_width,
                lambda numbers: space.read_blocks(disks, numbers),
                lambda: time.monotonic() < end,
            )
            for _ in looks:
                pass
            for disk in disks:
                disk.require_same()

    def _find_device(self, name: str) -> BlockDevice:
        device = self._devices.by_name(name)
        if device is None:
            raise OpwatchError(f"{name} is gone")
        return device

    def _make_device(self, landing: Landing, calibration: Calibration) -> ReadDevice:
        size, offset = find_granule_or_sector(self._stack.find_layer(landing.device))
        whole = landing.extents.round_to_granules(size, offset).total_bytes
        return ReadDevice(
            landing,
            self._find_device(landing.device).size_bytes,
            size,
            landing.extents.total_bytes - whole,
            calibration,
        )

    def _calibrate_devices(self, landings: Sequence[Landing]) -> tuple[dict[str, Calibration], Count | None]:
        names = list(dict.fromkeys(landing.device for landing in landings))
        promises = {name: read_promise(self._find_device(name)) for name in names}
        sentinel: dict[str, ReadsAs | None] = {}
        count, words = None, "no sentinel was written: there is no filesystem for it"
        if self._mount and self._asked.sentinel is False:
            words = "no sentinel was written, as requested"
        elif (
            self._mount
            and self._asked.sentinel is None
            and find_filesystem(self._mount.filesystem).trims_whole_groups
        ):
            words = (
                "no sentinel was written: btrfs would trim far more than the sentinel. Use --sentinel to "
                "write it nevertheless"
            )
        elif self._mount:
            try:
                sentinel, count, words = self._run_sentinel(self._mount, names)
            except OpwatchError as error:
                words = f"no sentinel: {error}"
        return {
            name: calibrate(promises[name].reads, promises[name].words, sentinel.get(name), words, count)
            for name in names
        }, count

    def _run_sentinel(
        self, mount: Mount, names: Sequence[str]
    ) -> tuple[dict[str, ReadsAs | None], Count | None, str]:
        granule = max(find_granule_or_sector(self._stack.find_layer(name))[0] for name in names)
        size = min(max(_SENTINEL_BYTES, -(-4 * granule // BLOCK) * BLOCK), _SENTINEL_MOST)
        drive = self._find_device(names[0]) if len(names) == 1 else None
        before = read_use_count(drive) if drive else None
        keeps_edges = not find_filesystem(mount.filesystem).trims_whole_groups
        with Sentinels(mount, self._stack, (size,), self._devices) as sentinels:
            sentinels.plant()
            written = read_use_count(drive) if drive else None
            was_held = self._map_has(sentinels, drive, planted=True)
            sentinels.delete_files(keep_edges=keeps_edges)
            claimed = sentinels.trim_ranges()
            if not keeps_edges:
                self._notes.append(
                    "in addition to the sentinel, btrfs trimmed block groups and all unallocated space: a "
                    "second run finds less stale space"
                )
            judged = sentinels.judge_sentinels(1.0)
            if self._mapped and was_held and self._map_has(sentinels, drive, planted=False):
                self._mapped = replace(self._mapped, follows=True)
            count = self._wait_for_count(drive, before, written, size - (2 * BLOCK if keeps_edges else 0))
        verdicts = {name: find_common_state(judged, name) for name in names}
        reasons = [judgement.reason for judgement in judged if judgement.reason]
        blocks = sum(judgement.conclusive_blocks for judgement in judged)
        if not blocks:
            reasons.append("its blocks were in use again, or could not be read")
            return verdicts, count, f"the sentinel was inconclusive: {reasons[0]}"
        answer = _READ_BACK.get(find_common_state(judged), "inconsistently")
        claim = f"the kernel reported {claimed} bytes"
        words = f"a sentinel of {blocks} blocks was trimmed ({claim}) and read back {answer}"
        if mount.filesystem == "f2fs" and not claimed:
            words += _F2FS_FILES_TRIMS
        return verdicts, count, words

    def _map_has(self, sentinels: Sentinels, drive: BlockDevice | None, *, planted: bool) -> bool:
        """Return whether the drive's map holds the entire sentinel, or nothing of its whole granules."""
        mapped = read_mapped_extents(drive) if self._mapped and drive else None
        if mapped is None or drive is None:
            return False
        place = sentinels.find_extents(drive.name, inner=not planted)
        if planted:
            return not place - mapped
        return (
            not place.round_to_granules(*find_granule_or_sector(self._stack.find_layer(drive.name))) & mapped
        )

    def _wait_for_count(
        self, drive: BlockDevice | None, before: int | None, written: int | None, trimmed: int
    ) -> Count | None:
        """Return the drive's count after the trim, after waiting for slow drives."""
        end = time.monotonic() + _COUNT_FALLS_WITHIN_S
        while drive and before is not None and written is not None:
            after = read_use_count(drive)
            if after is None:
                return None
            count = Count(before, written, after, trimmed)
            if not count.has_ignored_trim or time.monotonic() > end:
                return count
            time.sleep(0.1)
        return None

    def _make_judgement(
        self, space: _Space, drives: list[ReadDevice], taken: int, count: Count | None, seconds: float
    ) -> StaleJudgement:
        holding = samples = judged_bytes = unreadable = 0
        for index, drive in enumerate(drives):
            tally = space.count_readings(index)
            unreadable += tally[ReadsAs.UNREADABLE]
            reads = drive.calibration.reads
            if reads is None:
                continue
            counted = sum(tally.values()) - tally[ReadsAs.UNREADABLE]
            samples, holding = samples + counted, holding + counted - tally[reads]
            judged_bytes += drive.landing.extents.total_bytes
        units = judged_bytes // space.unit
        every = len(space.readings) + taken >= len(space.blocks)
        return StaleJudgement(
            drives=tuple(drives),
            unit_bytes=space.unit,
            free_bytes=sum(landing.extents.total_bytes for landing in space.landings),
            judged_bytes=judged_bytes,
            share=estimate_share(holding, samples, samples if every else units, self._asked.confidence),
            taken=taken,
            unreadable=unreadable,
            count=count,
            mapped=self._mapped,
            seconds=seconds,
            notes=tuple(self._notes),
        )


def read_physical_bytes(device: BlockDevice) -> int | None:
    """Return the flash size of a simulated drive, or None for others."""
    drive = find_simulated(device)
    if not drive:
        return None
    file = drive.folder / "truth.json"
    with contextlib.suppress(OSError, BadInput):
        size = require_table(parse_json(read_bytes(file), str(file)), str(file)).get("physical_bytes")
        return size if isinstance(size, int) else None
    return None
