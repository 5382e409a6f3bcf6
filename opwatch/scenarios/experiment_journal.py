"""The request and progress of an experiment on file systems, as stored in its journal. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from opwatch.fields import Fields
from opwatch.journal.state import parse_entries
from opwatch.load.sysbench import FIO, LOADERS
from opwatch.scenarios.mixed import MemberCount, MixLoad, MixRate
from opwatch.scenarios.scenario import list_scenarios
from opwatch.scenarios.untrimmed import CliffPrediction, UntrimmedRun, WrittenRound

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

    def to_document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "created": self.created,
            "scenario": self.scenario,
            "changes": dict(self.changes),
            "places": [asdict(place) for place in self.places],
            "loads": [load._asdict() for load in self.loads],
            "io_bytes": self.io_bytes,
            "queue_depth": self.queue_depth,
            "seed": self.seed,
            "loader": self.loader,
        }


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
    members = {name: list(count) if count else None for name, count in rate.members.items()}
    return {
        "place": place,
        "load": rate.load._asdict(),
        "reads": rate.reads,
        "writes": rate.writes,
        "moved_bytes": rate.moved_bytes,
        "seconds": rate.seconds,
        "mean_ns": rate.mean_ns,
        "cpu_ratio": rate.cpu_ratio,
        "members": members,
    }


def make_run_entry(run: UntrimmedRun, round_bytes: int | None) -> dict[str, Any]:
    return {
        "name": run.name,
        "free_bytes": run.free_bytes,
        "stale_bytes": run.stale_bytes,
        "foretold": run.foretold._asdict(),
        "rounds": [list(one) for one in run.rounds],
        "cliff_bytes": run.cliff_bytes,
        "idle_bytes": run.idle_bytes,
        "round_bytes": round_bytes,
    }


def parse_experiment(raw: bytes, where: str) -> ExperimentState:
    """Return the state recorded in a journal. Raise BadInput if the data are not a journal."""
    (first, *others), cut = parse_entries(raw, where)
    if first.read_text("entry") != "request" or first.read_text("schema") != SCHEMA:
        raise first.make_error(
            f"it is not an experiment journal that this version of opwatch can read ({SCHEMA})"
        )
    state = ExperimentState(_parse_request(first), cut_bytes=cut)
    for fields in others:
        change = _CHANGES.get(fields.read_text("entry"))
        if change:
            change(state, fields)
    return state


def _parse_request(fields: Fields) -> ExperimentRequest:
    changes = fields.read_subtable("changes")
    request = ExperimentRequest(
        name=fields.read_text("name"),
        created=fields.read_text("created"),
        scenario=fields.read_text("scenario"),
        changes={key: _parse_number(changes, key) for key in changes.table},
        places=tuple(map(_parse_place, fields.read_subtables("places", "a place"))),
        loads=tuple(map(_parse_load, fields.read_subtables("loads", "a load"))),
        io_bytes=fields.read_count("io_bytes"),
        queue_depth=fields.read_count("queue_depth"),
        seed=fields.read_count("seed"),
        loader=fields.read_text("loader"),
    )
    if request.loader not in LOADERS:
        raise fields.make_error(f"unknown load program {request.loader!r:.60}")
    if request.scenario not in list_scenarios() or not request.places:
        raise fields.make_error("its scenario is unknown to this version of opwatch, or it has no place")
    return request


def _parse_number(fields: Fields, key: str) -> float:
    """Sizes and round counts are integers and must remain integers."""
    return fields.read_count(key) if isinstance(fields.table[key], int) else fields.read_amount(key)


def _parse_place(fields: Fields) -> ExperimentPlace:
    place = ExperimentPlace(
        fields.read_text("name"),
        fields.read_text("folder"),
        fields.read_text("mark"),
        fields.read_count("used_bytes"),
    )
    if not place.used_bytes:
        raise fields.make_error("0 bytes of it are used")
    return place


def _parse_load(fields: Fields) -> MixLoad:
    load = MixLoad(
        fields.read_text("name"),
        fields.read_count("rdpct"),
        fields.read_count("seekpct"),
        fields.read_count("xfersize"),
        fields.read_optional("threads", fields.read_count),
    )
    if load.rdpct > 100 or load.seekpct > 100 or not load.xfersize:
        raise fields.make_error("unknown load")
    return load


def _apply_rate(state: ExperimentState, fields: Fields) -> None:
    place, members = fields.read_text("place"), fields.read_subtable("members")
    rate = MixRate(
        load=_parse_load(fields.read_subtable("load")),
        reads=fields.read_count("reads"),
        writes=fields.read_count("writes"),
        moved_bytes=fields.read_count("moved_bytes"),
        seconds=fields.read_amount("seconds"),
        mean_ns=fields.read_optional("mean_ns", fields.read_amount),
        cpu_ratio=fields.read_amount("cpu_ratio"),
        members={name: _parse_member(members, name) for name in members.table},
    )
    done = state.rates.setdefault(place, [])
    if not rate.seconds or state.request.loads[len(done) : len(done) + 1] != (rate.load,):
        raise fields.make_error("a load has a duration of 0, or is not the next one")
    if place not in {one.name for one in state.request.places}:
        raise fields.make_error(f"unknown place {place!r:.60}")
    done.append(rate)


def _parse_member(members: Fields, name: str) -> MemberCount | None:
    if members.table[name] is None:
        return None
    counts = members.read_list(name)
    if len(counts) != len(MemberCount._fields):
        raise members.make_error(f"{name!r:.60} has other counters than a disk")
    return MemberCount(*(members.check_count(count, name) for count in counts))


def _apply_run(state: ExperimentState, fields: Fields) -> None:
    foretold = fields.read_subtable("foretold")
    run = UntrimmedRun(
        name=fields.read_text("name"),
        free_bytes=fields.read_amount("free_bytes"),
        stale_bytes=fields.read_amount("stale_bytes"),
        foretold=CliffPrediction(
            foretold.read_amount("room_bytes"),
            foretold.read_optional("cache_bytes", foretold.read_amount),
            foretold.read_amount("cliff_bytes"),
        ),
        rounds=tuple(WrittenRound(*row) for row in fields.read_amount_lists("rounds", 2)),
        cliff_bytes=fields.read_optional("cliff_bytes", fields.read_amount),
        idle_bytes=fields.read_amount("idle_bytes"),
    )
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
