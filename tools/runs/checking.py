"""A check of trims: find filesystems and devices, read their facts, and predict what a trim does."""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from opwatch.collectors.check.fstrim_timer import read_schedule
from opwatch.collectors.check.open_files import find_deleted_files
from opwatch.collectors.space.backing import read_backing_map
from opwatch.collectors.space.ext4 import read_groups
from opwatch.collectors.space.free_space import read_free_space
from opwatch.collectors.space.mount_handle import open_reference
from opwatch.collectors.stack.layers import LayerReader
from opwatch.errors import OpwatchError, UsageError
from opwatch.host.device import BlockDevice, Devices
from opwatch.host.mountspaces import MountedIn, find_foreign_mounts, survey_disk
from opwatch.host.usage import Mount, Usage, find_mount, read_usage
from opwatch.sinks.trim_check import CheckResult
from opwatch.sinks.unseen import Unseen
from opwatch.trim.check.deleted import DeletedFile, DeletedFiles
from opwatch.trim.check.prediction import FreeExtents, predict_trim
from opwatch.trim.check.schedule import Schedule, find_entry, find_schedule_reasons
from opwatch.trim.filesystems.kinds import find_filesystem
from opwatch.trim.space.extents import Extents
from opwatch.trim.stack.causes import Reason, make_reason
from opwatch.trim.stack.layers import Kind, Stack
from opwatch.units import format_size

# Read-only filesystems, which have no free space.
_READ_ONLY_KINDS = ("squashfs", "iso9660", "udf", "erofs", "cramfs", "romfs")


@dataclass(frozen=True, slots=True)
class CheckSubject:
    """A mount to check, or an unmounted device. `asked` is the user's path if different from the mount
    point."""

    mount: Mount | None = None
    device: BlockDevice | None = None
    asked: str | None = None


class CheckRun:
    """One run of the command."""

    def __init__(
        self,
        minimum_bytes: int,
        devices: Devices | None = None,
        usage: Usage | None = None,
        schedule: Schedule | None = None,
    ) -> None:
        self.minimum_bytes = minimum_bytes
        self.devices = devices or Devices()
        self.usage = usage or read_usage()
        self.schedule = schedule or read_schedule()
        self.reader = LayerReader(self.devices, self.usage)
        self._disks: dict[str, bool] = {}

    @functools.cached_property
    def deleted_files(self) -> DeletedFiles:
        """Return the deleted files that are open. Searched once, and only if a filesystem is checked."""
        return find_deleted_files()

    def find_all(self) -> Iterator[CheckSubject]:
        """Yield each visible filesystem on a block device once."""
        # The last mount on a point hides the earlier ones. Machines may have 10,000 mounts.
        visible = {mount.point: mount for mount in self.usage.mounts}
        passed: set[tuple[str, str]] = set()
        for mount in self.usage.mounts:
            key = (mount.dev, mount.source)
            if key in passed or visible[mount.point] != mount:
                continue
            if not mount.dev.startswith("0:") or mount.filesystem == "zfs" or self._is_disk(mount.source):
                passed.add(key)
                if mount.filesystem not in _READ_ONLY_KINDS:
                    yield CheckSubject(mount)

    def find_unseen(self, devices: Sequence[str], *, everywhere: bool) -> Unseen:
        """Return the places closed to the check.

        Filesystems mounted only in other mount namespaces are included if on the given devices, or all with
        `everywhere`.
        """
        unseen = list(self.deleted_files.unseen)
        mounts: dict[str, MountedIn] = {}
        own = {mount.dev for mount in self.usage.mounts}
        surveys = [find_foreign_mounts(self.usage.mounts)] if everywhere else []
        surveys += [survey_disk(self.devices.resolve(text), self.devices) for text in devices]
        for survey in surveys:
            unseen += survey.unseen
            for candidate in survey.mounts:
                if candidate.mount.dev not in own and candidate.mount.filesystem not in _READ_ONLY_KINDS:
                    mounts.setdefault(candidate.mount.dev, candidate)
        return Unseen(tuple(mounts.values()), tuple(dict.fromkeys(unseen)))

    def _is_disk(self, source: str) -> bool:
        """Return whether a mount's source is a block device. Each source is resolved once."""
        if source not in self._disks:
            self._disks[source] = self._is_block_source(source)
        return self._disks[source]

    def _is_block_source(self, source: str) -> bool:
        """Return whether a mount's source is a block device, which /dev/fuse is not."""
        if not source.startswith("/dev/"):
            return False
        try:
            self.devices.resolve(source.partition(":")[0])
        except UsageError:
            return False
        return True

    def find_by_path(self, text: str) -> Iterator[CheckSubject]:
        """Yield the filesystem that holds a path, or the device if the path is a device."""
        try:
            status = Path(text).stat()
        except OSError as error:
            raise UsageError(f"{text}: {error.strerror}") from error
        if stat.S_ISBLK(status.st_mode):
            yield from self.find_on_device(text)
            return
        if not stat.S_ISDIR(status.st_mode) and not stat.S_ISREG(status.st_mode):
            raise UsageError(
                f"{text} is neither a block device, a file nor a folder; opwatch devices lists disks"
            )
        real = os.path.realpath(text)
        mount = find_mount(real, self.usage.mounts)
        if mount is None:
            raise UsageError(f"{text}: no mount in /proc/self/mountinfo contains it")
        yield CheckSubject(mount, asked=None if mount.point == real else text)

    def find_on_device(self, text: str) -> Iterator[CheckSubject]:
        """Yield every filesystem on a device, or the device alone if it has none."""
        device = self.devices.resolve(text)
        if not device.size_bytes:
            raise UsageError(f"{device.name} has no medium (its size is 0)")
        any_mount = False
        for subject in self.find_all():
            assert subject.mount
            if self.reader.read_mount(subject.mount).find_layer(device.name):
                any_mount = True
                yield subject
        if not any_mount:
            yield CheckSubject(device=device)

    def check_subject(self, subject: CheckSubject) -> CheckResult:
        if not subject.mount:
            assert subject.device
            stack = self.reader.read_device(subject.device)
            return CheckResult(stack, predict_trim(stack), ())
        mount = subject.mount
        stack = self.reader.read_mount(mount)
        wanted = find_entry(mount.point, self.schedule.fstab)
        outlook = predict_trim(
            stack,
            measure_free_space(mount, stack, self.deleted_files.files),
            minimum_bytes=self.minimum_bytes,
            fstab_options=wanted.options if wanted else (),
        )
        return CheckResult(
            stack, outlook, (*_find_misplaced(subject), *find_schedule_reasons(stack, self.schedule))
        )


