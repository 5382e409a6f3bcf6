"""Random reads and writes on the whole drive and with a part left unused, on simulated flash. Pure.

Measured on an empty drive, and on a filled drive in steady state, in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from opwatch.errors import UsageError
from opwatch.fields import Fields
from opwatch.ftl.drive import Drive, Workload, Zone
from opwatch.ftl.profiles import Profile
from opwatch.scenarios.scenario import Finding, ScenarioVerdict
from opwatch.scenarios.spare import infer_flash_bytes
from opwatch.steady.strict import StrictState
from opwatch.sweep.band import make_greedy_model
from opwatch.sweep.levels import OpLevel
from opwatch.sweep.outcome import (
    KINDS,
    READ_EMPTY,
    READ_FULL,
    WRITE_EMPTY,
    WRITE_FULL,
    LevelOutcome,
    OpKind,
)
from opwatch.sweep.plan import SweepPace
from opwatch.sweep.side_by_side import run_levels
from opwatch.sweep.virtual import ModelDrive, VirtualLoad, find_mapping_unit, make_drive

# Reads that differ by less are considered equal.
ALIKE_RATIO = 0.03
# Tolerance of a gain against the prediction from the profile, in addition to the gain's own error.
PREDICTED_RATIO = 0.03
_READS = 50_000
# Duration of one simulated interval. A new drive remains new for several intervals.
_STRETCH_S = 0.02
_NEW_RATIO = 0.02
NO_CPU = "a model in virtual time uses no host CPU"


@dataclass(frozen=True, slots=True)
class OpRate:
    """I/Os per second of a level and the mean response time; None with the reason in `why`.

    `error_ratio` covers chance and the model's size. `cpu_ratio` is the load's share of one processor, None
    in virtual time.
    """

    kind: OpKind
    level: OpLevel
    iops: float | None
    mean_ns: float | None
    error_ratio: float = 0.0
    why: str = ""
    cpu_ratio: float | None = None


class OpGain(NamedTuple):
    """The measured speed-up of the last level over the first with its error, and the predicted speed-up."""

    kind: OpKind
    gain: float | None
    error: float
    foretold: float | None


@dataclass(frozen=True, slots=True)
class IometerResult:
    rates: tuple[OpRate, ...]
    gains: tuple[OpGain, ...]
    is_at_rest: bool

    def find_gain(self, kind: OpKind) -> OpGain:
        return next(gain for gain in self.gains if gain.kind == kind)

    def find_rate(self, kind: OpKind) -> OpRate:
        """Return the rate of the first level."""
        return next(rate for rate in self.rates if rate.kind == kind)


def run_iometer(
    model: ModelDrive,
    levels: Sequence[OpLevel],
    load: VirtualLoad,
    progress: Callable[[OpLevel, int], None],
) -> IometerResult:
    """Measure all four operation kinds at each level; writes to a full drive continue until steady state."""
    outcomes = run_levels(model, levels, load, SweepPace(), progress)
    rates = [rate for level in levels for rate in _measure_immediate(model, level, load)]
    rates += [_make_steady_rate(outcome, load) for outcome in outcomes]
    gains = [_compute_gain(kind, rates, model.profile, load) for kind in KINDS]
    at_rest = all(outcome.strict.state is StrictState.PASS for outcome in outcomes)
    return IometerResult(tuple(rates), tuple(gains), at_rest)


def _measure_immediate(model: ModelDrive, level: OpLevel, load: VirtualLoad) -> list[OpRate]:
    """Return the rates of the three operation kinds that need no steady state."""
    unit = find_mapping_unit(model.profile)
    used = max(round(level.usable_bytes * model.ratio) // unit, 1) * unit
    place = (Zone(0, used),)
    empty, full = make_drive(model.profile), make_drive(model.profile)
    full.run_load(Workload(place, sequential=True), used // unit)
    full.stay_idle(60.0)
    # A drive counts as new while only a small part of its flash, and of its cache, has been written.
    new = min(used * _NEW_RATIO, full.core.config()["slc_bytes"] / 2 or used) // load.io_bytes
    return [
        _measure_rate(READ_EMPTY, level, empty, place, load, _READS),
        _measure_rate(WRITE_EMPTY, level, make_drive(model.profile), place, load, int(new) or 1),
        _measure_rate(READ_FULL, level, full, place, load, _READS),
    ]


def _measure_rate(
    kind: OpKind, level: OpLevel, drive: Drive, place: tuple[Zone, ...], load: VirtualLoad, ios: int
) -> OpRate:
    """Run the closed loop until `ios` I/Os have completed."""
    state, done, summed_ns, begun_ns = Workload(place, rng=load.seed), 0, 0, drive.now_ns()
    while done < ios:
        run = drive.run_timed(
            state,
            _STRETCH_S,
            io_bytes=load.io_bytes,
            queue_depth=load.queue_depth,
            read_ppm=10**6 if kind.op == "read" else 0,
            interval_ns=round(_STRETCH_S * 1e9),
        )
        done += sum(one.ios for one in run.intervals)
        summed_ns += sum(one.latency_sum_ns for one in run.intervals)
    seconds = (drive.now_ns() - begun_ns) / 1e9
    return OpRate(kind, level, done / seconds, summed_ns / done)


def _make_steady_rate(outcome: LevelOutcome, load: VirtualLoad) -> OpRate:
    iops, window = outcome.figures.iops, outcome.strict.window
    if iops is None:
        why = f"{outcome.strict.state.value}: {outcome.strict.reason}"
        return OpRate(WRITE_FULL, outcome.level, None, None, why=why)
    by_chance = window.iops.error if window and window.iops else None
    waf, waf_error = outcome.figures.waf, outcome.figures.waf_error
    by_size = waf_error / waf if waf and waf_error else None
    # A closed loop always has exactly queue-depth requests outstanding.
    mean_ns = load.queue_depth * 1e9 / iops
    return OpRate(WRITE_FULL, outcome.level, iops, mean_ns, max(by_chance or 0.0, by_size or 0.0))


def _compute_gain(kind: OpKind, rates: Sequence[OpRate], profile: Profile, load: VirtualLoad) -> OpGain:
    own = [rate for rate in rates if rate.kind == kind]
    first, last = own[0], own[-1]
    speeds = [predict_iops(profile, kind, rate.level, load) for rate in (first, last)]
    foretold = speeds[1] / speeds[0]
    if not first.iops or last.iops is None:
        return OpGain(kind, None, 0.0, foretold)
    gain = last.iops / first.iops
    return OpGain(kind, gain, gain * (first.error_ratio + last.error_ratio), foretold)


def predict_iops(profile: Profile, kind: OpKind, level: OpLevel, load: VirtualLoad) -> float:
    """Predict I/Os per second from the constants of a profile.

    The result is the lower of the command rate and the flash rate; the flash programs WAF times the host
    data, with the WAF of greedy garbage collection.
    """
    on_wire_ns = _require_timing(profile, "command_ns") + load.io_bytes * 1e9 / _require_timing(
        profile, "host_bytes_per_s"
    )
    alone_ns = on_wire_ns + _require_timing(profile, "latency_ns")
    if kind == READ_FULL:
        alone_ns += _require_timing(profile, "read_ns")
        alone_ns += load.io_bytes * 1e9 / _require_timing(profile, "channel_bytes_per_s")
    commands = min(load.queue_depth / alone_ns, 1 / on_wire_ns) * 1e9
    if kind.op == "read":
        return commands
    return min(commands, _compute_program_rate(profile, kind, level) / load.io_bytes)


def _require_timing(profile: Profile, key: str) -> int:
    """Return a timing constant of the profile. Raise UsageError if the profile lacks the constant."""
    if key not in profile.timing:
        raise UsageError(
            f"drive profile {profile.name} has no {key} in [timing], so its speed cannot be predicted"
        )
    return profile.timing[key]


def _compute_program_rate(profile: Profile, kind: OpKind, level: OpLevel) -> float:
    """Return the host's share of the bytes that all dies program per second."""
    is_cached = not kind.is_full and bool(profile.drive.get("slc_bytes"))
    own = profile.drive.get("superblock_bytes")
    pages = own // find_mapping_unit(profile) if own else None
    waf = make_greedy_model(pages).waf(level.alpha or 1.0) if kind.is_full else 1.0
    page_bytes = _require_timing(profile, "page_bytes")
    # Each page carries its share of the block's erase time; relocated pages are read first.
    die_ns = 1.0 * _require_timing(profile, "program_slc_ns" if is_cached else "program_ns")
    die_ns += _require_timing(profile, "erase_ns") * page_bytes / _require_timing(profile, "block_bytes")
    die_ns += (waf - 1) / waf * _require_timing(profile, "read_ns")
    unit = _require_timing(profile, "planes") * page_bytes
    return _require_timing(profile, "dies") * unit * 1e9 / die_ns / waf


