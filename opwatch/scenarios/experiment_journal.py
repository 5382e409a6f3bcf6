"""The request and progress of an experiment on file systems, as stored in its journal. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from opwatch.fields import Fields
from opwatch.load.sysbench import FIO, LOADERS
from opwatch.scenarios.mixed import MemberCount, MixLoad, MixRate
from opwatch.scenarios.scenario import scenario_names
from opwatch.scenarios.untrimmed import Foretold, UntrimmedRun, WrittenRound
from opwatch.sweep.journal.state import entries_of

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

    def document(self) -> dict[str, Any]:
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
    def done(self) -> int:
        """Return the number of completed loads or runs."""
        return len(self.runs) + sum(map(len, self.rates.values()))


def rate_entry(place: str, rate: MixRate) -> dict[str, Any]:
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


def run_entry(run: UntrimmedRun, round_bytes: int | None) -> dict[str, Any]:
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
    (first, *others), cut = entries_of(raw, where)
    if first.text("entry") != "request" or first.text("schema") != SCHEMA:
        raise first.bad(f"it is no journal of an experiment that this opwatch knows ({SCHEMA})")
    state = ExperimentState(_request(first), cut_bytes=cut)
    for fields in others:
        change = _CHANGES.get(fields.text("entry"))
        if change:
            change(state, fields)
    return state


def _request(fields: Fields) -> ExperimentRequest:
    changes = fields.sub("changes")
    request = ExperimentRequest(
        name=fields.text("name"),
        created=fields.text("created"),
        scenario=fields.text("scenario"),
        changes={key: _number(changes, key) for key in changes.table},
        places=tuple(map(_place, fields.tables("places", "a place"))),
        loads=tuple(map(_load, fields.tables("loads", "a load"))),
        io_bytes=fields.count("io_bytes"),
        queue_depth=fields.count("queue_depth"),
        seed=fields.count("seed"),
        loader=fields.text("loader"),
    )
    if request.loader not in LOADERS:
        raise fields.bad(f"nobody here makes a load by {request.loader!r:.60}")
    if request.scenario not in scenario_names() or not request.places:
        raise fields.bad("it is of no scenario that this opwatch knows, or of no place")
    return request


def _number(fields: Fields, key: str) -> float:
    """Sizes and round counts are integers and must remain integers."""
    return fields.count(key) if isinstance(fields.table[key], int) else fields.amount(key)


def _place(fields: Fields) -> ExperimentPlace:
    place = ExperimentPlace(
        fields.text("name"), fields.text("folder"), fields.text("mark"), fields.count("used_bytes")
    )
    if not place.used_bytes:
        raise fields.bad("nothing of it is used")
    return place


def _load(fields: Fields) -> MixLoad:
    load = MixLoad(
        fields.text("name"),
        fields.count("rdpct"),
        fields.count("seekpct"),
        fields.count("xfersize"),
        fields.optional("threads", fields.count),
    )
    if load.rdpct > 100 or load.seekpct > 100 or not load.xfersize:
        raise fields.bad("there is no such load")
    return load


def _rate(state: ExperimentState, fields: Fields) -> None:
    place, members = fields.text("place"), fields.sub("members")
    rate = MixRate(
        load=_load(fields.sub("load")),
        reads=fields.count("reads"),
        writes=fields.count("writes"),
        moved_bytes=fields.count("moved_bytes"),
        seconds=fields.amount("seconds"),
        mean_ns=fields.optional("mean_ns", fields.amount),
        cpu_ratio=fields.amount("cpu_ratio"),
        members={name: _member(members, name) for name in members.table},
    )
    done = state.rates.setdefault(place, [])
    if not rate.seconds or state.request.loads[len(done) : len(done) + 1] != (rate.load,):
        raise fields.bad("a load took no time, or is not the next one")
    if place not in {one.name for one in state.request.places}:
        raise fields.bad(f"there is no place {place!r:.60}")
    done.append(rate)


def _member(members: Fields, name: str) -> MemberCount | None:
    if members.table[name] is None:
        return None
    counts = members.rows(name)
    if len(counts) != len(MemberCount._fields):
        raise members.bad(f"{name!r:.60} has other counts than a disk")
    return MemberCount(*(members.count_of(count, name) for count in counts))


def _run(state: ExperimentState, fields: Fields) -> None:
    foretold = fields.sub("foretold")
    run = UntrimmedRun(
        name=fields.text("name"),
        free_bytes=fields.amount("free_bytes"),
        stale_bytes=fields.amount("stale_bytes"),
        foretold=Foretold(
            foretold.amount("room_bytes"),
            foretold.optional("cache_bytes", foretold.amount),
            foretold.amount("cliff_bytes"),
        ),
        rounds=tuple(WrittenRound(*row) for row in fields.amounts("rounds", 2)),
        cliff_bytes=fields.optional("cliff_bytes", fields.amount),
        idle_bytes=fields.amount("idle_bytes"),
    )
    if not run.rounds or not all(one.seconds for one in run.rounds):
        raise fields.bad("a round took no time, or there is none")
    state.runs.append(run)
    state.round_bytes = fields.count("round_bytes")


def _stopped(state: ExperimentState, fields: Fields) -> None:
    state.stops.append(fields.text("reason"))


def _ended(state: ExperimentState, _: Fields) -> None:
    state.is_ended = True


_CHANGES: dict[str, Callable[[ExperimentState, Fields], None]] = {
    "rate": _rate,
    "run": _run,
    "stopped": _stopped,
    "end": _ended,
}
