"""`opwatch trim check`: predict the result of a trim of each filesystem without doing it."""

from __future__ import annotations

import argparse
import functools
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opwatch import SCHEMA
from opwatch.collectors.check.fstrim_timer import read_schedule
from opwatch.collectors.check.open_files import deleted_files
from opwatch.collectors.space.backing import map_of
from opwatch.collectors.space.ext4 import read_groups
from opwatch.collectors.space.free_space import read_free_space
from opwatch.collectors.space.mount_handle import referred
from opwatch.collectors.stack.layers import LayerReader
from opwatch.errors import OpwatchError, UsageError
from opwatch.host.device import BlockDevice, Devices
from opwatch.host.mountspaces import MountedIn, elsewhere, survey_of
from opwatch.host.usage import Mount, Usage, mount_of, read_usage
from opwatch.sinks.terminal import data
from opwatch.sinks.trim_check import Checked, document, headline, lines, schedule_document, schedule_lines
from opwatch.sinks.unseen import Unseen, unseen_document, unseen_lines
from opwatch.tools.arguments import byte_size
from opwatch.trim.check.deleted import DeletedFile, DeletedFiles
from opwatch.trim.check.forecast import Outlook, Space, forecast
from opwatch.trim.check.schedule import Schedule, entry_of, schedule_reasons
from opwatch.trim.space.extents import Extents
from opwatch.trim.stack.causes import Reason, reason
from opwatch.trim.stack.layers import Kind, Stack
from opwatch.units import size

