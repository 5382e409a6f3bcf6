"""Skewed loads as jobs of fio and as words of the independent simulator, and the WAF of both."""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from opwatch.ftl import profiles
from opwatch.ftl.drive import GcFrontier, Policy
from opwatch.load.workload import parse_job_file
from opwatch.sweep.levels import LevelScale, OpBase, OpLevel, parse_levels
from opwatch.sweep.model_load import PatternLoad
from opwatch.sweep.outcome import LevelOutcome
from opwatch.sweep.plan import SweepPace
from opwatch.sweep.virtual import (
    ModelDrive,
    compute_flash_bytes,
    find_used_bytes,
    make_load_model,
    run_level,
)

UNIT = 4096
LEVELS = "7,12,20,28,50%"
_SOURCE = Path(__file__).with_name("ftl.c")
_HEAD = "[job]\nrw=randwrite\n"


@dataclass(frozen=True)
class UnevenCase:
    """A load for both. `warm` are the simulator's drive writes before it measures."""

    name: str
    job: str
    words: tuple[str, ...]
    warm: float = 30.0


def _make_case(distribution: str, *words: str, warm: float = 30.0) -> UnevenCase:
    return UnevenCase(distribution, f"{_HEAD}random_distribution={distribution}\n", words, warm)


CASES = (
    _make_case("zipf:0.6", "zipf", "0.6"),
    _make_case("zipf:0.9", "zipf", "0.9"),
    _make_case("zipf:1.1", "zipf", "1.1"),
    _make_case("zipf:1.3", "zipf", "1.3", warm=80),
    _make_case("pareto:0.1", "pareto", "0.1", warm=60),
    _make_case("pareto:0.2", "pareto", "0.2"),
    _make_case("zoned:90/10:10/90", "zones", "90/10", "10/90", warm=60),
    _make_case("zoned:80/20:20/80", "zones", "80/20", "20/80"),
    _make_case("zoned:99/1:1/99", "zones", "99/1", "1/99", warm=120),
    _make_case("zoned:50/5:30/15:20/80", "zones", "50/5", "30/15", "20/80"),
)
# The edges of a bell are written so rarely that no sweep waits for them. Such loads are compared over the
# same drive writes, and not in steady state.
DRIFTING = (_make_case("normal:5", "normal", "5"), _make_case("normal:20", "normal", "20"))
_DRIFTING_ROUNDS, _MEASURED_DISKS = 600, 20
# Loads that are not skewed, but not of one random size either.
OTHERS = (
    UnevenCase(
        "a stream beside random writes", "[a]\nrw=randwrite\n[b]\nrw=write\n", ("mixed", "zones", "100/100")
    ),
    UnevenCase(
        "a stream beside 80/20",
        "[a]\nrw=randwrite\nrandom_distribution=zoned:80/20:20/80\n[b]\nrw=write\n",
        ("mixed", "zones", "80/20", "20/80"),
    ),
    UnevenCase("4k and 16k", f"{_HEAD}bssplit=4k/60:16k/40\n", ("sizes", "1/60", "4/40")),
)


def make_profile(units: int, pages: int, policy: Policy) -> profiles.Profile:
    """Return a drive of that many units of flash, one frontier, and superblocks of `pages`."""
    ideal = profiles.load_profile("ideal")
    drive = {
        "user_bytes": units * UNIT,
        "physical_bytes": units * UNIT,
        "superblock_bytes": pages * UNIT,
        "policy": policy,
        "gc_frontier": GcFrontier.SHARED,
    }
    return replace(ideal, drive=drive | {"user_bytes": round(units / 1.06) * UNIT})


def make_case_levels(profile: profiles.Profile, text: str = LEVELS) -> tuple[OpLevel, ...]:
    """Return levels by (T-U)/U."""
    flash = profile.drive["physical_bytes"]
    return parse_levels(text, LevelScale(flash, base=OpBase.FLASH, align_bytes=UNIT), flash)


def make_case_model(case: UnevenCase, profile: profiles.Profile) -> tuple[PatternLoad, ModelDrive]:
    load = PatternLoad(parse_job_file(case.job.encode(), f"{case.name}.fio"))
    return load, make_load_model(profile, load)


def run_case_level(
    case: UnevenCase, profile: profiles.Profile, level: OpLevel, most_rounds: int = 1440
) -> LevelOutcome:
    """Return the level in virtual time."""
    load, model = make_case_model(case, profile)
    pace = replace(SweepPace(), most_rounds=most_rounds)
    return run_level(model, level, load, pace, lambda level, rounds: True)


def build_simulator(folder: Path) -> Path:
    """Compile the independent simulator, and return the path of the program."""
    target = folder / "uneven-ftl"
    if not target.exists() or target.stat().st_mtime < _SOURCE.stat().st_mtime:
        folder.mkdir(parents=True, exist_ok=True)
        command: list[str | Path] = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", target, _SOURCE, "-lm"]
        subprocess.run(command, check=True)
    return target


def simulate_level(
    program: Path, case: UnevenCase, profile: profiles.Profile, level: OpLevel, seed: int = 1
) -> float:
    """Return the WAF of the independent simulator for the same drive, level and load."""
    _, model = make_case_model(case, profile)
    units = find_used_bytes(model, level).model // UNIT
    spare = compute_flash_bytes(model) * model.ratio / UNIT / units - 1
    policy = "fifo" if profile.drive["policy"] == Policy.FIFO else "greedy"
    pages = model.superblock_pages
    words = [units, pages, f"{spare:.9f}", policy, case.warm, _MEASURED_DISKS, seed, *case.words]
    done = subprocess.run([program, *map(str, words)], check=True, capture_output=True, text=True)
    return statistics.fmean(map(float, done.stdout.split()))


def compare_case(
    program: Path, case: UnevenCase, profile: profiles.Profile, text: str = LEVELS
) -> Iterator[tuple[OpLevel, LevelOutcome, float]]:
    """Yield each level with its outcome in virtual time and the simulator's WAF."""
    for level in make_case_levels(profile, text):
        outcome = run_case_level(case, profile, level)
        yield level, outcome, simulate_level(program, case, profile, level)


def compare_drifting(
    program: Path, case: UnevenCase, profile: profiles.Profile, text: str = LEVELS
) -> Iterator[tuple[OpLevel, float, float]]:
    """Yield each level with the WAF of the last 20 drive writes in virtual time and in the simulator."""
    for level in make_case_levels(profile, text):
        rounds = run_case_level(case, profile, level, _DRIFTING_ROUNDS).rounds
        per_disk = round(1 / SweepPace().round_ratio)
        last = rounds[-_MEASURED_DISKS * per_disk :]
        waf = sum(one.nand_bytes or 0 for one in last) / sum(one.host_bytes for one in last)
        same_age = replace(case, warm=(len(rounds) - len(last)) / per_disk)
        yield level, waf, simulate_level(program, same_age, profile, level)
