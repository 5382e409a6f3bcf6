"""Record a disk's history: write changes to a map in a file, and detect missed changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from opwatch.collectors.history.changes import ChangeTracer, DiskCounts, find_request_disk
from opwatch.collectors.history.free_space import read_disk_free_space
from opwatch.collectors.history.owners import OwnerPlaces
from opwatch.collectors.stack.layers import LayerReader
from opwatch.errors import OpwatchError, RefusedError
from opwatch.foreign import read_text
from opwatch.host.details import read_identity
from opwatch.host.device import BlockDevice, Devices, Presence
from opwatch.recording.writing.history import HistoryFile
from opwatch.trim.history.changes import HistoryLoss
from opwatch.trim.history.counter_base import CounterBase
from opwatch.trim.history.history import History
from opwatch.trim.history.requests import RequestRow, join_rows, select_requests
from opwatch.trim.history.saved import Checkpoint, HistoryDrive, SavedHistory
from opwatch.trim.history.sectormap import SECTOR, SectorState
from opwatch.trim.history.validity import Conditions, explain_invalid_map, is_other_drive
from opwatch.trim.layers.kinds import find_granule_or_sector

# Interval between drains of the ring.
TICK_S = 0.1
# The kernel counts completions well within this time.
_APART_S = 0.002
_SAVE_S = 1.0
# Number of consecutive drains before the reader counts as too slow.
_DRAINS = 64
GAP_NOTE = (
    "for the time without a recording only the kernel's counts are known: commands that the kernel does not "
    "count (nvme format, sanitize, SG_IO) are not visible"
)
_UNSEEN = "changes that the kernel counted but opwatch did not see"


def read_conditions(device: BlockDevice) -> Conditions:
    boot = read_text(Path("/proc/sys/kernel/random/boot_id")).strip()
    slept = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    return Conditions(boot, device.read_number("diskseq"), slept)


def identify_drive(devices: Devices, device: BlockDevice) -> HistoryDrive:
    """Return the identity of a drive and its discard granularity."""
    size, offset = find_granule_or_sector(LayerReader(devices).read_device(device).find_layer(device.name))
    return replace(_read_drive(devices, device), granule=max(size // SECTOR, 1), offset=offset // SECTOR)


def _read_drive(devices: Devices, device: BlockDevice) -> HistoryDrive:
    known = read_identity(devices, device)
    return HistoryDrive(device.name, known.serial, known.wwid, device.size_bytes // SECTOR, 1, 0)


def find_drive(devices: Devices, drive: HistoryDrive) -> BlockDevice | None:
    """Return the disk of a record even if renamed, or None if absent."""
    named = devices.by_name(drive.name)
    lasting = drive.wwid or drive.serial
    others = [
        disk for disk in devices.iter_disks() if lasting and disk.name != drive.name and not disk.is_hidden
    ]
    candidates: list[BlockDevice] = [*([named] if named else []), *others]
    return next((disk for disk in candidates if not is_other_drive(drive, _read_drive(devices, disk))), named)


class HistoryRecorder:
    """Records from construction until close().

    `kept` describes the fate of the file's previous content. `was_disturbed` is set if another process
    deletes, replaces or truncates the file. The file is then rewritten, and `tell` is called once.
    """

    def __init__(
        self, devices: Devices, device: BlockDevice, path: Path, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self.device, self._devices, self._tell = device, devices, tell
        self.drive = identify_drive(devices, device)
        disk = find_request_disk(devices, device)
        self.was_disturbed = False
        self._file = self._open_file(path)
        try:
            self._attach_disk(disk)
        except BaseException:
            self._file.abandon()
            raise

    def _open_file(self, path: Path) -> HistoryFile:
        """Return the file, if it belongs to this drive."""
        file = HistoryFile(path)
        if file.saved and is_other_drive(file.saved.drive, self.drive):
            file.close()
            raise RefusedError(
                f"{path} is the history of another drive ({file.saved.drive.name}): use another file with -o"
            )
        return file

    def _attach_disk(self, disk: BlockDevice) -> None:
        self._disk = disk
        self._presence = Presence(disk)
        self._counts = DiskCounts(disk)
        self._last: Checkpoint | None = None
        before = self._read_counts()
        self._tracer = ChangeTracer(disk)
        after = self._read_counts()
        self._moment = read_conditions(self.device)
        self._began_ns = self._looked_ns = time.monotonic_ns()
        self._bases = [CounterBase(low, high) for low, high in zip(before, after, strict=True)]
        self._recorded = [0, 0]
        self._loss = HistoryLoss()
        # Requests since the last save, and whether the next one follows them.
        self._requests: list[RequestRow] = []
        # The file keeps the requests of earlier recordings, and their owners with them.
        self._owners = OwnerPlaces(self._file.saved.look.owners if self._file.saved else ())
        self._follows = False
        self._since_wall_ns = time.time_ns()
        self._notes: tuple[str, ...] = ()
        self.history = History(
            self.drive.sectors, self.drive.granule, self.drive.offset, since_ns=self._began_ns
        )
        saved = self._file.saved
        knew = saved is None or bool(
            saved.map.collect_extents(SectorState.WRITTEN) or saved.map.collect_extents(SectorState.TRIMMED)
        )
        kept = self._keep_proven(saved, after)
        self.kept = kept if knew else "the file had no known sectors"
        self._settled = True
        self._keep_free_space(settled=False)
        self._rewrite_file()

    def _read_counts(self) -> tuple[int, int]:
        counts = self._counts.read_counts()
        return counts if counts else self._end_record("the kernel's statistics for it are disabled")

    def _end_record(self, why: str) -> NoReturn:
        """End the record for a reason. Later changes are not seen, and nothing would show them afterwards."""
        if not self._presence.is_same_device():
            raise OpwatchError(f"{self.device.name} is gone")
        if self._last:
            self._discard_map(why)
            self._rewrite_file()
        raise OpwatchError(f"{self.device.name}: {why}")

    def _keep_proven(self, saved: SavedHistory | None, counts: tuple[int, int]) -> str:
        """Keep the part of the file's content that is still proven, and return a description."""
        if saved is None:
            damage = self._file.damage
            return f"the previous content of the file is unreadable: {damage}" if damage else "a new history"
        look = saved.look
        why = explain_invalid_map(saved, self.drive, self._moment)
        if counts[0] < look.written or counts[1] < look.discarded:
            why = "the kernel's counts were reset"
        if why:
            return f"the previous map is no longer valid: {why}"
        self.history.map = saved.map
        self.history.forgotten.update(look.forgotten)
        self._since_wall_ns = look.since_wall_ns
        writes, discards = look.detect_changes(counts)
        self.history.forget_unrecorded(writes, discards, "changes between two recordings", self._began_ns)
        if writes and discards:
            self._since_wall_ns = time.time_ns()
            return "the previous map is no longer valid: the disk was written to and discarded in between"
        self._notes = tuple(dict.fromkeys((*look.notes, GAP_NOTE)))
        if writes or discards:
            lost = "trimmed" if writes else "written"
            what = "written to" if writes else "discarded"
            return f"the {lost} sectors are unknown now: the disk was {what} in between"
        return "the previous map is still valid: nothing was written or discarded in between"

    def process_changes(self) -> bool:
        """Process new changes. Return False if the disk is gone."""
        if not self._presence.is_same_device():
            return False
        self._forget_after_sleep()
        if self._disk != self.device:
            self._require_one_path()
        began_ns = time.monotonic_ns()
        kernel = self._read_counts()
        self._settled = self._drain_ring()
        if not self._settled:
            return True
        self._looked_ns = began_ns
        self._check_counts(kernel)
        return True

    def _forget_after_sleep(self) -> None:
        moment = read_conditions(self.device)
        if moment.has_slept_since(self._moment.slept_ns):
            self._moment = moment
            self._discard_map("the machine slept, and another system may have used the disk")

    def _require_one_path(self) -> None:
        if [path.name for path in self._devices.list_paths(self.device)] != [self._disk.name]:
            self._end_record("its paths have changed, so the order of changes is unknown")

    def _discard_map(self, why: str) -> None:
        self._follows = False
        self.history.discard_map(why, time.monotonic_ns())
        self._since_wall_ns, self._notes = time.time_ns(), ()

    def _drain_ring(self) -> bool:
        """Drain the ring. Return False if it fills faster than we read."""
        for _ in range(_DRAINS):
            raw, more = self._tracer.drain_changes()
            written, discarded = self.history.apply_changes(raw)
            self._keep_requests(raw)
            self._recorded[0] += written
            self._recorded[1] += discarded
            if not more:
                break
        else:
            return False
        loss, old = self._tracer.read_loss(), self._loss
        self._loss = loss
        writes = loss.write_sectors - old.write_sectors
        discards = loss.discard_sectors - old.discard_sectors
        self._recorded[0] += writes
        self._recorded[1] += discards
        if loss.commands > old.commands:
            self._discard_map("a command that bypassed the block layer, and was not recorded")
        self._forget_unrecorded(writes > 0, discards > 0, "more changes at once than the buffer can hold")
        self._narrow_bases()
        return True

    def _keep_requests(self, raw: bytes) -> None:
        row = select_requests(raw, follows=self._follows, places=self._owners.find_places(raw))
        if row:
            self._requests.append(row)
            self._follows = True

    def _take_requests(self) -> RequestRow | None:
        rows, self._requests = self._requests, []
        return join_rows(rows) if rows else None

    def _narrow_bases(self) -> None:
        """Compare the recorded counts with the kernel's counts a moment later."""
        time.sleep(_APART_S)
        counts = self._read_counts()
        wrong = [
            not base.narrow_high(count, known)
            for base, count, known in zip(self._bases, counts, self._recorded, strict=True)
        ]
        self._forget_unrecorded(wrong[0], wrong[1], "changes that opwatch saw but the kernel did not count")

    def _check_counts(self, kernel: tuple[int, int]) -> None:
        wrong = [
            not base.raise_bound(count, known)
            for base, count, known in zip(self._bases, kernel, self._recorded, strict=True)
        ]
        self._forget_unrecorded(wrong[0], wrong[1], _UNSEEN)

    def _forget_unrecorded(self, writes: bool, discards: bool, why: str) -> None:
        self._follows = self._follows and not (writes or discards)
        if writes and discards:
            self._discard_map(why)
        else:
            self.history.forget_unrecorded(writes, discards, why, time.monotonic_ns())

    def make_checkpoint(self) -> Checkpoint:
        """Return the provable statements about the current map."""
        written, discarded = self._bases
        return Checkpoint(
            mono_ns=self._looked_ns,
            wall_ns=time.time_ns(),
            boot=self._moment.boot,
            diskseq=self._moment.diskseq,
            slept_ns=self._moment.slept_ns,
            written=written.low + self._recorded[0],
            discarded=discarded.low + self._recorded[1],
            written_slack=written.slack,
            discarded_slack=discarded.slack,
            since_wall_ns=self._since_wall_ns,
            forgotten=dict(self.history.forgotten),
            notes=self._notes,
            owners=tuple(self._owners.names),
        )

    def save_changes(self) -> None:
        """Save changes, at most once per second, or rewrite the file if necessary."""
        if not self._settled:
            return
        look = self.make_checkpoint()
        map_, runs = self.history.map, self.history.map.log or []
        last = self._last
        if last and not runs and _is_same_state(last, look):
            return
        if last and look.mono_ns - last.mono_ns < _SAVE_S * 1e9:
            return
        if not self._file.is_unchanged or not map_.log_is_whole or self._file.has_grown:
            self._rewrite_file()
            return
        self._file.add_changes(look, runs, self._take_requests())
        self._last, map_.log = look, []

    def _rewrite_file(self) -> None:
        disturbed = not self._file.is_unchanged
        if not self._file.is_in_place:
            # The path may now name another process's file.
            self._file.close()
            self._file = self._open_file(self._file.path)
        self._last = self.make_checkpoint()
        self._file.replace_map(self.drive, self._last, self.history.map)
        requests = self._take_requests()
        if requests:
            self._file.add_changes(self._last, (), requests)
        self.history.map.log, self.history.map.log_is_whole = [], True
        if disturbed and not self.was_disturbed:
            self.was_disturbed = True
            self._tell(
                f"{self._file.path}: another process deleted, replaced or truncated it: opwatch rewrites it"
            )

    def _keep_free_space(self, *, settled: bool) -> None:
        free = read_disk_free_space(self._devices, self.device, settled=settled)
        if free:
            self._file.keep_free_space(free)

    def count_missed_runs(self) -> int:
        """Return the program runs skipped by the kernel because of another run on the same CPU."""
        return sum(program[4] for program in self._tracer.list_programs())

    def close(self) -> None:
        """Save all known changes and detach."""
        try:
            if self._presence.is_same_device():
                # The sync writes, so the changes come second.
                self._keep_free_space(settled=True)
                if self.process_changes() and self._settled:
                    self._rewrite_file()
        finally:
            self._tracer.close()
            self._counts.close()
            self._presence.close()
            self._file.close()


def _is_same_state(one: Checkpoint, two: Checkpoint) -> bool:
    """Return whether both make the same statements about the map."""
    return (one.written, one.discarded, one.written_slack, one.discarded_slack, one.forgotten) == (
        two.written,
        two.discarded,
        two.written_slack,
        two.discarded_slack,
        two.forgotten,
    )
