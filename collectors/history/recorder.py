"""Record a disk's history: write changes to a map in a file, and detect missed changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from opwatch.collectors.history.changes import ChangeTracer, DiskCounts, disk_of_requests
from opwatch.collectors.history.file import HistoryFile
from opwatch.collectors.stack.layers import LayerReader
from opwatch.collectors.stale.sentinels import granule_of
from opwatch.errors import OpwatchError, RefusedError
from opwatch.foreign import read_text
from opwatch.host.details import read_identity
from opwatch.host.device import BlockDevice, Devices, Presence
from opwatch.trim.history import journal
from opwatch.trim.history.belonging import Conditions, is_other, other_life
from opwatch.trim.history.changes import HistoryLoss
from opwatch.trim.history.history import History
from opwatch.trim.history.journal import HistoryDrive, Look, Saved
from opwatch.trim.history.sectormap import SECTOR, SectorState
from opwatch.trim.history.witness import Base

# Interval between drains of the ring.
TICK_S = 0.1
# The kernel counts completions well within this time.
_APART_S = 0.002
_SAVE_S = 1.0
# Number of consecutive drains before the reader counts as too slow.
_DRAINS = 64
GAP_NOTE = (
    "of the time without a recording only the kernel's counts are known: commands that it does not count "
    "(nvme format, sanitize, SG_IO) would not have been seen"
)
_UNSEEN = "changes that the kernel counted and nobody saw"


def read_moment(device: BlockDevice) -> Conditions:
    boot = read_text(Path("/proc/sys/kernel/random/boot_id")).strip()
    slept = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    return Conditions(boot, device.number("diskseq"), slept)


def identify(devices: Devices, device: BlockDevice) -> HistoryDrive:
    """Return the identity of a drive and its discard granularity."""
    size, offset = granule_of(LayerReader(devices).device(device).layer(device.name))
    return replace(_named(devices, device), granule=max(size // SECTOR, 1), offset=offset // SECTOR)


def _named(devices: Devices, device: BlockDevice) -> HistoryDrive:
    known = read_identity(devices, device)
    return HistoryDrive(device.name, known.serial, known.wwid, device.size_bytes // SECTOR, 1, 0)


def find_drive(devices: Devices, drive: HistoryDrive) -> BlockDevice | None:
    """Return the disk of a record even if renamed, or None if absent."""
    named = devices.by_name(drive.name)
    lasting = drive.wwid or drive.serial
    others = [disk for disk in devices.disks() if lasting and disk.name != drive.name and not disk.is_hidden]
    candidates: list[BlockDevice] = [*([named] if named else []), *others]
    return next((disk for disk in candidates if not is_other(drive, _named(devices, disk))), named)


class HistoryRecorder:
    """Records from construction until close().

    `kept` describes the fate of the file's previous content. `was_disturbed` is set if another process
    deletes, replaces or truncates the file. The file is then rewritten, and `tell` is called once.
    """

    def __init__(
        self, devices: Devices, device: BlockDevice, path: Path, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self.device, self._devices, self._tell = device, devices, tell
        self.drive = identify(devices, device)
        disk = disk_of_requests(devices, device)
        self.was_disturbed = False
        self._file = self._open(path)
        try:
            self._begin(disk)
        except BaseException:
            self._file.abandon()
            raise

    def _open(self, path: Path) -> HistoryFile:
        """Return the file, if it belongs to this drive."""
        file = HistoryFile(path)
        if file.saved and is_other(file.saved.drive, self.drive):
            file.close()
            raise RefusedError(
                f"{path} is the history of another drive ({file.saved.drive.name}): name another file with -o"
            )
        return file

    def _begin(self, disk: BlockDevice) -> None:
        self._disk = disk
        self._presence = Presence(disk)
        self._counts = DiskCounts(disk)
        self._last: Look | None = None
        before = self._read_counts()
        self._tracer = ChangeTracer(disk)
        after = self._read_counts()
        self._moment = read_moment(self.device)
        self._began_ns = self._looked_ns = time.monotonic_ns()
        self._bases = [Base(low, high) for low, high in zip(before, after, strict=True)]
        self._recorded = [0, 0]
        self._loss = HistoryLoss()
        self._since_wall_ns = time.time_ns()
        self._notes: tuple[str, ...] = ()
        self.history = History(
            self.drive.sectors, self.drive.granule, self.drive.offset, since_ns=self._began_ns
        )
        saved = self._file.saved
        knew = saved is None or bool(
            saved.map.extents(SectorState.WRITTEN) or saved.map.extents(SectorState.TRIMMED)
        )
        kept = self._keep(saved, after)
        self.kept = kept if knew else "nothing was known before"
        self._settled = True
        self._save_anew()

    def _read_counts(self) -> tuple[int, int]:
        counts = self._counts.read()
        return counts if counts else self._give_up("the kernel's counts of it are switched off")

    def _give_up(self, why: str) -> NoReturn:
        """End the record for a reason. Later changes are not seen, and nothing would show them afterwards."""
        if not self._presence.holds():
            raise OpwatchError(f"{self.device.name} is gone")
        if self._last:
            self._forget(why)
            self._save_anew()
        raise OpwatchError(f"{self.device.name}: {why}")

    def _keep(self, saved: Saved | None, counts: tuple[int, int]) -> str:
        """Keep the part of the file's content that is still proven, and return a description."""
        if saved is None:
            damage = self._file.damage
            return f"what the file held cannot be read: {damage}" if damage else "a new history"
        look = saved.look
        why = other_life(saved, self.drive, self._moment)
        if counts[0] < look.written or counts[1] < look.discarded:
            why = "the kernel's counts began anew"
        if why:
            return f"nothing is known any more: {why}"
        self.history.map = saved.map
        self.history.forgotten.update(look.forgotten)
        self._since_wall_ns = look.since_wall_ns
        writes, discards = look.used_since(counts)
        self.history.decay(writes, discards, "changes between two recordings", self._began_ns)
        if writes and discards:
            self._since_wall_ns = time.time_ns()
            return "nothing is known any more: the disk was written to and discarded meanwhile"
        self._notes = tuple(dict.fromkeys((*look.notes, GAP_NOTE)))
        if writes or discards:
            lost = "trimmed" if writes else "written"
            what = "written to" if writes else "discarded"
            return f"what was {lost} is not known any more: the disk was {what} meanwhile"
        return "what was known is known still: nothing was written or discarded meanwhile"

    def look(self) -> bool:
        """Process new changes. Return False if the disk is gone."""
        if not self._presence.holds():
            return False
        self._forget_after_sleep()
        if self._disk != self.device:
            self._require_one_path()
        began_ns = time.monotonic_ns()
        kernel = self._read_counts()
        self._settled = self._drain()
        if not self._settled:
            return True
        self._looked_ns = began_ns
        self._check(kernel)
        return True

    def _forget_after_sleep(self) -> None:
        moment = read_moment(self.device)
        if moment.slept_since(self._moment.slept_ns):
            self._moment = moment
            self._forget("the machine slept, and another system may have used the disk")

    def _require_one_path(self) -> None:
        if [path.name for path in self._devices.paths(self.device)] != [self._disk.name]:
            self._give_up("it has other paths now, whose changes have no common order")

    def _forget(self, why: str) -> None:
        self.history.forget(why, time.monotonic_ns())
        self._since_wall_ns, self._notes = time.time_ns(), ()

    def _drain(self) -> bool:
        """Drain the ring. Return False if it fills faster than we read."""
        for _ in range(_DRAINS):
            raw, more = self._tracer.drain()
            written, discarded = self.history.apply(raw)
            self._recorded[0] += written
            self._recorded[1] += discarded
            if not more:
                break
        else:
            return False
        loss, old = self._tracer.loss(), self._loss
        self._loss = loss
        writes = loss.write_sectors - old.write_sectors
        discards = loss.discard_sectors - old.discard_sectors
        self._recorded[0] += writes
        self._recorded[1] += discards
        if loss.commands > old.commands:
            self._forget("a command that the block layer knows nothing of, among too many")
        self._decay(writes > 0, discards > 0, "more changes at once than there was room for")
        self._narrow()
        return True

    def _narrow(self) -> None:
        """Compare the recorded counts with the kernel's counts a moment later."""
        time.sleep(_APART_S)
        counts = self._read_counts()
        wrong = [
            not base.narrow(count, known)
            for base, count, known in zip(self._bases, counts, self._recorded, strict=True)
        ]
        self._decay(wrong[0], wrong[1], "changes that were seen and the kernel did not count")

    def _check(self, kernel: tuple[int, int]) -> None:
        wrong = [
            not base.look(count, known)
            for base, count, known in zip(self._bases, kernel, self._recorded, strict=True)
        ]
        self._decay(wrong[0], wrong[1], _UNSEEN)

    def _decay(self, writes: bool, discards: bool, why: str) -> None:
        if writes and discards:
            self._forget(why)
        else:
            self.history.decay(writes, discards, why, time.monotonic_ns())

    def state(self) -> Look:
        """Return the provable statements about the current map."""
        written, discarded = self._bases
        return Look(
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
        )

    def save(self) -> None:
        """Save changes, at most once per second, or rewrite the file if necessary."""
        if not self._settled:
            return
        self._file.finish_replacing()
        look = self.state()
        map_, runs = self.history.map, self.history.map.log or []
        last = self._last
        if last and not runs and _alike(last, look):
            return
        if last and look.mono_ns - last.mono_ns < _SAVE_S * 1e9:
            return
        if not self._file.is_as_written or not map_.log_is_whole:
            self._save_anew()
            return
        self._file.append(journal.delta(look, runs))
        self._last, map_.log = look, []
        if self._file.has_grown and not self._file.is_replacing:
            # A thread writes from a copy, because the ring fills while a large map is written.
            self._file.begin_replacing(journal.snapshot_frames(self.drive, look, map_.copy()))

    def _save_anew(self) -> None:
        disturbed = not self._file.is_as_written
        if not self._file.is_here:
            # The path may now name another process's file.
            self._file.close()
            self._file = self._open(self._file.path)
        self._last = self.state()
        self._file.replace(journal.snapshot_frames(self.drive, self._last, self.history.map))
        self.history.map.log, self.history.map.log_is_whole = [], True
        if disturbed and not self.was_disturbed:
            self.was_disturbed = True
            self._tell(
                f"{self._file.path} was deleted, replaced or cut by somebody: all of it is written anew"
            )

    def missed_runs(self) -> int:
        """Return the program runs skipped by the kernel because of another run on the same CPU."""
        return sum(program[4] for program in self._tracer.programs())

    def close(self) -> None:
        """Save all known changes and detach."""
        try:
            if self._presence.holds() and self.look() and self._settled:
                self._save_anew()
        finally:
            self._tracer.close()
            self._counts.close()
            self._presence.close()
            self._file.close()


def _alike(one: Look, two: Look) -> bool:
    """Return whether both make the same statements about the map."""
    return (one.written, one.discarded, one.written_slack, one.discarded_slack, one.forgotten) == (
        two.written,
        two.discarded,
        two.written_slack,
        two.discarded_slack,
        two.forgotten,
    )
