"""Definition of a published experiment: procedure, drive, and source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from importlib import resources

from opwatch.errors import UsageError
from opwatch.fields import Fields
from opwatch.scenarios.claims import PublishedClaim, parse_claims
from opwatch.settings import parse_toml
from opwatch.sweep.plan import SweepPace

_FOLDER = "published"


class ScenarioKind(StrEnum):
    """The kind of experiment."""

    SATURATION = "saturation"
    FREE_SPACE = "free space"
    UNTRIMMED = "untrimmed cliff"
    IOMETER = "iometer"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One experiment.

    `levels` are unused shares: of the whole flash in a saturation, of the visible capacity in a free-space
    experiment; `drive_levels` are those on a drive, of the visible capacity. `reserved_ratio` is the reserve
    of the second line. `published_rates` are the author's rates at the levels. Other kinds keep their
    parameters in `setup` and their results in `published`.
    """

    kind: ScenarioKind
    name: str
    title: str
    source: str
    profile: str
    io_bytes: int
    queue_depth: int
    remark: str
    claims: tuple[PublishedClaim, ...]
    model_pace: SweepPace
    drive_pace: SweepPace
    levels: str = ""
    is_of_flash: bool = False
    drive_levels: str = ""
    reserved_ratio: float = 0.0
    published_rates: tuple[float, ...] = ()
    setup: Fields = field(default_factory=lambda: Fields({}, "no setup"))
    published: Fields = field(default_factory=lambda: Fields({}, "nothing published"))

    def with_setup(self, changes: Mapping[str, float]) -> Scenario:
        """Return a copy with changed setup values. Raise UsageError for unknown keys."""
        unknown = sorted(set(changes) - set(self.setup.table))
        if unknown:
            known = ", ".join(
                key for key, value in self.setup.table.items() if isinstance(value, int | float)
            )
            raise UsageError(f"--set {unknown[0]}: unknown key; scenario {self.name} has {known or 'none'}")
        return replace(self, setup=replace(self.setup, table=self.setup.table | dict(changes)))

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
    fields = Fields(parse_toml(raw, where), where)
    rates = fields.read_list("published_rates") if "published_rates" in fields.table else []
    levels, paces = fields.read_optional("levels", fields.read_text) or "", _find_subtable(fields, "pace")
    return Scenario(
        kind=fields.read_member("kind", ScenarioKind),
        name=name,
        title=fields.read_text("title"),
        source=fields.read_text("source"),
        profile=fields.read_text("profile"),
        io_bytes=fields.read_count("io_bytes"),
        queue_depth=fields.read_count("queue_depth"),
        remark=fields.read_text("remark"),
        claims=parse_claims(fields),
        model_pace=_parse_pace(paces, "model"),
        drive_pace=_parse_pace(paces, "drive"),
        levels=levels,
        is_of_flash=fields.read_optional("levels_of_flash", fields.read_flag) or False,
        drive_levels=fields.read_optional("drive_levels", fields.read_text) or levels,
        reserved_ratio=(fields.read_optional("reserved_percent", fields.read_amount) or 0.0) / 100,
        published_rates=tuple(float(rate) for rate in rates),
        setup=_find_subtable(fields, "setup"),
        published=_find_subtable(fields, "published"),
    )


def _find_subtable(fields: Fields, key: str) -> Fields:
    return fields.read_subtable(key) if key in fields.table else Fields({}, fields.where)


def _parse_pace(paces: Fields, key: str) -> SweepPace:
    """Return the pace on a model or on a drive; the usual values where the experiment sets none."""
    return replace(SweepPace(), **_find_subtable(paces, key).table)
