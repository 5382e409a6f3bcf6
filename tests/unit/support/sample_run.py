"""A run with every kind of entry: two disks from the start, drive readings, discards, a disk that appears, a
disk that leaves, a disk that cannot be watched, and an end."""

from __future__ import annotations

from datetime import UTC, datetime

from opwatch.clock import Anchor
from opwatch.samples.entries import (
    CountersRead,
    DiskAdded,
    DiskRemoved,
    EventReported,
    IntervalEnded,
    ProgramsSkipped,
    RunEnded,
    RunEntry,
)
from opwatch.samples.observation import Arrival, Event, Leaving
from opwatch.samples.sample import DiskSample, WatchedDisk
from opwatch.trace.stat import StatSample
from opwatch.trace.trust import Reading
from opwatch.trim.audit.flow import Amount, DiscardLoss, Flow, Origin, SenderKind, Stage, Trace
from opwatch.trim.audit.live import DiscardSample, extract_sample
from tests.unit.support.drive_readings import read_drive
from tests.unit.support.samples import Op, make_sample
from tests.unit.support.virtual_drive import OCP, VirtualDrive

S = 10**9
WALL = 1_760_000_000 * S


def make_disk_sample(
    device: str, at_s: int, reads: int, writes: int = 0, *, misses: int | None = 0
) -> DiskSample:
    """Return a sample of a disk with these requests since the start, by our count and the kernel's."""
    ops = {
        "read": Op([17_000 + 31 * number for number in range(reads)], [4096] * reads),
        "write": Op([90_000] * writes, [8192] * writes, queue_ns=[700] * writes),
    }
    requests = {"read": reads, "write": writes, "flush": 0, "discard": 0}
    sizes = {"read": 4096 * reads, "write": 8192 * writes, "discard": 0}
    before, after = (StatSample(at_s * S + ns, at_s * S + ns + 5, requests, sizes, 0) for ns in (-20, 20))
    disk = WatchedDisk(device, "dm-0" if device == "sdb" else device, "requests by hand", "fake", (), 1, 1)
    anchor = Anchor(at_s * S, WALL + at_s * S, 40)
    return DiskSample(disk, Reading(make_sample(at_s * S, **ops), before, after), misses, anchor)


def make_discard_sample(disk: str, bios: int) -> DiscardSample:
    """Return a sample of a disk with this many discards by fstrim."""
    amount = Amount(bios, bios << 20, bios, bios << 20, 50_000 * bios, 70_000)
    stages = (Stage.BIO, Stage.ISSUED, Stage.DONE, Stage.BIO_DONE)
    flows = tuple(Flow(disk, "259:0", stage, "discard", SenderKind.OTHER, 0, amount) for stage in stages)
    origin = Origin(
        disk=disk,
        dev="259:0",
        comm="fstrim",
        cgroup=77,
        op="discard",
        who=SenderKind.OTHER,
        count=bios,
        bytes=bios << 20,
        min_bytes=1 << 20,
        max_bytes=1 << 20,
        below_granule=0,
    )
    trace = Trace(
        flows=flows,
        origins=(origin,) if bios else (),
        absent=frozenset({"discard_xfs"}),
        loss=DiscardLoss(unmatched=bios // 3),
        stats={disk: (bios + 1, bios << 20)},
    )
    names = {77: "/system.slice/fstrim.service"}
    return extract_sample(trace, disk, None, names, {"259:0": "ext4 /srv"}, is_chained=True)


def get_wall_time(at_s: int) -> datetime:
    return datetime.fromtimestamp((WALL + at_s * S) / 1e9, UTC)


def make_sample_run(*, ticks: int = 4, seed: int = 5) -> list[RunEntry]:
    """Return the same run for the same arguments. Intervals last a second, and the drive is read in each."""
    drive = VirtualDrive(OCP, seed)
    drive.rate = 100e6
    nvme, late = "nvme0n1", 2
    run: list[RunEntry] = [
        DiskAdded(0, make_disk_sample(nvme, 1, 0), drive=nvme, discards=make_discard_sample(nvme, 0)),
        DiskAdded(1, make_disk_sample("sdb", 1, 5, 2)),
    ]
    for tick in range(1, ticks + 1):
        at_s = 1 + tick
        run.append(CountersRead(read_drive(drive, ("nvme0n1 1 2",), disk=nvme)))
        drive.advance_time(1)
        samples = {0: make_disk_sample(nvme, at_s, 97 * tick, 11 * tick, misses=tick)}
        samples[late if tick > 2 else 1] = make_disk_sample("sdc" if tick > 2 else "sdb", at_s, 5 * tick, 2)
        run.append(IntervalEnded(samples, {0: make_discard_sample(nvme, 7 * tick)}))
        if tick == 2:
            arrival = Arrival(
                get_wall_time(at_s), at_s * S, S, {"read": 3, "write": 0}, {"read": 12288, "write": 0}
            )
            refused = Event(
                "not_watched", "sdy", "sdy", get_wall_time(at_s), at_s * S, "sdy came: no room for it"
            )
            leaving = Leaving(get_wall_time(at_s), at_s * S, "unused", "a doubt")
            run += [
                ProgramsSkipped(at_s * S),
                DiskRemoved(1, make_disk_sample("sdb", at_s, 13, 2), leaving, "sdb no longer does I/O"),
                DiskAdded(
                    late,
                    make_disk_sample("sdc", at_s, 8, 2),
                    arrival=arrival,
                    text="sdc has come; 3 reads unseen",
                ),
                EventReported(refused),
            ]
    at_s = ticks + 2
    gone = Leaving(get_wall_time(at_s), at_s * S, "gone")
    last = {0: make_disk_sample(nvme, at_s, 997, 153), late: make_disk_sample("sdc", at_s, 50, 2)}
    run.append(CountersRead(read_drive(drive, ("nvme0n1 1 2",), disk=nvme)))
    ended = RunEnded(last, {0: make_discard_sample(nvme, 7 * ticks + 3)}, {late: gone}, with_rest=True)
    return [*run, ended]
