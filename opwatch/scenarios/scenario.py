"""Definition of a published experiment: procedure, drive, and source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from importlib import resources

from opwatch.errors import UsageError
from opwatch.fields import Fields
from opwatch.scenarios.claims import (
    Judgement,
    PublishedClaim,
    ScenarioEvidence,
    judge_claims,
    make_self_check,
    parse_claims,
    select_claims,
)
from opwatch.settings import parse_toml
from opwatch.sweep.levels import LevelScale, OpLevel
from opwatch.sweep.plan import SweepPace

_FOLDER = "published"
_TABLES = ("setup", "published", "sets")


class ScenarioKind(StrEnum):
    """The kind of experiment."""

    SATURATION = "saturation"
    FREE_SPACE = "free space"
    UNTRIMMED = "untrimmed cliff"
    IOMETER = "iometer"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One experiment; the fields are the keys of its file.

    `claims` are the author's, `checks` compare our own model with theory.
    `levels` are unused shares of the visible capacity. `drives` has the levels of each drive that the author
    tested, by the name of its profile: labels, and the bytes in use. `reserved_percent` is the reserve of a
    second line, and `published_rates` are the author's rates at the levels. `setup` holds the numbers that
    --set can change, `published` other figures of the author, and `sets` the disks and sets of a model.
    """

    name: str
    kind: ScenarioKind
    title: str
    source: str
    profile: str
    io_bytes: int
    queue_depth: int
    remark: str
    claims: tuple[PublishedClaim, ...] = ()
    checks: tuple[PublishedClaim, ...] = ()
    model_pace: SweepPace = field(default_factory=SweepPace)
    drive_pace: SweepPace = field(default_factory=SweepPace)
    levels: str = ""
    drives: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    reserved_percent: float = 0.0
    published_rates: Sequence[float] = ()
    setup: Fields = field(default_factory=lambda: Fields({}, "no setup"))
    published: Fields = field(default_factory=lambda: Fields({}, "nothing published"))
    sets: Fields = field(default_factory=lambda: Fields({}, "no sets of disks"))

    @property
    def reserved_ratio(self) -> float:
        return self.reserved_percent / 100

    def judge(self, evidence: ScenarioEvidence, on: str = "", drive: str = "") -> Judgement:
        """Judge the claims and checks about a "model" or a "drive", and about the drive of this profile."""
        claims, checks = (
            judge_claims(select_claims(one, on, drive), evidence) for one in (self.claims, self.checks)
        )
        return Judgement(claims, tuple(map(make_self_check, checks)))

    def with_setup(self, changes: Mapping[str, float]) -> Scenario:
        """Return a copy with changed setup values. Raise UsageError for unknown keys."""
        unknown = sorted(set(changes) - set(self.setup.table))
        if unknown:
            known = ", ".join(
                key for key, value in self.setup.table.items() if isinstance(value, int | float)
            )
            raise UsageError(f"--set {unknown[0]}: unknown key; scenario {self.name} has {known or 'none'}")
        return replace(self, setup=replace(self.setup, table=self.setup.table | dict(changes)))

    def make_tested_levels(
        self, profile: str, scale: LevelScale, flash_bytes: int | None
    ) -> tuple[OpLevel, ...]:
        """Return the levels at which the author tested this drive, or none."""
        return tuple(
            OpLevel(label, used - used % scale.align_bytes, scale, flash_bytes)
            for label, used in self.drives.get(profile, {}).items()
        )

    def without_published(self) -> Scenario:
        """Return a copy for levels that the author did not measure."""
        return replace(self, published=Fields({}, "nothing published"))


def list_scenarios() -> list[str]:
    """Return the names of the available experiments."""
    folder = resources.files("opwatch.scenarios") / _FOLDER
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))


def load_scenario(name: str) -> Scenario:
    """Return the experiment of this name. Raise UsageError with the available names if unknown."""
    if name not in list_scenarios():
        raise UsageError(f"unknown scenario {name}; available: {', '.join(list_scenarios())}")
    where = f"scenario {name}"
    raw = (resources.files("opwatch.scenarios") / _FOLDER / f"{name}.toml").read_bytes()
    table = parse_toml(raw, where)
    table |= {key: Fields(table[key], f"{where}: {key}") for key in _TABLES if key in table}
    table |= {key: SweepPace(**table[key]) for key in ("model_pace", "drive_pace") if key in table}
    table |= {key: parse_claims(table.get(key, ())) for key in ("claims", "checks")}
    table |= {"kind": ScenarioKind(table["kind"])}
    return Scenario(name=name, **table)
