"""Compare free space with a history's map: the free sectors that the drive still holds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from opwatch.collectors.history.changes import DiskCounts, find_request_disk
from opwatch.collectors.history.recorder import (
    GAP_NOTE,
    find_drive,
    identify_drive,
    read_conditions,
)
from opwatch.collectors.space.lowest import find_free_landings
from opwatch.errors import NotEnoughData, OpwatchError, RefusedError
from opwatch.host.device import BlockDevice, Devices
from opwatch.host.usage import Mount
from opwatch.recording.reading.history import read_history
from opwatch.trim.history.history import History
from opwatch.trim.history.saved import SavedHistory
from opwatch.trim.history.sectormap import SectorState
from opwatch.trim.history.validity import explain_invalid_map, is_other_drive
from opwatch.trim.layers.kinds import find_granule_or_sector
from opwatch.trim.layers.remap import Landing, keep_unmoved
from opwatch.trim.stack.layers import Stack
from opwatch.trim.stale.remembered import DeviceFreeSpace, StaleSpace, TrustedHistory

# A recorder saves its changes every second.
_PATIENCE_S = 4.0


def _forget_unrecorded(saved: SavedHistory, writes: bool, discards: bool) -> SavedHistory:
    history = History(saved.drive.sectors)
    history.map = saved.map
    history.forget_unrecorded(writes, discards, "", 0)
    return saved


class OpenHistory:
    """History file of a disk that is present."""

    def __init__(self, path: Path, devices: Devices) -> None:
        self.path = path
        saved, _ = read_history(path)
        device = find_drive(devices, saved.drive)
        if device is None:
            raise OpwatchError(f"{path} is the history of {saved.drive.name}, which is not attached")
        self.device: BlockDevice = device
        self._drive = identify_drive(devices, device)
        if is_other_drive(saved.drive, self._drive):
            raise RefusedError(f"{path} is the history of another drive, which had the name {device.name}")
        self._disk = find_request_disk(devices, device)

    def read_proven(self, newer_than_ns: int) -> TrustedHistory:
        """Return the map at a time after `newer_than_ns`, as far as it can be proven."""
        counts, end = DiskCounts(self._disk), time.monotonic() + _PATIENCE_S
        try:
            while True:
                saved, alive = read_history(self.path)
                now = counts.read_counts()
                waits = alive and time.monotonic() < end
                remembered = self._prove_state(saved, now, newer_than_ns if alive else None, waits=waits)
                if remembered:
                    return remembered
                if now and not waits:
                    return self._restore_after_gap(saved, now)
                time.sleep(0.1)
        finally:
            counts.close()

    def _prove_state(
        self, saved: SavedHistory, now: tuple[int, int] | None, newer_than_ns: int | None, *, waits: bool
    ) -> TrustedHistory | None:
        """Return the proven state, or None if the file is older than later changes.

        `newer_than_ns` is None without a recorder.
        """
        look = saved.look
        why = explain_invalid_map(saved, self._drive, read_conditions(self.device))
        if now is None:
            why = "the kernel's counts cannot be read"
        elif not waits and (now[0] < look.written or now[1] < look.discarded):
            # While a recorder runs, the kernel may lag behind the recorded changes.
            why = "the kernel's counts were reset"
        if why:
            return self._make_remembered(
                _forget_unrecorded(saved, True, True), (f"the history is no longer valid: {why}",)
            )
        alive = newer_than_ns is not None
        fresh = newer_than_ns is not None and look.mono_ns > newer_than_ns
        if now != (look.written, look.discarded) and not fresh:
            return None
        doubts = []
        if look.written_slack != 0:
            doubts.append(f"{_format_sectors(look.written_slack)} of writes may have been missed")
        if look.discarded_slack != 0:
            doubts.append(f"{_format_sectors(look.discarded_slack)} of discards may have been missed")
        _forget_unrecorded(saved, look.written_slack != 0, look.discarded_slack != 0)
        return self._make_remembered(saved, tuple(doubts), () if alive else (GAP_NOTE,))

    def _restore_after_gap(self, saved: SavedHistory, now: tuple[int, int]) -> TrustedHistory:
        """Return the state that survives changes after the end of the recording."""
        writes, discards = saved.look.detect_changes(now)
        what = " and ".join(word for word, so in (("written to", writes), ("discarded", discards)) if so)
        doubt = f"the disk was {what} since the recording"
        return self._make_remembered(_forget_unrecorded(saved, writes, discards), (doubt,), (GAP_NOTE,))

    def _make_remembered(
        self, saved: SavedHistory, doubts: tuple[str, ...], notes: tuple[str, ...] = ()
    ) -> TrustedHistory:
        return TrustedHistory(
            self.path,
            saved.look,
            saved.map.collect_extents(SectorState.WRITTEN),
            saved.map.collect_extents(SectorState.UNKNOWN),
            doubts,
            tuple(dict.fromkeys((*saved.look.notes, *notes))),
        )


def _format_sectors(slack: int | None) -> str:
    return "an unknown amount" if slack is None else f"up to {slack * 512} bytes"


class Comparison:
    """Comparison for one mounted file system or unused device."""

    def __init__(self, stack: Stack, mount: Mount | None, files: Sequence[Path], devices: Devices) -> None:
        self._stack, self._mount, self._devices = stack, mount, devices
        self._readers = [OpenHistory(path, devices) for path in files]
        names = [reader.device.name for reader in self._readers]
        if len(set(names)) < len(names):
            raise RefusedError(f"two histories of the same disk: {', '.join(names)}")
        self._notes: tuple[str, ...] = ()

    def compare_space(self) -> StaleSpace:
        """Compare the free space with the map.

        Space that is free both before and after reading the map counts as free at that moment.
        """
        begin = time.monotonic()
        before = self._find_free_space(settled=True)
        by_name = {reader.device.name: reader for reader in self._readers}
        if not any(landing.device in by_name for landing in before):
            lies = ", ".join(dict.fromkeys(landing.device for landing in before))
            raise NotEnoughData(f"no history given for the free space's disk: {lies or 'none'}")
        now = time.monotonic_ns()
        remembered = {name: reader.read_proven(now) for name, reader in by_name.items()}
        both = keep_unmoved(before, self._find_free_space(settled=False))
        parts = [self._make_part(landing, remembered.get(landing.device)) for landing in both]
        return StaleSpace(tuple(parts), time.monotonic() - begin, self._notes)

    def _find_free_space(self, *, settled: bool) -> list[Landing]:
        landings, self._notes = find_free_landings(self._devices, self._stack, self._mount, settled=settled)
        return landings

    def _make_part(self, landing: Landing, remembered: TrustedHistory | None) -> DeviceFreeSpace:
        free = landing.extents
        size, offset = find_granule_or_sector(self._stack.find_layer(landing.device))
        device = self._devices.by_name(landing.device)
        return DeviceFreeSpace(
            landing=landing,
            size_bytes=device.size_bytes if device else 0,
            granule_bytes=size,
            untrimmable_bytes=free.total_bytes - free.round_to_granules(size, offset).total_bytes,
            held_bytes=(free & remembered.written).total_bytes if remembered else 0,
            unknown_bytes=(free & remembered.unknown).total_bytes if remembered else free.total_bytes,
            remembered=remembered,
        )
