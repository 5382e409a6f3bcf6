"""Generate runs of the simulated drive in virtual time: garbage collection, busy dies, a filling buffer.

A host issues random 4 KiB requests, 70 % reads, at about 2,000 per second. The rate varies, and is correlated
from second to second.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from functools import cache, lru_cache

from opwatch._native import Service
from opwatch.ftl.drive import Drive, Workload
from opwatch.ftl.profiles import load_profile
from tests.unit.compare.counted_disk import BLOCK, S, Second

PROFILE = "wd-blue-1tb"
_SIZE = 1 << 28
_RATE = 2000.0
_READS = 0.7
# Standard deviation of the rate's logarithm, and correlation from second to second.
_SPREAD, _LASTING = 0.15, 0.6
_READ, _WRITE = 0, 1
# Random writes before each run, so that no two runs start with the same drive state.
_BEFORE = 20_000


@cache
def _wear_drive() -> tuple[bytes, dict[str, int]]:
    """Return the saved state of the drive in steady state, and its timing."""
    profile = load_profile(PROFILE).scale_to(_SIZE)
    drive = profile.create_drive()
    drive.fill_drive()
    drive.run_load(Workload(), 3 * _SIZE // BLOCK)
    return drive.save(), dict(profile.timing)


class LoadedDrive:
    """A drive under the load of one host."""

    def __init__(self, seed: int) -> None:
        saved, timing = _wear_drive()
        self._chance = random.Random(seed)
        drive = Drive.load_saved(saved)
        drive.run_load(Workload(rng=seed + 1), _BEFORE)
        self._service = Service(drive.core, timing)
        self._pages = drive.read_geometry().user_bytes // BLOCK
        self._mood = self._chance.gauss(0, 1)

    def run_second(self) -> dict[str, list[int]]:
        """Return the latencies of requests that arrived within a second."""
        chance, service = self._chance, self._service
        self._mood = _LASTING * self._mood + math.sqrt(1 - _LASTING**2) * chance.gauss(0, 1)
        rate = _RATE * math.exp(_SPREAD * self._mood)
        begin_ns = service.now_ns()
        at, latencies = 0.0, {"read": list[int](), "write": list[int]()}
        # This loop runs a hundred thousand times per run.
        uniform, log, submit, pages = chance.random, math.log, service.submit, self._pages
        while (at := at - log(1 - uniform()) / rate) < 1:
            op, name = (_READ, "read") if uniform() < _READS else (_WRITE, "write")
            arrival = begin_ns + int(at * S)
            done = submit(op, int(uniform() * pages) * BLOCK, BLOCK, arrival)
            latencies[name].append(done - arrival)
        service.pause(max(begin_ns + S - service.now_ns(), 0))
        return latencies


def generate_run(seed: int, seconds: int, worse: float = 1.0) -> Iterator[Second]:
    """Yield the seconds of a run. `worse` multiplies the latency of the slowest 3 % of requests."""
    served = _serve_seconds(seed, seconds)
    slow = {
        name: _find_quantile([ns for one in served for ns in one[name]], 0.97) for name in ("read", "write")
    }
    for one in served:
        yield {
            name: Counter(round(ns * worse) if ns > slow[name] else ns for ns in latencies)
            for name, latencies in one.items()
        }


@lru_cache(maxsize=2)
def _serve_seconds(seed: int, seconds: int) -> list[dict[str, list[int]]]:
    drive = LoadedDrive(seed)
    return [drive.run_second() for _ in range(seconds)]


def _find_quantile(latencies: list[int], share: float) -> int:
    return sorted(latencies)[int(share * len(latencies))]
