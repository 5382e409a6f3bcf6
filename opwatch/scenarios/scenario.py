"""Definition of a published experiment: procedure, drive, and source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """One experiment; the fields are the keys of its file.

    `levels` are unused shares: of all flash if `levels_of_flash`, otherwise of the visible capacity;
    `drive_levels` are those on a drive, always of the visible capacity. `reserved_percent` is the reserve of
    a second line, and `published_rates` are the author's rates at the levels. `setup` holds the numbers that
    --set can change, and `published` other figures of the author.
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
    model_pace: SweepPace = field(default_factory=SweepPace)
    drive_pace: SweepPace = field(default_factory=SweepPace)
    levels: str = ""
    levels_of_flash: bool = False
    drive_levels: str = ""
    reserved_percent: float = 0.0
    published_rates: Sequence[float] = ()
    setup: Fields = field(default_factory=lambda: Fields({}, "no setup"))
    published: Fields = field(default_factory=lambda: Fields({}, "nothing published"))

    @property
    def reserved_ratio(self) -> float:
        return self.reserved_percent / 100

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
    table = parse_toml(raw, where)
    table |= {key: Fields(table[key], f"{where}: {key}") for key in ("setup", "published") if key in table}
    table |= {key: SweepPace(**table[key]) for key in ("model_pace", "drive_pace") if key in table}
    table |= {"kind": ScenarioKind(table["kind"]), "claims": parse_claims(table.get("claims", ()))}
    return Scenario(name=name, **{"drive_levels": table.get("levels", ""), **table})