def _find_misplaced(subject: CheckSubject) -> list[Reason]:
    if not subject.asked or not subject.mount:
        return []
    at = subject.mount.point
    return [make_reason("not-a-mount-point", subject.asked, f"{subject.asked} is a folder in {at}", mount=at)]


def sum_deleted_files(dev: int, deleted: Sequence[DeletedFile]) -> tuple[int, str] | None:
    """Return (bytes, description) of a filesystem's deleted but open files, or None. `dev` is the
    filesystem's st_dev."""
    open_ones = sorted((file for file in deleted if file.dev == dev), key=lambda file: -file.bytes)
    total = sum(file.bytes for file in open_ones)
    if not total:
        return None
    largest = open_ones[0]
    files = f"{len(open_ones)} deleted files are" if len(open_ones) > 1 else "a deleted file is"
    most = f"{format_size(largest.bytes)} of it by" if len(open_ones) > 1 else "by"
    return total, f"{format_size(total)}: {files} still open, {most} {largest.comm} (process {largest.pid})"


def measure_free_space(mount: Mount, stack: Stack, deleted: Sequence[DeletedFile] = ()) -> FreeExtents:
    """Return the free extents of a mount, as far as readable.

    Reads through a reference to the inspected mount, because another mount may now be at the same mount
    point.
    """
    try:
        with open_reference(mount) as place:
            return _read_space(place, mount, stack, deleted)
    except OpwatchError as error:
        return FreeExtents(why_not=str(error))


def _read_space(place: int, mount: Mount, stack: Stack, deleted: Sequence[DeletedFile]) -> FreeExtents:
    try:
        status = os.fstatvfs(place)
        free = status.f_bfree * status.f_frsize
    except OSError:
        free = None
    if not stack.find_tops():
        return FreeExtents(why_not="it is not on a block device", free_bytes=free)
    open_files = sum_deleted_files(os.fstat(place).st_dev, deleted)
    try:
        space = read_free_space(mount)
    except OpwatchError as error:
        return FreeExtents(why_not=str(error), free_bytes=free, deleted=open_files)
    extents = {f"{major}:{minor}": part for (major, minor), part in space.extents.items()}
    has_groups = find_filesystem(mount.filesystem).has_block_groups
    cuts = read_groups(mount, space.block_bytes) if has_groups else None
    return FreeExtents(
        extents,
        notes=space.notes,
        free_bytes=free,
        cuts=cuts,
        deleted=open_files,
        shared=_find_shared_extents(stack),
    )


def _find_shared_extents(stack: Stack) -> dict[str, Extents]:
    """Return the shared extents of the backing files of loop devices, as far as they are visible."""
    devices = (Devices().by_name(leaf.device) for leaf in stack.find_leaves() if leaf.kind is Kind.LOOP)
    maps = {device.name: read_backing_map(device) for device in devices if device}
    return {name: file.shared for name, file in maps.items() if file}
