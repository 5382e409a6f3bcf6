"""Random reads and writes on the whole drive and with a part left unused. Pure.

Measured on an empty drive, and on a filled drive in steady state: on simulated flash in virtual time, or by a
drive's probes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from opwatch.errors import UsageError
from opwatch.fields import Fields
from opwatch.ftl.drive import Drive, Workload, Zone
from opwatch.ftl.profiles import Profile
from opwatch.scenarios.claims import Judgement, MeasuredValue, ScenarioEvidence, make_range
from opwatch.scenarios.saturation import compute_steady_error_ratio, find_steady_iops, predict_gain
from opwatch.scenarios.scenario import Scenario
from opwatch.scenarios.spare import infer_flash_bytes
from opwatch.steady.strict import StrictState
from opwatch.sweep.band import make_greedy_model
from opwatch.sweep.levels import OpLevel
from opwatch.sweep.model_load import VirtualLoad
from opwatch.sweep.outcome import (
    KINDS,
    READ_EMPTY,
    READ_FULL,
    WRITE_EMPTY,
    WRITE_FULL,
    LevelOutcome,
    LevelProbe,
    OpKind,
)
from opwatch.sweep.plan import SweepPace
from opwatch.sweep.side_by_side import run_levels
from opwatch.sweep.virtual import ModelDrive, find_mapping_unit, make_drive

# Rates that differ by less are considered equal.
_ALIKE_RATIO = 0.03
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
    first, last = levels[0], levels[-1]
    foretold = {
        kind: predict_iops(model.profile, kind, last, load) / predict_iops(model.profile, kind, first, load)
        for kind in KINDS
    }
    return _combine_rates(rates, foretold, outcomes)


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
    iops = outcome.figures.iops
    if iops is None:
        return _make_missing_rate(outcome)
    # A closed loop always has exactly queue-depth requests outstanding.
    mean_ns = load.queue_depth * 1e9 / iops
    return OpRate(WRITE_FULL, outcome.level, iops, mean_ns, compute_steady_error_ratio(outcome))


def _make_missing_rate(outcome: LevelOutcome) -> OpRate:
    why = f"{outcome.strict.state.value}: {outcome.strict.reason}"
    return OpRate(WRITE_FULL, outcome.level, None, None, why=why)


def _combine_rates(
    rates: Sequence[OpRate], foretold: Mapping[OpKind, float | None], outcomes: Sequence[LevelOutcome]
) -> IometerResult:
    gains = tuple(_compute_gain(kind, rates, foretold[kind]) for kind in KINDS)
    at_rest = all(outcome.strict.state is StrictState.PASS for outcome in outcomes)
    return IometerResult(tuple(rates), gains, at_rest)


def _compute_gain(kind: OpKind, rates: Sequence[OpRate], foretold: float | None) -> OpGain:
    own = [rate for rate in rates if rate.kind == kind]
    before, after = (own[0].iops, own[-1].iops) if own else (None, None)
    if not before or after is None:
        return OpGain(kind, None, 0.0, foretold)
    gain = after / before
    return OpGain(kind, gain, gain * (own[0].error_ratio + own[-1].error_ratio), foretold)


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


def combine_drive_probes(outcomes: Sequence[LevelOutcome]) -> IometerResult:
    """Combine the probes of all levels of a drive with the steady-state rounds."""
    rates = [_make_probe_rate(outcome, probe) for outcome in outcomes for probe in outcome.probes]
    foretold = dict.fromkeys(KINDS, 1.0) | {WRITE_FULL: _predict_gain(rates, outcomes)}
    return _combine_rates(rates, foretold, outcomes)


def _make_probe_rate(outcome: LevelOutcome, probe: LevelProbe) -> OpRate:
    if probe.kind == WRITE_FULL and find_steady_iops(outcome) is None:
        return _make_missing_rate(outcome)
    return OpRate(
        probe.kind,
        outcome.level,
        probe.ios / probe.seconds,
        probe.mean_ns,
        compute_steady_error_ratio(outcome) if probe.kind == WRITE_FULL else _get_probe_error(probe),
        cpu_ratio=probe.cpu_s / probe.seconds,
    )


def _get_probe_error(probe: LevelProbe) -> float:
    # A probe too short for an error estimate may be off by any amount.
    return 1.0 if probe.error_ratio is None else probe.error_ratio


def _predict_gain(rates: Sequence[OpRate], outcomes: Sequence[LevelOutcome]) -> float | None:
    """Predict the speed-up of steady-state writes from greedy collection, limited by the speed of a new
    drive."""
    first, last = outcomes[0].level.alpha, outcomes[-1].level.alpha
    if first is None or last is None:
        return None
    greedy = make_greedy_model(None)
    return min(greedy.waf(first) / greedy.waf(last), _compute_max_gain(rates))


def _compute_max_gain(rates: Sequence[OpRate]) -> float:
    """Return the speed-up of the last level if it wrote as fast as a new drive."""
    new = [rate.iops for rate in rates if rate.kind == WRITE_EMPTY]
    rest = [rate.iops for rate in rates if rate.kind == WRITE_FULL]
    if not new or not rest or not new[-1] or not rest[0]:
        return float("inf")
    return max(new[-1] / rest[0], 1.0)


def make_iometer_findings(scenario: Scenario, result: IometerResult, profile: Profile) -> Judgement:
    """Compare the gains with the prediction from the profile and with the author's results."""
    evidence = _make_evidence(result, scenario.published, _require_timing(profile, "read_ns"))
    return scenario.judge(evidence, "model")


