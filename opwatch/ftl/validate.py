"""Validation of the simulated drive against the models: steady-state cases, and a function to run them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from opwatch.ftl import models
from opwatch.ftl.drive import Drive, GcFrontier, Policy, Workload, Zone, compute_amplification

_PAGE = 4096
_BATCHES = 10


@dataclass(frozen=True, slots=True)
class Case:
    """A drive and a workload with known write amplification in steady state."""

    name: str
    expected_ratio: float
    alpha: float
    policy: Policy
    policy_arg: int = 0
    superblock_pages: int = 256
    # (Share of the space, share of the writes). The shares of the space may leave a rest unwritten.
    zones: tuple[tuple[float, float], ...] = ()
    rest_is_mapped: bool = True
    trim_ratio: float = 0.0


class SimulatedAmplification(NamedTuple):
    """The measured amplification, and its standard error from batch means."""

    case: Case
    measured_ratio: float
    error_ratio: float
    host_pages: int

    @property
    def deviation_ratio(self) -> float:
        return self.measured_ratio / self.case.expected_ratio - 1.0


_JESD219 = ((0.05, 0.5), (0.15, 0.3), (0.8, 0.2))


def make_uniform_case(spare: float, policy: Policy, arg: int = 0, pages: int = 256) -> Case:
    alpha = models.alpha_from_physical_share(spare)
    expected = {
        Policy.GREEDY: lambda: models.predict_greedy(alpha, pages),
        Policy.FIFO: lambda: models.predict_fifo(alpha),
        Policy.RANDOM: lambda: models.predict_random(alpha),
        Policy.D_CHOICES: lambda: models.predict_d_choices(alpha, pages, arg),
    }[policy]()
    label = f"{policy.name.lower()}{f' d={arg}' if arg else ''} b={pages} S_f={spare:.2f}"
    return Case(label, expected, alpha, policy, arg, pages)


def generate_cases() -> Iterator[Case]:
    """Yield every case with an exact model."""
    for spare in (0.07, 0.10, 0.20, 0.28, 0.50):
        alpha = models.alpha_from_physical_share(spare)
        yield make_uniform_case(spare, Policy.GREEDY, pages=64)
        yield make_uniform_case(spare, Policy.GREEDY)
        yield make_uniform_case(spare, Policy.FIFO)
        yield make_uniform_case(spare, Policy.D_CHOICES, 2)
        yield make_uniform_case(spare, Policy.D_CHOICES, 10)
        hot_cold = ((0.2, 0.8), (0.8, 0.2))
        for name, zones in (("hot/cold", hot_cold), ("JESD219", _JESD219)):
            expected = models.predict_fifo_mixture(alpha, zones)
            yield Case(f"fifo {name} S_f={spare:.2f}", expected, alpha, Policy.FIFO, zones=zones)
    yield make_uniform_case(0.20, Policy.RANDOM)
    yield from generate_partition_cases()
    yield from generate_trim_cases()


def generate_partition_cases() -> Iterator[Case]:
    """Yield cases with 80 % of the drive in use. The rest is filled once, then trimmed or not."""
    alpha, used = 1.0737, 0.8
    one = ((used, 1.0),)
    base = Case("", 0.0, alpha, Policy.GREEDY, zones=one)
    yield replace(
        base,
        name="untrimmed partition, greedy",
        expected_ratio=models.predict_greedy_with_static(alpha, 256, used),
    )
    yield replace(
        base,
        name="trimmed partition, greedy",
        expected_ratio=models.predict_greedy(alpha / used, 256),
        rest_is_mapped=False,
    )
    yield replace(
        base,
        name="untrimmed partition, fifo",
        policy=Policy.FIFO,
        expected_ratio=models.predict_fifo_mixture(alpha, [(used, 1.0), (1.0 - used, 0.0)]),
    )


def generate_trim_cases() -> Iterator[Case]:
    """Yield cases where a share of the requests trims a random mapped page."""
    for spare, ratio in ((0.07, 0.1), (0.07, 0.3), (0.20, 0.2)):
        alpha = models.alpha_from_physical_share(spare)
        expected = models.predict_fifo(alpha / models.predict_mapped_share(ratio))
        name = f"fifo, random trim q={ratio} S_f={spare:.2f}"
        yield Case(name, expected, alpha, Policy.FIFO, trim_ratio=ratio)


def make_drive(case: Case, user_pages: int, seed: int) -> tuple[Drive, Workload]:
    """Create and fill the drive, and return it with its workload."""
    drive = Drive(
        {
            "user_bytes": user_pages * _PAGE,
            "physical_bytes": round(user_pages * case.alpha) * _PAGE,
            "superblock_bytes": case.superblock_pages * _PAGE,
            "iu_bytes": _PAGE,
            "policy": case.policy,
            "policy_arg": case.policy_arg,
            "gc_frontier": GcFrontier.SHARED,
            "seed": seed,
        }
    )
    drive.fill_drive()
    zones, start = [], 0
    for space, writes in case.zones:
        length = round(space * user_pages) * _PAGE
        length = min(length, user_pages * _PAGE - start)
        zones.append(Zone(start, length, round(writes * 1000)))
        start += length
    if not case.rest_is_mapped:
        drive.core.trim(start, user_pages * _PAGE - start)
    load = Workload(tuple(zones), trim_ppm=round(case.trim_ratio * 1e6), rng=seed)
    return drive, load


def run_case(
    case: Case,
    user_pages: int = 1 << 20,
    drive_writes: float = 10.0,
    seed: int = 1,
    progress: Callable[[float], None] | None = None,
) -> SimulatedAmplification:
    """Settle for half of the writes, then measure the other half in batches."""
    drive, load = make_drive(case, user_pages, seed)
    requests = int(user_pages * drive_writes / (1.0 - case.trim_ratio))
    drive.run_load(load, requests // 2)
    readings = [drive.read_counters()]
    for _ in range(_BATCHES):
        drive.run_load(load, requests // 2 // _BATCHES)
        readings.append(drive.read_counters())
        if progress:
            progress(len(readings) / (_BATCHES + 1))
    parts = [compute_amplification(a, b) or 0.0 for a, b in itertools.pairwise(readings)]
    mean = sum(parts) / len(parts)
    variance = sum((part - mean) ** 2 for part in parts) / (len(parts) - 1)
    host = readings[-1]["host_write_bytes"] - readings[0]["host_write_bytes"]
    return SimulatedAmplification(case, mean, math.sqrt(variance / len(parts)), host // _PAGE)
