"""Run mixed I/O in an unnamed file, and collect the kernel's counts of the devices below."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from opwatch.collectors.scenarios.nameless import (
    FILL_WORDS,
    fio_to_its_end,
    mark_of,
    nameless,
    sysbench_to_its_end,
    words_for,
)
from opwatch.collectors.sweep.bench import SweepTime
from opwatch.errors import OpwatchError, RefusedError, Unsupported, UsageError
from opwatch.foreign import numbers
from opwatch.host.device import BlockDevice, Devices
from opwatch.load.plain import PlainLoad
from opwatch.load.sysbench import FIO, SYSBENCH, sysbench_words
from opwatch.samples.course import Talk
from opwatch.scenarios.mixed import MemberCount, MixConfiguration, MixLoad, MixRate, MixSetup

_MIB, _SECTOR = 1 << 20, 512
_LEAST_BYTES = 8 * _MIB


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
                f"--on {one.name}={one.folder}: a file of {n_bytes} bytes has no room there any more: make "
                "room, or begin anew"
            )
        return replace(self, configuration=replace(one, file_bytes=n_bytes))


def mix_place(devices: Devices, name: str, folder: Path, setup: MixSetup) -> MixPlace:
    """Inspect a folder and refuse unsafe ones. Writes nothing."""
    try:
        status, space = folder.stat(), os.statvfs(folder)
    except OSError as error:
        raise UsageError(f"--on {name}={folder}: {error.strerror}") from error
    if status.st_dev == Path("/").stat().st_dev:
        raise RefusedError(
            f"--on {name}={folder}: it is on the root file system, which would be full meanwhile; take one "
            "that is for this alone"
        )
    device = devices.by_number(os.major(status.st_dev), os.minor(status.st_dev))
    if device is None:
        raise Unsupported(
            f"--on {name}={folder}: its file system is on no block device of its own (tmpfs, overlay, btrfs)"
        )
    whole = space.f_bavail * space.f_frsize * setup.space_percent // 100 // _MIB * _MIB
    if whole < _LEAST_BYTES:
        raise RefusedError(
            f"--on {name}={folder}: {setup.space_percent} % of what it has free are {whole} bytes, and less "
            f"than {_LEAST_BYTES} tell nothing"
        )
    members = tuple(leaf.device for leaf in devices.leaves(device))
    one = MixConfiguration(name, str(folder), device.name, device.kind(), whole)
    return MixPlace(one, members, mark_of(folder))


def member_count(device: BlockDevice) -> MemberCount | None:
    """Return the kernel's counts of a device, or None if the kernel does not count."""
    if device.disk.is_request_based and device.disk.number("queue/iostats") == 0:
        return None
    fields = numbers((device.attribute("stat") or "").split())
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
    time: SweepTime,
    talk: Talk,
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
    with nameless(one.folder, one.file_bytes) as path:
        talk.show(f"{one.name}: fill {one.file_bytes} bytes")
        # Unwritten blocks have no data, so reads of them would not reach a drive.
        fio_to_its_end([*FILL_WORDS, *words_for(path, one.file_bytes, setup.threads)], time)
        for place_of_load, load in list(enumerate(loads, 1))[len(done) :]:
            talk.show(f"{one.name}: {load.name} ({place_of_load} of {len(loads)})")
            before = {member.name: member_count(member) for member in place.members}
            by = _by_sysbench if loader == SYSBENCH else _by_fio
            rate = by(path, one.file_bytes, load, setup, place_of_load, time)
            counts = {member.name: member_count(member) for member in place.members}
            grown = {name: _grown(now, before.get(name)) for name, now in counts.items()}
            rates.append(replace(rate, members=grown))
            keep(rates[-1])
    return replace(one, rates=tuple(rates))


def _by_fio(path: str, n_bytes: int, load: MixLoad, setup: MixSetup, seed: int, time: SweepTime) -> MixRate:
    """Run the load with fio and return its result without members."""
    common = words_for(path, n_bytes, load.threads or setup.threads)
    words = ["--name=load", *common, *load.words(), "--time_based", f"--runtime={setup.run_s:g}"]
    run = fio_to_its_end([*words, f"--randseed={seed}"], time)
    if run.report is None:
        raise OpwatchError(f"{load.name}: fio wrote no report")
    total = run.report.total
    return MixRate(
        load=load,
        reads=total.requests["read"],
        writes=total.requests["write"],
        moved_bytes=total.bytes["read"] + total.bytes["write"],
        seconds=total.seconds,
        mean_ns=run.report.mean_ns,
        cpu_ratio=run.cpu_s / ((run.end_ns - run.begin_ns) / 1e9),
        members={},
    )


def _by_sysbench(
    path: str, n_bytes: int, load: MixLoad, setup: MixSetup, seed: int, time: SweepTime
) -> MixRate:
    """Run the load with sysbench, whose threads have one I/O outstanding each."""
    words = sysbench_words(
        PlainLoad(load.name, load.rdpct, load.seekpct, load.xfersize),
        n_bytes,
        load.threads or setup.threads,
        seed,
        seconds=setup.run_s,
    )
    result, cpu_ratio = sysbench_to_its_end(words, path, time)
    return MixRate(
        load=load,
        reads=result.reads,
        writes=result.writes,
        moved_bytes=(result.reads + result.writes) * load.xfersize,
        seconds=result.seconds,
        mean_ns=result.mean_ns,
        cpu_ratio=cpu_ratio,
        members={},
    )


def _grown(now: MemberCount | None, then: MemberCount | None) -> MemberCount | None:
    return None if now is None or then is None else now.since(then)