def make_drive_findings(
    scenario: Scenario, result: IometerResult, outcomes: Sequence[LevelOutcome]
) -> Judgement:
    """Compare this drive's gain with models of garbage collection and with the author's results."""
    evidence = _make_evidence(result, scenario.published, None)
    gain, model = result.find_gain(WRITE_FULL).gain, predict_gain(outcomes[0], outcomes[-1])
    most = (1 - _ALIKE_RATIO) * _compute_max_gain(result.rates)
    is_limited = gain is not None and model is not None and most <= gain < model.low
    flags = {"no model": model is None, "as fast as new": is_limited}
    evidence = replace(
        evidence,
        expected={**evidence.expected, "modelled write gain": [model]},
        flags={**evidence.flags, **flags},
    )
    return scenario.judge(evidence, "drive")


def find_published_gain(published: Fields, op: str) -> float | None:
    """Return the ratio of the rates in the author's table, or None if not published."""
    rows = published.read_list(op, 4) if op in published.table else []
    return rows[-1][1] / rows[0][1] if len(rows) > 1 else None


def _make_evidence(result: IometerResult, published: Fields, flash_ns: float | None) -> ScenarioEvidence:
    """Return gains and read times. `flash_ns` is the time of a flash read, None if unknown."""
    write, reads = result.find_gain(WRITE_FULL), [result.find_gain(kind) for kind in (READ_EMPTY, READ_FULL)]
    there, read_us = find_published_gain(published, "write"), _find_published_read_us(published)
    empty_us, full_us = ((result.find_rate(kind).mean_ns or 0.0) / 1e3 for kind in (READ_EMPTY, READ_FULL))
    error = max(gain.error for gain in reads)
    texts = {
        "published read gain": _format_percent(find_published_gain(published, "read")),
        "published write gain": _format_percent(there),
        "published read time": "as long as published" if read_us is None else f"{read_us:.0f} us",
        "write gain": _format_percent(write.gain),
        "new write gain": _format_percent(result.find_gain(WRITE_EMPTY).gain),
        "read times": f"{full_us:.0f} us for addresses with data, {empty_us:.0f} us without",
        "read error": f"{100 * error:.2g}",
        "flash read": _explain_fast_read(read_us, flash_ns),
        "flash of the author": _describe_author_flash(result, there),
    }
    flags = {
        "on a drive": flash_ns is None,
        "on a model": flash_ns is not None,
        "reads too uncertain": error > _ALIKE_RATIO,
        "interface is the limit": write.foretold is not None and abs(write.foretold - 1) <= _ALIKE_RATIO,
    }
    return ScenarioEvidence(
        amounts={
            "write gain": [MeasuredValue(write.gain, write.error)],
            "read gains": [MeasuredValue(gain.gain) for gain in reads],
            "read time": [MeasuredValue(full_us)],
        },
        expected={
            "predicted write gain": [make_range(write.foretold)],
            "published write gain": [make_range(there)],
            "published read time": [make_range(read_us)],
        },
        texts=texts,
        flags=flags,
    )


def _find_published_read_us(published: Fields) -> float | None:
    """Return the duration of the author's reads, which were done one by one."""
    rows = published.read_list("read", 4) if "read" in published.table else []
    return 1e6 / rows[0][1] if rows else None


def _describe_author_flash(result: IometerResult, published_gain: float | None) -> str:
    """Return how much flash a drive with the published gain would have, or nothing if there is none."""
    levels = [rate.level for rate in result.rates if rate.kind == WRITE_FULL]
    if not published_gain or not levels:
        return ""
    flash = infer_flash_bytes(levels[-1].usable_bytes, levels[0].usable_bytes, 1 / published_gain)
    if flash is None:
        return ""
    return (
        f": a drive with that gain in steady state has {flash / levels[0].usable_bytes:.2f} times "
        "its visible size in flash, so the author's was not in steady state, or not fully written"
    )


def _explain_fast_read(published_us: float | None, flash_ns: float | None) -> str:
    """Return why the author's reads cannot have come from flash, or nothing."""
    if published_us is None or flash_ns is None or flash_ns / 1e3 <= published_us:
        return ""
    return (
        f". Flash of this class alone takes {flash_ns / 1e3:.0f} us: reads of {published_us:.0f} us are "
        "of addresses without data, or from a cache"
    )


def _format_percent(ratio: float | None) -> str:
    return "unknown" if ratio is None else f"{100 * (ratio - 1):+.1f} %"