def make_iometer_findings(result: IometerResult, published: Fields, profile: Profile) -> tuple[Finding, ...]:
    """Compare the gains with the model's prediction and with the author's results."""
    return (
        _check_prediction(result),
        check_reads(result, published),
        check_writes(result, published),
        check_read_time(result, published, _require_timing(profile, "read_ns")),
    )


def find_published_gain(published: Fields, op: str) -> float | None:
    """Return the ratio of the rates in the author's table, or None if not published."""
    rows = published.read_list(op, 4) if op in published.table else []
    return rows[-1][1] / rows[0][1] if len(rows) > 1 else None


def _check_prediction(result: IometerResult) -> Finding:
    what = "steady-state writes gain what the profile's constants predict"
    gain = result.find_gain(WRITE_FULL)
    if gain.gain is None or gain.foretold is None:
        return Finding(what, ScenarioVerdict.UNTOLD, "not in steady state")
    is_so = abs(gain.gain - gain.foretold) <= gain.error + PREDICTED_RATIO * gain.foretold
    verdict = ScenarioVerdict.REPRODUCED if is_so else ScenarioVerdict.NOT_REPRODUCED
    return Finding(what, verdict, f"x {gain.gain:.2f}, predicted x {gain.foretold:.2f}")


def check_reads(result: IometerResult, published: Fields) -> Finding:
    """Check whether reads are equally fast with a part left unused."""
    gains = [result.find_gain(kind).gain for kind in (READ_EMPTY, READ_FULL)]
    worst = max((abs(gain - 1) for gain in gains if gain is not None), default=0.0)
    error = max(result.find_gain(kind).error for kind in (READ_EMPTY, READ_FULL))
    there = find_published_gain(published, "read")
    verdict = ScenarioVerdict.REPRODUCED if worst <= ALIKE_RATIO else ScenarioVerdict.NOT_REPRODUCED
    why = f"they are {100 * worst:.2g} % apart; published: {_format_percent(there)}"
    if error > ALIKE_RATIO:
        why += (
            f"; but the error of their ratio is ± {100 * error:.2g} %: measure longer (--set probe_s=), "
            "on an idle host"
        )
        verdict = ScenarioVerdict.UNTOLD
    return Finding("reads gain nothing", verdict, why)


