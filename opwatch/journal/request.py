"""The request for a sweep, as stored in the journal. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from opwatch.fields import Fields
from opwatch.guard.budget import Budget
from opwatch.guard.identity import DiskIdentity, parse_identity
from opwatch.load.options import check_option
from opwatch.load.workload import LoadJob, LoadPattern
from opwatch.pts.order import PtsOrder, parse_order
from opwatch.pts.planning import bound_test_bytes
from opwatch.sweep.levels import LevelFiles, LevelScale, OpBase, OpLevel, OpShare
from opwatch.sweep.methods import FILE_METHODS, SWEEP_METHODS
from opwatch.sweep.plan import SweepPace, SweepSpeed, plan_steps
from opwatch.sweep.purges import DISCARD, FORMAT, SANITIZE, SECURE_ERASE
from opwatch.sweep.room import FilesPlace


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """All settings of a sweep: the same request on the same drive issues the same I/O.

    The seeds of all rounds derive from `secret`. `refresh_s` is the refresh period of the drive's log pages,
    and `patience_s` the time to wait for a refresh. With a PTS `test`, each part of the test takes the place
    of a level. `place` is the location of the sweep's files, or None for a sweep of a whole drive. `scenario`
    is the published experiment that these levels reproduce, or None.
    """

    name: str
    created: str
    identity: DiskIdentity
    levels: tuple[OpLevel, ...]
    method: str
    pattern: LoadPattern
    pace: SweepPace
    budget: Budget
    secret: str
    allow_virtual: bool = False
    refresh_s: float | None = None
    patience_s: float = 0.0
    purge: str = DISCARD.name
    test: PtsOrder | None = None
    place: FilesPlace | None = None
    scenario: str | None = None

    def bound_planned_bytes(self, places: Iterable[int]) -> int:
        """Return the predictable upper bound of the bytes written by levels or parts of a test."""
        if self.test:
            capacity = self.levels[0].scale.capacity_bytes
            parts = self.test.parts
            return sum(bound_test_bytes(parts[place], capacity) or 0 for place in places)
        return bound_level_bytes([self.levels[place] for place in places], self.method, self.pace)

    def to_document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "created": self.created,
            "disk": self.identity.to_document(),
            "levels": [asdict(level) for level in self.levels],
            "method": self.method,
            "workload": {
                "name": self.pattern.name,
                "description": self.pattern.description,
                "jobs": [dict(job.options) for job in self.pattern.jobs],
            },
            "pace": asdict(self.pace),
            "budget": asdict(self.budget),
            "secret": self.secret,
            "allow_virtual": self.allow_virtual,
            "refresh_s": self.refresh_s,
            "patience_s": self.patience_s,
            "purge": self.purge,
            "test": self.test.to_document() if self.test else None,
            "place": asdict(self.place) if self.place else None,
            "scenario": self.scenario,
        }


def bound_level_bytes(levels: Sequence[OpLevel], method: str, pace: SweepPace) -> int:
    """Return the upper bound of the bytes written by these levels."""
    steps = plan_steps(levels, method, pace, SweepSpeed())
    return sum(step.write_bytes * step.at_most for step in steps)


def parse_request(fields: Fields) -> SweepRequest:
    """Parse a request written by document(). Raises BadInput for anything else."""
    request = SweepRequest(
        name=fields.read_text("name"),
        created=fields.read_text("created"),
        identity=parse_identity(fields.read_subtable("disk")),
        levels=tuple(_parse_level(_require_row(row, fields, "levels")) for row in fields.read_list("levels")),
        method=_parse_method(fields),
        pattern=_parse_pattern(fields.read_subtable("workload")),
        pace=_parse_pace(fields.read_subtable("pace")),
        budget=_parse_budget(fields.read_subtable("budget")),
        secret=fields.read_text("secret"),
        allow_virtual=fields.read_flag("allow_virtual"),
        refresh_s=fields.read_optional("refresh_s", fields.read_amount),
        patience_s=fields.read_amount("patience_s"),
        purge=_parse_purge(fields),
        test=parse_order(fields.read_subtable("test")) if fields.table.get("test") is not None else None,
        place=_parse_place(fields.read_subtable("place")) if fields.table.get("place") is not None else None,
        scenario=fields.read_optional("scenario", fields.read_text),
    )
    if (request.place is not None) != (request.method in FILE_METHODS):
        raise fields.make_error("place does not fit its method")
    if request.test and len(request.test.parts) != len(request.levels):
        raise fields.make_error("the number of levels is not the number of parts of its test")
    return request


def _parse_method(fields: Fields) -> str:
    """Return the method.

    Reject unknown methods, because a sweep would otherwise run with a different method.
    """
    name = fields.read_text("method")
    if name not in SWEEP_METHODS:
        raise fields.make_error(f"method {name!r:.60} is unknown to this version of opwatch")
    return name


def _parse_purge(fields: Fields) -> str:
    """Return the purge method. Reject unknown methods, as for the sweep's method."""
    name = fields.read_text("purge")
    if name not in (DISCARD.name, FORMAT.name, SANITIZE.name, SECURE_ERASE.name):
        raise fields.make_error(f"purge {name!r:.60} is unknown to this version of opwatch")
    return name


