"""The plan of a simulated fleet: hosts, models, disks, and the faults that are injected.

A plan depends on its seed and its sizes alone, so that two runs simulate the same fleet. The plan is also the
truth: each fault says which disk it affects, when it begins, and how strong it is.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

DAY_S = 86_400
HOUR_S = 3_600


class FaultKind(StrEnum):
    """What is wrong with a disk, or with the numbers about it."""

    SLOW = "slow"
    WAF_JUMP = "waf_jump"
    LOST_TRIMS = "lost_trims"
    BLOCKED_TRIMS = "blocked_trims"
    UNTRUSTED = "untrusted"
    UNEXPLAINED = "unexplained"
    WRONG_UNIT = "wrong_unit"
    UNREADABLE = "unreadable"
    SPARE_FALLS = "spare_falls"
    WEARS_OUT = "wears_out"


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """A fault from `begin_s` on. `factor` multiplies the latency, the write amplification or the wear."""

    kind: FaultKind
    begin_s: float
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class DriveModel:
    """Values that all drives of a model share.

    `media_quantum_bytes` is None if the drive does not count its writes to NAND. `media_every_s` is the
    interval at which the firmware updates that count. `life_bytes` are the NAND writes of the rated life.
    """

    name: str
    firmware: str
    capacity_bytes: int
    read_ns: int
    write_ns: int
    max_iops: float
    host_quantum_bytes: int
    media_quantum_bytes: int | None
    media_every_s: int
    waf: float
    life_bytes: float
    spare_threshold: float = 0.10


MODELS = (
    DriveModel(
        *("EXAMPLE DC-1 1.92TB", "1.0.4", 1_920_383_410_176, 84_000, 17_000, 90_000.0),
        *(512_000, 512_000, 0, 1.4, 7.0e15),
    ),
    DriveModel(
        *("EXAMPLE DC-2 3.84TB", "GXA7", 3_840_755_982_336, 95_000, 21_000, 120_000.0),
        *(512_000, 33_554_432, 600, 1.9, 2.8e16),
    ),
    DriveModel(
        *("EXAMPLE QLC 7.68TB", "0105", 7_681_501_126_656, 130_000, 35_000, 70_000.0),
        *(512_000, 1 << 30, 3600, 2.4, 1.4e16),
    ),
    DriveModel(
        *("EXAMPLE OEM 960GB", "E2", 960_197_124_096, 110_000, 25_000, 60_000.0),
        *(512_000, None, 0, 2.1, 2.6e15),
    ),
)


@dataclass(frozen=True, slots=True)
class DrivePlan:
    """A disk of the fleet. `share` is its part of the host's load, `age_s` its power-on time at the start."""

    host: str
    device: str
    serial: str
    model: DriveModel
    seed: int
    share: float
    age_s: float
    used_ratio: float
    sleeps: bool = False
    faults: tuple[InjectedFault, ...] = ()

    def find_fault(self, kind: FaultKind, now_s: float) -> InjectedFault | None:
        """Return the fault of this kind if it has begun, or None."""
        for fault in self.faults:
            if fault.kind is kind and fault.begin_s <= now_s:
                return fault
        return None


@dataclass(frozen=True, slots=True)
class HostPlan:
    """A host: its disks, its load, and the events that are no faults.

    `never_trims` is true if trims do not arrive on purpose. `reboots` are (moment, downtime), `swaps` are
    (moment, number of the drive that is replaced), and `waf_change` is (moment, factor) of a new workload.
    """

    name: str
    seed: int
    busiest_hour: float
    base_load: float
    waf_factor: float
    write_share: float
    drives: tuple[DrivePlan, ...]
    never_trims: bool = False
    reboots: tuple[tuple[float, float], ...] = ()
    swaps: tuple[tuple[float, int], ...] = ()
    waf_change: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """A fleet. Times are seconds since the epoch; the simulation runs from `begin_s` on."""

    seed: int
    begin_s: float
    hosts: tuple[HostPlan, ...] = field(repr=False)

    def list_drives(self) -> Iterator[DrivePlan]:
        for host in self.hosts:
            yield from host.drives

    def list_faulty(self, kind: FaultKind) -> list[DrivePlan]:
        """Return the drives that have this fault at any time."""
        return [drive for drive in self.list_drives() if any(fault.kind is kind for fault in drive.faults)]


# The strength of each fault: the range from which its factor is drawn.
_FACTORS = {
    FaultKind.SLOW: (1.6, 4.0),
    FaultKind.WAF_JUMP: (2.6, 4.0),
    FaultKind.WEARS_OUT: (1.0, 1.0),
}