def check_writes(result: IometerResult, published: Fields) -> Finding:
    """Check whether writes gain as much as in the author's table."""
    there, gain = find_published_gain(published, "write"), result.find_gain(WRITE_FULL)
    what = f"writes gain {_format_percent(there)}"
    if gain.gain is None or there is None:
        return Finding(what, ScenarioVerdict.UNTOLD, "not in steady state, or no rates were published")
    if abs(gain.gain - there) <= gain.error + ALIKE_RATIO * there:
        return Finding(what, ScenarioVerdict.REPRODUCED, f"here {_format_percent(gain.gain)}")
    if gain.foretold is not None and abs(gain.foretold - 1) <= ALIKE_RATIO:
        why = "the interface limits this drive at both levels, not its flash: try a deeper queue (--depth)"
        return Finding(what, ScenarioVerdict.UNTOLD, why)
    new = result.find_gain(WRITE_EMPTY).gain
    levels = [rate.level for rate in result.rates if rate.kind == WRITE_FULL]
    flash = infer_flash_bytes(levels[-1].usable_bytes, levels[0].usable_bytes, 1 / there)
    why = f"here {_format_percent(gain.gain)} in steady state, and {_format_percent(new)} while new"
    if flash is not None:
        why += (
            f": a drive with that gain in steady state has {flash / levels[0].usable_bytes:.2f} times "
            "its visible size in flash, so the author's was not in steady state, or not fully written"
        )
    return Finding(what, ScenarioVerdict.NOT_REPRODUCED, why)


def check_read_time(result: IometerResult, published: Fields, flash_ns: float | None) -> Finding:
    """Check whether the author's reads can have come from flash.

    `flash_ns` is the time of a flash read, None if unknown.
    """
    rows = published.read_list("read", 4) if "read" in published.table else []
    if not rows:
        return Finding("a read takes as long as published", ScenarioVerdict.UNTOLD, "no time was published")
    there_us = 1e6 / rows[0][1]
    what = f"a read takes {there_us:.0f} us"
    empty, full = (result.find_rate(kind).mean_ns or 0.0 for kind in (READ_EMPTY, READ_FULL))
    here = f"here {full / 1e3:.0f} us for addresses with data, {empty / 1e3:.0f} us without"
    if abs(full / 1e3 / there_us - 1) <= ALIKE_RATIO:
        return Finding(what, ScenarioVerdict.REPRODUCED, here)
    if flash_ns is None:
        return Finding(what, ScenarioVerdict.UNTOLD, f"{here}: it is another drive")
    flash_us = flash_ns / 1e3
    if flash_us > there_us:
        here += (
            f". Flash of this class alone takes {flash_us:.0f} us: reads of {there_us:.0f} us are of "
            "addresses without data, or from a cache"
        )
    return Finding(what, ScenarioVerdict.UNTOLD, f"{here}; these times are typical of the class")


def _format_percent(ratio: float | None) -> str:
    return "unknown" if ratio is None else f"{100 * (ratio - 1):+.1f} %"