def _require_row(row: object, fields: Fields, key: str) -> Fields:
    if not isinstance(row, dict):
        raise fields.make_error(f"{key} is not a list of tables")
    return Fields(row, f"{fields.where}: {key}")


def _parse_level(fields: Fields) -> OpLevel:
    scale = fields.read_subtable("scale")
    level = OpLevel(
        label=fields.read_text("label"),
        usable_bytes=fields.read_count("usable_bytes"),
        scale=LevelScale(
            capacity_bytes=scale.read_count("capacity_bytes"),
            share=scale.read_member("share", OpShare),
            base=scale.read_member("base", OpBase),
            align_bytes=scale.read_count("align_bytes"),
        ),
        flash_bytes=fields.read_optional("flash_bytes", fields.read_count),
        files=_parse_files(fields.read_subtable("files")) if fields.table.get("files") is not None else None,
    )
    if not 0 < level.active_bytes <= level.usable_bytes <= level.scale.capacity_bytes:
        raise fields.make_error("usable_bytes is 0 or above the capacity")
    return level


def _parse_files(fields: Fields) -> LevelFiles:
    files = LevelFiles(fields.read_count("load_bytes"), fields.read_count("ballast_bytes"))
    if not files.load_bytes:
        raise fields.make_error("load_bytes is 0")
    return files


def _parse_place(fields: Fields) -> FilesPlace:
    return FilesPlace(
        fields.read_text("point"), fields.read_count("begin_bytes"), fields.read_count("size_bytes")
    )


def _parse_pattern(fields: Fields) -> LoadPattern:
    """Return the workload.

    The options come from a file and are therefore checked like a user's workload before reaching fio.
    """
    jobs = []
    for row in fields.read_list("jobs"):
        table = _require_row(row, fields, "jobs")
        options: Mapping[str, str] = dict(
            option for key in table.table if (option := check_option(key, table.read_text(key), fields.where))
        )
        if "rw" not in options:
            raise table.make_error("a job has no rw")
        jobs.append(LoadJob(options))
    return LoadPattern(fields.read_text("name"), fields.read_text("description"), tuple(jobs))


def _parse_pace(fields: Fields) -> SweepPace:
    return SweepPace(
        fill_passes=fields.read_count("fill_passes"),
        round_ratio=fields.read_amount("round_ratio"),
        least_rounds=fields.read_count("least_rounds"),
        most_rounds=fields.read_count("most_rounds"),
        settle_s=fields.read_amount("settle_s"),
        sprandom=fields.read_flag("sprandom"),
        probe_s=fields.read_amount("probe_s"),
    )


def _parse_budget(fields: Fields) -> Budget:
    return Budget(
        write_bytes=fields.read_count("write_bytes"),
        life_percent=fields.read_count("life_percent"),
        celsius=fields.read_count("celsius"),
        is_of_plan=fields.read_flag("is_of_plan"),
    )
