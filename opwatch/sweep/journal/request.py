"""The request for a sweep, as stored in the journal. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from opwatch.fields import Fields
from opwatch.guard.budget import Budget
from opwatch.guard.identity import DiskIdentity, identity_of
from opwatch.load.options import checked
from opwatch.load.workload import LoadJob, LoadPattern
from opwatch.pts.order import PtsOrder, order_of
from opwatch.pts.planning import planned_test_bytes
from opwatch.sweep.levels import LevelFiles, LevelScale, OpBase, OpLevel, OpShare
from opwatch.sweep.methods import ON_FILES, SWEPT
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

    def planned_bytes(self, places: Iterable[int]) -> int:
        """Return the predictable upper bound of the bytes written by levels or parts of a test."""
        if self.test:
            capacity = self.levels[0].scale.capacity_bytes
            parts = self.test.parts
            return sum(planned_test_bytes(parts[place], capacity) or 0 for place in places)
        return planned_bytes([self.levels[place] for place in places], self.method, self.pace)

    def document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "created": self.created,
            "disk": self.identity.document(),
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
            "test": self.test.document() if self.test else None,
            "place": asdict(self.place) if self.place else None,
            "scenario": self.scenario,
        }


def planned_bytes(levels: Sequence[OpLevel], method: str, pace: SweepPace) -> int:
    """Return the upper bound of the bytes written by these levels."""
    steps = plan_steps(levels, method, pace, SweepSpeed())
    return sum(step.write_bytes * step.at_most for step in steps)


def request_of(fields: Fields) -> SweepRequest:
    """Parse a request written by document(). Raises BadInput for anything else."""
    request = SweepRequest(
        name=fields.text("name"),
        created=fields.text("created"),
        identity=identity_of(fields.sub("disk")),
        levels=tuple(_level(_row(row, fields, "levels")) for row in fields.rows("levels")),
        method=_method(fields),
        pattern=_pattern(fields.sub("workload")),
        pace=_pace(fields.sub("pace")),
        budget=_budget(fields.sub("budget")),
        secret=fields.text("secret"),
        allow_virtual=fields.flag("allow_virtual"),
        refresh_s=fields.optional("refresh_s", fields.amount),
        patience_s=fields.amount("patience_s"),
        purge=_purge(fields),
        test=order_of(fields.sub("test")) if fields.table.get("test") is not None else None,
        place=_place(fields.sub("place")) if fields.table.get("place") is not None else None,
        # Journals of older versions have no scenario.
        scenario=fields.optional("scenario", fields.text),
    )
    if (request.place is not None) != (request.method in ON_FILES):
        raise fields.bad("place does not go with its method")
    if request.test and len(request.test.parts) != len(request.levels):
        raise fields.bad("levels are not as many as the parts of its test")
    return request


def _method(fields: Fields) -> str:
    """Return the method.

    Reject unknown methods, because a sweep would otherwise run with a different method.
    """
    name = fields.text("method")
    if name not in SWEPT:
        raise fields.bad(f"method {name!r:.60} is none that this opwatch sweeps by")
    return name


def _purge(fields: Fields) -> str:
    """Return the purge method. Journals of older versions have none: discard was the only one."""
    name = fields.optional("purge", fields.text) or DISCARD.name
    if name not in (DISCARD.name, FORMAT.name, SANITIZE.name, SECURE_ERASE.name):
        raise fields.bad(f"purge {name!r:.60} is none that a sweep begins with")
    return name


def _row(row: object, fields: Fields, key: str) -> Fields:
    if not isinstance(row, dict):
        raise fields.bad(f"{key} is no list of tables")
    return Fields(row, f"{fields.where}: {key}")


def _level(fields: Fields) -> OpLevel:
    scale = fields.sub("scale")
    level = OpLevel(
        label=fields.text("label"),
        usable_bytes=fields.count("usable_bytes"),
        scale=LevelScale(
            capacity_bytes=scale.count("capacity_bytes"),
            share=scale.kind("share", OpShare),
            base=scale.kind("base", OpBase),
            align_bytes=scale.count("align_bytes"),
        ),
        flash_bytes=fields.optional("flash_bytes", fields.count),
        # Journals of older versions have no levels made of files.
        files=_files(fields.sub("files")) if fields.table.get("files") is not None else None,
    )
    if not 0 < level.active_bytes <= level.usable_bytes <= level.scale.capacity_bytes:
        raise fields.bad("usable_bytes is more than there is, or nothing")
    return level


def _files(fields: Fields) -> LevelFiles:
    files = LevelFiles(fields.count("load_bytes"), fields.count("ballast_bytes"))
    if not files.load_bytes:
        raise fields.bad("load_bytes is nothing")
    return files


def _place(fields: Fields) -> FilesPlace:
    return FilesPlace(fields.text("point"), fields.count("begin_bytes"), fields.count("size_bytes"))


def _pattern(fields: Fields) -> LoadPattern:
    """Return the workload.

    The options come from a file and are therefore checked like a user's workload before reaching fio.
    """
    jobs = []
    for row in fields.rows("jobs"):
        table = _row(row, fields, "jobs")
        options: Mapping[str, str] = dict(
            option for key in table.table if (option := checked(key, table.text(key), fields.where))
        )
        if "rw" not in options:
            raise table.bad("a job has no rw")
        jobs.append(LoadJob(options))
    return LoadPattern(fields.text("name"), fields.text("description"), tuple(jobs))


def _pace(fields: Fields) -> SweepPace:
    return SweepPace(
        fill_passes=fields.count("fill_passes"),
        round_ratio=fields.amount("round_ratio"),
        least_rounds=fields.count("least_rounds"),
        most_rounds=fields.count("most_rounds"),
        settle_s=fields.amount("settle_s"),
        # Journals of older versions have no sprandom field.
        sprandom=bool(fields.optional("sprandom", fields.flag)),
        probe_s=fields.optional("probe_s", fields.amount) or 0.0,
    )


def _budget(fields: Fields) -> Budget:
    return Budget(
        write_bytes=fields.count("write_bytes"),
        life_percent=fields.count("life_percent"),
        celsius=fields.count("celsius"),
        is_of_plan=fields.flag("is_of_plan"),
    )
