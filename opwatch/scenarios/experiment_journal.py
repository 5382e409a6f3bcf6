"""The request and progress of an experiment on file systems, as stored in its journal. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from opwatch.codec import decode, encode
from opwatch.fields import Fields
from opwatch.journal.state import parse_entries
from opwatch.load.sysbench import FIO, LOADERS
from opwatch.scenarios.mixed import MixLoad, MixRate
from opwatch.scenarios.scenario import list_scenarios
from opwatch.scenarios.untrimmed import UntrimmedRun

SCHEMA = "opwatch-experiment/1"


@dataclass(frozen=True, slots=True)
class ExperimentPlace:
    """A file system, under the name used in the experiment.

    `mark` identifies the file system. `used_bytes` is derived from the free space: the size of one file, or
    of all files.
    """

    name: str
    folder: str
    mark: str
    used_bytes: int

    def find_flaw(self) -> str | None:
        return None if self.used_bytes else "0 bytes of it are used"


@dataclass(frozen=True, slots=True)
class ExperimentRequest:
    """All settings that determine an experiment.

    `changes` are scenario values that differ from the published ones. `loads` run on every place; empty if
    the scenario offers no choice of loads.
    """

    name: str
    created: str
    scenario: str
    changes: Mapping[str, float]
    places: tuple[ExperimentPlace, ...]
    loads: tuple[MixLoad, ...]
    io_bytes: int
    queue_depth: int
    seed: int
    loader: str = FIO

    def find_flaw(self) -> str | None:
        """Return why a request from a journal is invalid, or None."""
        if self.loader not in LOADERS:
            return f"unknown load program {self.loader!r:.60}"
        if self.scenario not in list_scenarios() or not self.places:
            return "its scenario is unknown to this version of opwatch, or it has no place"
        return None


@dataclass(slots=True)
class ExperimentState:
    """The progress of an experiment: rates by place in the order of the loads, or completed runs in order.

    `round_bytes` is the number of bytes per round in the first run; later runs write the same amount.
    """

    request: ExperimentRequest
    rates: dict[str, list[MixRate]] = field(default_factory=dict)
    runs: list[UntrimmedRun] = field(default_factory=list)
    round_bytes: int | None = None
    stops: list[str] = field(default_factory=list)
    is_ended: bool = False
    cut_bytes: int = 0

    @property
    def completed_count(self) -> int:
        """Return the number of completed loads or runs."""
        return len(self.runs) + sum(map(len, self.rates.values()))


def make_rate_entry(place: str, rate: MixRate) -> dict[str, Any]:
    return {"place": place, **encode(rate)}


def make_run_entry(run: UntrimmedRun, round_bytes: int | None) -> dict[str, Any]:
    return {**encode(run), "round_bytes": round_bytes}


def parse_experiment(raw: bytes, where: str) -> ExperimentState:
    """Return the state recorded in a journal. Raise BadInput if the data are not a journal."""
    (first, *others), cut = parse_entries(raw, where)
    if first.read_text("entry") != "request" or first.read_text("schema") != SCHEMA:
        raise first.make_error(
            f"it is not an experiment journal that this version of opwatch can read ({SCHEMA})"
        )
    state = ExperimentState(decode(ExperimentRequest, first.table, first.where), cut_bytes=cut)
    for fields in others:
        change = _CHANGES.get(fields.read_text("entry"))
        if change:
            change(state, fields)
    return state


def _apply_rate(state: ExperimentState, fields: Fields) -> None:
    place, rate = fields.read_text("place"), decode(MixRate, fields.table, fields.where)
    done = state.rates.setdefault(place, [])
    if not rate.seconds or state.request.loads[len(done) : len(done) + 1] != (rate.load,):
        raise fields.make_error("a load has a duration of 0, or is not the next one")
    if place not in {one.name for one in state.request.places}:
        raise fields.make_error(f"unknown place {place!r:.60}")
    done.append(rate)


def _apply_run(state: ExperimentState, fields: Fields) -> None:
    run = decode(UntrimmedRun, fields.table, fields.where)
    if not run.rounds or not all(one.seconds for one in run.rounds):
        raise fields.make_error("a round has a duration of 0, or there are no rounds")
    state.runs.append(run)
    state.round_bytes = fields.read_count("round_bytes")


def _apply_stopped(state: ExperimentState, fields: Fields) -> None:
    state.stops.append(fields.read_text("reason"))


def _apply_ended(state: ExperimentState, _: Fields) -> None:
    state.is_ended = True


_CHANGES: dict[str, Callable[[ExperimentState, Fields], None]] = {
    "rate": _apply_rate,
    "run": _apply_run,
    "stopped": _apply_stopped,
    "end": _apply_ended,
}