def _draw_fault(draw: random.Random, kind: FaultKind, begin_s: float) -> InjectedFault:
    low, high = _FACTORS.get(kind, (1.0, 1.0))
    return InjectedFault(kind, begin_s, draw.uniform(low, high))


def _choose_faults(
    draw: random.Random, n_drives: int, each: int, kinds: tuple[FaultKind, ...], begin_s: float
) -> dict[int, InjectedFault]:
    """Return the faults by the number of the drive: `each` drives per kind, no drive with two faults."""
    numbers = draw.sample(range(n_drives), each * len(kinds))
    return {
        number: _draw_fault(draw, kinds[index % len(kinds)], begin_s + draw.uniform(0, HOUR_S))
        for index, number in enumerate(numbers)
    }


def _draw_swaps(
    draw: random.Random, begin_s: float, days: float, n_disks: int
) -> tuple[tuple[float, int], ...]:
    """Return the replacements of drives on a host: one drive in a thousand per day."""
    n_swaps = sum(draw.random() < n_disks / 1000 for _ in range(int(days)))
    return tuple(
        sorted((begin_s + draw.uniform(0, days * DAY_S), draw.randrange(n_disks)) for _ in range(n_swaps))
    )


def _draw_change(draw: random.Random, begin_s: float, days: float) -> tuple[float, float] | None:
    """Return a new workload, which raises the write amplification by half, on one host of twenty."""
    moment = begin_s + draw.uniform(0, days * DAY_S)
    return (moment, 1.5) if days and draw.random() < 0.05 else None


def _draw_reboots(draw: random.Random, begin_s: float, days: float) -> tuple[tuple[float, float], ...]:
    """Return the reboots of a host: one per month on average, with a downtime of 3 to 30 minutes."""
    n_reboots = sum(draw.random() < 1 / 30 for _ in range(int(days)))
    moments = sorted(begin_s + draw.uniform(0, days * DAY_S) for _ in range(n_reboots))
    return tuple((moment, draw.uniform(180, 1800)) for moment in moments)


def make_fleet(
    seed: int,
    *,
    n_hosts: int,
    n_disks: int,
    begin_s: float,
    days: float = 0.0,
    faulty: int = 0,
    fault_begin_s: float | None = None,
    kinds: tuple[FaultKind, ...] = tuple(FaultKind),
) -> FleetPlan:
    """Return a fleet with `faulty` drives per kind of fault. `days` is the span in which hosts reboot."""
    draw = random.Random(f"fleet {seed}")
    first_s = begin_s if fault_begin_s is None else fault_begin_s
    faults = _choose_faults(draw, n_hosts * n_disks, faulty, kinds, first_s) if faulty else {}
    hosts = []
    for index in range(n_hosts):
        name = f"h{seed:02d}-{index:04d}"
        # A host has drives of one model, as it was bought.
        model = MODELS[draw.choices(range(len(MODELS)), (4, 3, 2, 1))[0]]
        drives = tuple(
            _make_drive(draw, name, model, index * n_disks + number, number, faults)
            for number in range(n_disks)
        )
        hosts.append(
            HostPlan(
                name,
                draw.getrandbits(32),
                draw.uniform(0, 24),
                draw.uniform(0.01, 0.2),
                draw.uniform(0.75, 1.6),
                draw.uniform(0.2, 0.6),
                drives,
                # Some hosts do without trims on purpose.
                draw.random() < 0.05 and not any(drive.faults for drive in drives),
                _draw_reboots(draw, begin_s, days),
                _draw_swaps(draw, begin_s, days, n_disks),
                _draw_change(draw, begin_s, days),
            )
        )
    return FleetPlan(seed, begin_s, tuple(hosts))


def _make_drive(
    draw: random.Random,
    host: str,
    model: DriveModel,
    number: int,
    slot: int,
    faults: dict[int, InjectedFault],
) -> DrivePlan:
    fault = faults.get(number)
    if (
        fault
        and fault.kind in (FaultKind.WAF_JUMP, FaultKind.UNTRUSTED)
        and model.media_quantum_bytes is None
    ):
        # These faults need a drive that counts its writes to NAND.
        model = MODELS[0]
    is_worn = fault is not None and fault.kind is FaultKind.WEARS_OUT
    return DrivePlan(
        host,
        f"nvme{slot}n1",
        f"S{draw.getrandbits(40):010X}",
        model,
        draw.getrandbits(32),
        # One healthy drive in ten is nearly idle.
        draw.uniform(0.4, 1.6) * (0.002 if fault is None and draw.random() < 0.1 else 1.0),
        draw.uniform(0.5, 4.0) * 365 * DAY_S,
        0.955 if is_worn else draw.uniform(0.005, 0.6),
        sleeps=fault is None and draw.random() < 0.02,
        faults=(fault,) if fault else (),
    )
