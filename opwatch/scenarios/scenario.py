"""A published experiment as data: what was done, on what, and who says so."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from importlib import resources

from opwatch.errors import UsageError
from opwatch.fields import Fields
from opwatch.settings import parse_toml

_FOLDER = "published"


class ScenarioKind(StrEnum):
    """What is done, and what is asked of it."""

    SATURATION = "saturation"
    FREE_SPACE = "free space"


class ScenarioVerdict(StrEnum):
    """Whether something came out as it should."""

    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not reproduced"
    UNTOLD = "cannot be told"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One experiment. `levels` are shares that the host leaves unused: of the whole flash in a saturation, of
    what the drive shows where it is about free space. `reserved_ratio` is what the second line has less, and
    `published_rates` are what the author measured at the levels."""

    kind: ScenarioKind
    name: str
    title: str
    source: str
    profile: str
    io_bytes: int
    queue_depth: int
    levels: str
    remark: str
    reserved_ratio: float = 0.0
    published_rates: tuple[float, ...] = ()


def scenario_names() -> list[str]:
    """The experiments that can be repeated."""
    folder = resources.files("opwatch.scenarios") / _FOLDER
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))


def scenario_of(name: str) -> Scenario:
    """The experiment of this name; UsageError with those that there are."""
    if name not in scenario_names():
        raise UsageError(f"there is no scenario {name}: there are {', '.join(scenario_names())}")
    where = f"scenario {name}"
    raw = (resources.files("opwatch.scenarios") / _FOLDER / f"{name}.toml").read_bytes()
    fields = Fields(parse_toml(raw, where), where)
    rates = fields.rows("published_rates") if "published_rates" in fields.table else []
    return Scenario(
        kind=fields.kind("kind", ScenarioKind),
        name=name,
        title=fields.text("title"),
        source=fields.text("source"),
        profile=fields.text("profile"),
        io_bytes=fields.count("io_bytes"),
        queue_depth=fields.count("queue_depth"),
        levels=fields.text("levels"),
        remark=fields.text("remark"),
        reserved_ratio=(fields.optional("reserved_percent", fields.amount) or 0.0) / 100,
        published_rates=tuple(float(rate) for rate in rates),
    )