# Exit statuses of fstrim(8) for several filesystems.
ALL, NONE, SOME = 0, 32, 64
# Read-only filesystems, which have no free space.
_IMAGES = ("squashfs", "iso9660", "udf", "erofs", "cramfs", "romfs")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch trim check [MOUNT... | --dev D | --all] [-m SIZE] [-q | --json]"
    parser.add_argument("paths", nargs="*", metavar="MOUNT", help="a mount point, or a path on a filesystem")
    parser.add_argument(
        "--dev", metavar="D", action="append", default=[], help="every filesystem on this device, or itself"
    )
    parser.add_argument("-a", "--all", action="store_true", help="every filesystem on a disk (the default)")
    parser.add_argument(
        "-m",
        "--minimum",
        type=byte_size,
        metavar="SIZE",
        default=0,
        help="as fstrim's: leave out shorter free extents",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("-q", "--quiet", action="store_true", help="only a line for each filesystem")
    form.add_argument("--json", action="store_true", help='one document, "schema":"opwatch/1"')


@dataclass(frozen=True, slots=True)
class _Subject:
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
    def deleted(self) -> DeletedFiles:
        """Return the deleted files that are open. Searched once, and only if a filesystem is checked."""
        return deleted_files()

    def everything(self) -> Iterator[_Subject]:
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
                if mount.filesystem not in _IMAGES:
                    yield _Subject(mount)

    def out_of_sight(self, devices: Sequence[str], *, everywhere: bool) -> Unseen:
        """Return the places closed to the check.

        Filesystems mounted only in other mount namespaces are included if on the given devices, or all with
        `everywhere`.
        """
        unseen = list(self.deleted.unseen)
        mounts: dict[str, MountedIn] = {}
        own = {mount.dev for mount in self.usage.mounts}
        surveys = [elsewhere(self.usage.mounts)] if everywhere else []
        surveys += [survey_of(self.devices.resolve(text), self.devices) for text in devices]
        for survey in surveys:
            unseen += survey.unseen
            for candidate in survey.mounts:
                if candidate.mount.dev not in own and candidate.mount.filesystem not in _IMAGES:
                    mounts.setdefault(candidate.mount.dev, candidate)
        return Unseen(tuple(mounts.values()), tuple(dict.fromkeys(unseen)))

    def _is_disk(self, source: str) -> bool:
        """Return whether a mount's source is a block device. Each source is resolved once."""
        if source not in self._disks:
            self._disks[source] = self._resolves(source)
        return self._disks[source]

    def _resolves(self, source: str) -> bool:
        """Return whether a mount's source is a block device, which /dev/fuse is not."""
        if not source.startswith("/dev/"):
            return False
        try:
            self.devices.resolve(source.partition(":")[0])
        except UsageError:
            return False
        return True

    def path(self, text: str) -> Iterator[_Subject]:
        """Yield the filesystem that holds a path, or the device if the path is a device."""
        try:
            status = Path(text).stat()
        except OSError as error:
            raise UsageError(f"{text}: {error.strerror}") from error
        if stat.S_ISBLK(status.st_mode):
            yield from self.device(text)
            return
        if not stat.S_ISDIR(status.st_mode) and not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{text} is no block device, and no file or folder; opwatch devices lists disks")
        real = os.path.realpath(text)
        mount = mount_of(real, self.usage.mounts)
        if mount is None:
            raise UsageError(f"{text}: no mount in /proc/self/mountinfo holds it")
        yield _Subject(mount, asked=None if mount.point == real else text)

    def device(self, text: str) -> Iterator[_Subject]:
        """Yield every filesystem on a device, or the device alone if it has none."""
        device = self.devices.resolve(text)
        if not device.size_bytes:
            raise UsageError(f"{device.name} has no medium (its size is 0)")
        any_mount = False
        for subject in self.everything():
            assert subject.mount
            if self.reader.mount(subject.mount).layer(device.name):
                any_mount = True
                yield subject
        if not any_mount:
            yield _Subject(device=device)

    def check(self, subject: _Subject) -> Checked:
        if not subject.mount:
            assert subject.device
            stack = self.reader.device(subject.device)
            return Checked(stack, forecast(stack), ())
        mount = subject.mount
        stack = self.reader.mount(mount)
        wanted = entry_of(mount.point, self.schedule.fstab)
        outlook = forecast(
            stack,
            free_space(mount, stack, self.deleted.files),
            minimum_bytes=self.minimum_bytes,
            fstab_options=wanted.options if wanted else (),
        )
        return Checked(stack, outlook, (*_misplaced(subject), *schedule_reasons(stack, self.schedule)))


def _misplaced(subject: _Subject) -> list[Reason]:
    if not subject.asked or not subject.mount:
        return []
    at = subject.mount.point
    return [reason("not-a-mount-point", subject.asked, f"{subject.asked} is a folder of {at}", mount=at)]


def held_open(dev: int, deleted: Sequence[DeletedFile]) -> tuple[int, str] | None:
    """Return (bytes, description) of a filesystem's deleted but open files, or None. `dev` is the
    filesystem's st_dev."""
    open_ones = sorted((file for file in deleted if file.dev == dev), key=lambda file: -file.bytes)
    total = sum(file.bytes for file in open_ones)
    if not total:
        return None
    largest = open_ones[0]
    files = f"{len(open_ones)} deleted files are" if len(open_ones) > 1 else "a deleted file is"
    most = f"{size(largest.bytes)} of it by" if len(open_ones) > 1 else "by"
    return total, f"{size(total)}: {files} still open, {most} {largest.comm} (process {largest.pid})"


def free_space(mount: Mount, stack: Stack, deleted: Sequence[DeletedFile] = ()) -> Space:
    """Return the free extents of a mount, as far as readable.

    Reads through a reference to the inspected mount, because another mount may now be at the same mount
    point.
    """
    try:
        with referred(mount) as place:
            return _space_of(place, mount, stack, deleted)
    except OpwatchError as error:
        return Space(why_not=str(error))


def _space_of(place: int, mount: Mount, stack: Stack, deleted: Sequence[DeletedFile]) -> Space:
    try:
        status = os.fstatvfs(place)
        free = status.f_bfree * status.f_frsize
    except OSError:
        free = None
    if not stack.tops():
        return Space(why_not="it is on no block device", free_bytes=free)
    open_files = held_open(os.fstat(place).st_dev, deleted)
    try:
        space = read_free_space(mount)
    except OpwatchError as error:
        return Space(why_not=str(error), free_bytes=free, deleted=open_files)
    extents = {f"{major}:{minor}": part for (major, minor), part in space.extents.items()}
    cuts = read_groups(mount, space.block_bytes) if mount.filesystem in ("ext2", "ext3", "ext4") else None
    return Space(
        extents,
        notes=space.notes,
        free_bytes=free,
        cuts=cuts,
        deleted=open_files,
        shared=_shared_files(stack),
    )


def _shared_files(stack: Stack) -> dict[str, Extents]:
    """Return the shared extents of the backing files of loop devices, as far as they are visible."""
    devices = (Devices().by_name(leaf.device) for leaf in stack.leaves() if leaf.kind is Kind.LOOP)
    maps = {device.name: map_of(device) for device in devices if device}
    return {name: file.shared for name, file in maps.items() if file}


def exit_status(outlooks: list[Outlook]) -> int:
    """Return 0 if all trims get through as far as known, 32 if none does, else 64."""
    if all(outlook is Outlook.REACHES for outlook in outlooks):
        return ALL
    return NONE if all(outlook is Outlook.NOTHING for outlook in outlooks) else SOME


def _subjects(run: CheckRun, args: argparse.Namespace) -> list[_Subject]:
    if args.all and (args.paths or args.dev):
        raise UsageError("--all takes no mount and no --dev beside it")
    if not args.paths and not args.dev:
        return list(run.everything())
    subjects = [subject for text in args.paths for subject in run.path(text)]
    subjects += [subject for text in args.dev for subject in run.device(text)]
    return list(dict.fromkeys(subjects))


def run(args: argparse.Namespace) -> int:
    work = CheckRun(args.minimum)
    subjects = _subjects(work, args)
    if not subjects:
        raise UsageError("no filesystem on a block device is mounted here; name one, or use --dev")
    checks = [work.check(subject) for subject in subjects]
    status = exit_status([check.forecast.outlook for check in checks])
    if args.quiet:
        data().lines(headline(check) for check in checks)
        return status
    unseen = work.out_of_sight(args.dev, everywhere=not args.paths and not args.dev)
    if args.json:
        body: dict[str, Any] = {"schema": SCHEMA, "checks": [document(check) for check in checks]}
        body |= {"schedule": schedule_document(work.schedule), "exit_status": status}
        body |= unseen_document(unseen)
        data().json(body, indent=2)
        return status
    for check in checks:
        data().lines([*lines(check), ""])
    data().lines([*schedule_lines(work.schedule), *unseen_lines(unseen)])
    return status
