"""JSON of experiments: documents (docs/schema/sweep-scenario.json), and fields added to that of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from opwatch import SCHEMA
from opwatch.scenarios.claims import Judgement
from opwatch.scenarios.free_space import FilledDrive
from opwatch.scenarios.iometer import NO_CPU, IometerResult, OpRate
from opwatch.scenarios.mixed import MixConfiguration, MixRate
from opwatch.scenarios.mixed_model import PublishedRate, PublishedRates
from opwatch.scenarios.saturation import SaturationResult
from opwatch.scenarios.scenario import Scenario
from opwatch.scenarios.untrimmed import UntrimmedRun

TYPE = "sweep-scenario"


def build_scenario_head(scenario: Scenario) -> dict[str, Any]:
    return {
        "name": scenario.name,
        "kind": scenario.kind.value,
        "title": scenario.title,
        "source": scenario.source,
        "remark": scenario.remark,
    }


def build_judgement(judgement: Judgement) -> dict[str, Any]:
    """Return the verdicts on the author's claims, and the results of our own checks beside them."""
    return {
        "statements": [finding._asdict() for finding in judgement.findings],
        "checks": [check._asdict() for check in judgement.checks],
    }


def build_saturation_fields(
    scenario: Scenario, result: SaturationResult, time_ratio: float, alike: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the fields that a saturation adds to the document of its sweep.

    `time_ratio` is the duration of the rounds divided by the drive time they represent. `alike` names the
    other profiles of the experiment that differ from this one in size alone.
    """
    return build_scenario_head(scenario) | {
        "time_ratio": time_ratio,
        "levels": [asdict(level) for level in result.levels],
        "differs_in_size_only_from": list(alike),
        **build_judgement(result.judgement),
    }


def build_free_space_fields(scenario: Scenario, result: FilledDrive) -> dict[str, Any]:
    """Return the fields that files of growing size add to the document of their sweep, in bytes per
    second."""
    return build_scenario_head(scenario) | {
        "reserved_ratio": scenario.reserved_ratio,
        "points": [point._asdict() for point in result.points],
        **build_judgement(result.judgement),
        "flash_as_published": result.flash_as_published,
    }


def build_experiment_document(
    scenario: Scenario, target: str, workload: str, model: dict[str, Any] | None
) -> dict[str, Any]:
    """Return the fields common to all experiments. Results and judgement are added by the caller."""
    return {
        "schema": SCHEMA,
        "type": TYPE,
        "scenario": build_scenario_head(scenario),
        "target": target,
        "workload": workload,
        "model": model,
    }


def build_untrimmed_fields(runs: Sequence[UntrimmedRun], judgement: Judgement) -> dict[str, Any]:
    return {"runs": [_build_untrimmed_run(run) for run in runs], **build_judgement(judgement)}


def _build_untrimmed_run(run: UntrimmedRun) -> dict[str, Any]:
    return {
        "name": run.name,
        "free_bytes": run.free_bytes,
        "stale_bytes": run.stale_bytes,
        "room_bytes": run.foretold.room_bytes,
        "cache_bytes": run.foretold.cache_bytes,
        "foretold_cliff_bytes": run.foretold.cliff_bytes,
        "cliff_bytes": run.cliff_bytes,
        "error_ratio": run.error_ratio,
        "first_bytes_per_s": run.fresh_rate,
        "last_bytes_per_s": run.last_rate,
        "idle_moved_bytes": run.idle_bytes,
        "rounds": [one._asdict() for one in run.rounds],
    }


def build_iometer_fields(
    scenario: Scenario, result: IometerResult, io_bytes: int, judgement: Judgement
) -> dict[str, Any]:
    return {
        "rates": [_build_rate(rate, io_bytes) for rate in result.rates],
        "gains": [
            {**gain.kind._asdict(), "gain": gain.gain, "error": gain.error, "foretold": gain.foretold}
            for gain in result.gains
        ],
        "published": scenario.published.table,
        "is_at_rest": result.is_at_rest,
        **build_judgement(judgement),
    }


def _build_rate(rate: OpRate, io_bytes: int) -> dict[str, Any]:
    return {
        **rate.kind._asdict(),
        "level": rate.level.label,
        "used_bytes": rate.level.usable_bytes,
        "bytes_per_s": None if rate.iops is None else rate.iops * io_bytes,
        "iops": rate.iops,
        "mean_ns": rate.mean_ns,
        "error_ratio": rate.error_ratio,
        "cpu_ratio": rate.cpu_ratio,
        "missing": _build_missing(rate),
    }


def _build_missing(rate: OpRate) -> dict[str, str]:
    no_rate = {"iops": rate.why} if rate.why else {}
    return no_rate if rate.cpu_ratio is not None else {"cpu_ratio": rate.why or NO_CPU} | no_rate


def build_mixed_fields(
    configurations: Sequence[MixConfiguration],
    judgement: Judgement,
    published: PublishedRates | None = None,
) -> dict[str, Any]:
    """Return the rates of all configurations, beside the author's if these are his sets."""
    return {
        "configurations": [
            {
                "name": one.name,
                "folder": one.folder,
                "device": one.device,
                "kind": one.kind,
                "file_bytes": one.file_bytes,
                "rates": [
                    _build_mix_rate(rate, (published or {}).get((rate.load.name, one.name)))
                    for rate in one.rates
                ],
            }
            for one in configurations
        ],
        **build_judgement(judgement),
    }


def _build_mix_rate(rate: MixRate, published: PublishedRate | None) -> dict[str, Any]:
    return {
        "load": rate.load.name,
        "rdpct": rate.load.rdpct,
        "seekpct": rate.load.seekpct,
        "xfersize": rate.load.xfersize,
        "seconds": rate.seconds,
        "reads": rate.reads,
        "writes": rate.writes,
        "iops": rate.iops,
        "bytes_per_s": rate.moved_bytes / rate.seconds,
        "mean_ns": rate.mean_ns,
        "error_ratio": rate.error_ratio,
        "cpu_ratio": rate.cpu_ratio,
        "published": published and published._asdict(),
        "members": [
            {"name": name} | (count._asdict() | {"mean_ns": count.mean_ns} if count else {})
            for name, count in rate.members.items()
        ],
    }
