"""Run mixed I/O in an unnamed file, and collect the kernel's counts of the devices below."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from opwatch.errors import RefusedError, Unsupported, UsageError
from opwatch.foreign import parse_all_unsigned
from opwatch.host.device import BlockDevice, Devices
from opwatch.load.sysbench import FIO
from opwatch.samples.measurement_run import ProgressSink
from opwatch.scenarios.mixed import MemberCount, MixConfiguration, MixLoad, MixRate, MixSetup
from opwatch.tools.acting.scenarios.unnamed_file import (
    FileLoad,
    create_unnamed_file,
    fill_file,
    read_filesystem_mark,
    run_load,
)
from opwatch.tools.acting.sweep.bench import SweepClock

_MIB, _SECTOR = 1 << 20, 512
_MIN_BYTES = 8 * _MIB


@dataclass(frozen=True, slots=True)
class MixPlace:
    """Folder for the load: the file system's device, and the disks that do the I/O."""

    configuration: MixConfiguration
    members: tuple[BlockDevice, ...]
    # Identifies the file system.
    mark: str

    def with_file(self, n_bytes: int) -> MixPlace:
        """Return the place with the earlier file size, or raise RefusedError if there is no room."""
        one = self.configuration
        space = os.statvfs(one.folder)
        if n_bytes > space.f_bavail * space.f_frsize:
            raise RefusedError(
                f"--on {one.name}={one.folder}: a file of {n_bytes} bytes no longer fits there: free "
                "some space, or start again"
            )
        return replace(self, configuration=replace(one, file_bytes=n_bytes))


def make_mix_place(devices: Devices, name: str, folder: Path, setup: MixSetup) -> MixPlace:
    """Inspect a folder and refuse unsafe ones. Writes nothing."""
    try:
        status, space = folder.stat(), os.statvfs(folder)
    except OSError as error:
        raise UsageError(f"--on {name}={folder}: {error.strerror}") from error
    if status.st_dev == Path("/").stat().st_dev:
        raise RefusedError(
            f"--on {name}={folder}: it is on the root filesystem, which this would fill; use a "
            "dedicated filesystem"
        )
    device = devices.by_number(os.major(status.st_dev), os.minor(status.st_dev))
    if device is None:
        raise Unsupported(
            f"--on {name}={folder}: its filesystem has no block device of its own (tmpfs, overlay, btrfs)"
        )
    whole = space.f_bavail * space.f_frsize * setup.space_percent // 100 // _MIB * _MIB
    if whole < _MIN_BYTES:
        raise RefusedError(
            f"--on {name}={folder}: {setup.space_percent} % of its free space is {whole} bytes; at "
            f"least {_MIN_BYTES} are needed"
        )
    members = tuple(leaf.device for leaf in devices.find_leaves(device))
    one = MixConfiguration(name, str(folder), device.name, device.read_kind(), whole)
    return MixPlace(one, members, read_filesystem_mark(folder))


def read_member_count(device: BlockDevice) -> MemberCount | None:
    """Return the kernel's counts of a device, or None if the kernel does not count."""
    if device.disk.is_request_based and device.disk.read_number("queue/iostats") == 0:
        return None
    fields = parse_all_unsigned((device.read_attribute("stat") or "").split())
    if fields is None or len(fields) < 11:
        return None
    return MemberCount(
        fields[0],
        fields[4],
        fields[2] * _SECTOR,
        fields[6] * _SECTOR,
        busy_ms=fields[3] + fields[7],
        active_ms=fields[9],
    )


def run_mix(
    place: MixPlace,
    loads: Sequence[MixLoad],
    setup: MixSetup,
    time: SweepClock,
    talk: ProgressSink,
    *,
    done: Sequence[MixRate] = (),
    keep: Callable[[MixRate], None] = lambda _: None,
    loader: str = FIO,
) -> MixConfiguration:
    """Fill the file and run the loads that are not done. Passes each result to `keep`."""
    one = place.configuration
    rates = list(done)
    if len(rates) == len(loads):
        return replace(one, rates=tuple(rates))
    with create_unnamed_file(one.folder, one.file_bytes) as path:
        talk.show_progress(f"{one.name}: filling {one.file_bytes} bytes")
        fill_file(path, one.file_bytes, setup.threads, time)
        for place_of_load, load in list(enumerate(loads, 1))[len(done) :]:
            talk.show_progress(f"{one.name}: {load.name} ({place_of_load} of {len(loads)})")
            before = {member.name: read_member_count(member) for member in place.members}
            threads = load.threads or setup.threads
            order = FileLoad(path, one.file_bytes, load, threads, place_of_load, seconds=setup.run_s)
            rate = run_load(order, loader, time)
            counts = {member.name: read_member_count(member) for member in place.members}
            grown = {name: _diff_counts(now, before.get(name)) for name, now in counts.items()}
            rates.append(replace(rate, members=grown))
            keep(rates[-1])
    return replace(one, rates=tuple(rates))


def _diff_counts(now: MemberCount | None, then: MemberCount | None) -> MemberCount | None:
    return None if now is None or then is None else now.subtract(then)
