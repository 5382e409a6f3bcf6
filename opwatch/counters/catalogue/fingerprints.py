"""Units learned from many drives: the set of attribute ids identifies the controller firmware and the unit.

`make learn-counters` writes the rules. A set whose drives disagree is contested and proves no unit, and
neither do similar sets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from opwatch.errors import BadInput, UsageError
from opwatch.foreign import read_bytes
from opwatch.settings import parse_toml

PACKAGED = Path(__file__).parent / "learned" / "ata.toml"
# Ids used by all vendors, which differ between firmwares of one controller.
COMMON = frozenset((1, 2, 3, 5, *range(7, 14), 183, 184, *range(187, 202), 240, 254))
# Fewer ids than this do not identify a firmware.
_MIN_CORE = 4
# Minimum overlap of similar sets, and minimum number of drives behind them. All similar sets must agree.
_MIN_SIMILARITY, _MIN_SIMILAR = 0.8, 30
_MAX_UNIT = 1 << 40
_LINE = re.compile(
    r"(?:(?P<of>[0-9]{1,3}) x (?P<unit>[0-9]{1,13})(?: in steps of (?P<step>[0-9]{1,7}))?|contested), "
    r"(?P<drives>[0-9]{1,9}) drives, (?P<models>[0-9]{1,9}) models, (?P<share>[01]\.[0-9]{1,6})"
    r"(?:, only (?P<brand>[A-Z]{1,20}))?"
    r"(?:, not (?P<firmwares>[A-Za-z0-9._-]{1,16}(?: [A-Za-z0-9._-]{1,16}){0,63}))?: "
    r"(?P<ids>[0-9]{1,3}(?: [0-9]{1,3}){0,254})"
)
Ids = frozenset[int]
# Firmware revisions that a rule can name.
FIRMWARE = re.compile(r"[A-Za-z0-9._-]{1,16}")
_BRAND = re.compile(r"[A-Za-z]{1,20}")


def find_brand(model: str | None) -> str:
    """Return the first word of a model name, usually the vendor, or an empty string."""
    word = _BRAND.match(model or "")
    return word[0].upper() if word else ""


@dataclass(frozen=True, slots=True)
class UnitRule:
    """Unit of the host writes for one set of ids: attribute `of` counts `unit` bytes in steps of `step`
    units.

    `unit` is 0 if the drives disagree. `brand`: the only brand the rule holds for, because few drives support
    it. Drives with a firmware in `not_firmware` count in another unit.
    """

    of: int
    unit: int
    drives: int
    models: int
    share: float = 1.0
    brand: str | None = None
    step: int = 1
    not_firmware: tuple[str, ...] = ()

    @property
    def is_contested(self) -> bool:
        return self.unit == 0

    @property
    def quantum_bytes(self) -> int:
        """Return the bytes of one counter step."""
        return self.unit * self.step

    def covers_model(self, model: str | None, firmware: str | None) -> bool:
        """Return whether the rule covers this model and firmware."""
        return self.brand in (None, find_brand(model)) and firmware not in self.not_firmware

    @property
    def evidence(self) -> str:
        return f"{self.drives} drives of {self.models} models with these attributes, {self.share:.1%} agree"


def find_core_ids(ids: Iterable[int]) -> Ids:
    """Return the ids that distinguish firmwares."""
    return frozenset(ids) - COMMON


@dataclass(frozen=True, slots=True)
class UnitRules:
    """Unit rules by the full set of ids and by the distinguishing ids."""

    exact: Mapping[Ids, UnitRule] = field(default_factory=dict)
    core: Mapping[Ids, UnitRule] = field(default_factory=dict)

    def find_rule(self, ids: Ids) -> UnitRule | None:
        """Return the rule for drives with these attributes, or None if unknown or contested."""
        rule = self.exact.get(ids) or self.core.get(find_core_ids(ids))
        return None if rule is None or rule.is_contested else rule

    def find_similar_rule(self, ids: Ids) -> UnitRule | None:
        """Return the rule shared by all similar sets, or None if they differ or have too few drives."""
        core = find_core_ids(ids)
        if len(core) < _MIN_CORE or ids in self.exact or core in self.core:
            return None
        alike = [
            rule
            for other, rule in self.core.items()
            if len(core & other) >= _MIN_SIMILARITY * len(core | other)
        ]
        if not alike or len({(rule.of, rule.unit) for rule in alike}) != 1 or alike[0].is_contested:
            return None
        drives, models = sum(rule.drives for rule in alike), sum(rule.models for rule in alike)
        if drives < _MIN_SIMILAR:
            return None
        return UnitRule(
            of=alike[0].of,
            unit=alike[0].unit,
            drives=drives,
            models=models,
            share=min(rule.share for rule in alike),
            step=max(rule.step for rule in alike),
            not_firmware=tuple(sorted({name for rule in alike for name in rule.not_firmware})),
        )


def _parse_rule(line: object, where: str) -> tuple[Ids, UnitRule]:
    words = _LINE.fullmatch(line) if isinstance(line, str) else None
    ids = frozenset(int(word) for word in words["ids"].split()) if words else frozenset()
    if words is None or not all(0 < number < 256 for number in ids):
        raise UsageError(
            f'{where} must look like "241 x 512, 10 drives, 2 models, 1.0: 5 9 12 241", not {line!r:.60}'
        )
    of, unit, step = int(words["of"] or 0), int(words["unit"] or 0), int(words["step"] or 1)
    if words["of"] and not (0 < of < 256 and 0 < unit <= _MAX_UNIT and 0 < unit * step <= _MAX_UNIT):
        raise UsageError(
            f"{where}: attribute {of} with a unit of {unit} bytes in steps of {step} is out of range"
        )
    return ids, UnitRule(
        of=of,
        unit=unit,
        drives=int(words["drives"]),
        models=int(words["models"]),
        share=float(words["share"]),
        brand=words["brand"],
        step=step,
        not_firmware=tuple((words["firmwares"] or "").split()),
    )


def format_rule(ids: Ids, rule: UnitRule) -> str:
    """Format a rule as a line of the file."""
    steps = f" in steps of {rule.step}" if rule.step > 1 else ""
    what = "contested" if rule.is_contested else f"{rule.of} x {rule.unit}{steps}"
    numbers = " ".join(str(number) for number in sorted(ids))
    only = f", only {rule.brand}" if rule.brand else ""
    other = f", not {' '.join(rule.not_firmware)}" if rule.not_firmware else ""
    return f"{what}, {rule.drives} drives, {rule.models} models, {rule.share}{only}{other}: {numbers}"


def parse_rules(raw: bytes, where: str) -> UnitRules:
    """Return the rules of a file, or raise UsageError if it is malformed."""
    try:
        document = parse_toml(raw, where)
    except BadInput as error:
        raise UsageError(str(error)) from error
    kinds: dict[str, dict[Ids, UnitRule]] = {"exact": {}, "core": {}}
    for kind, lines in document.items():
        if kind not in kinds or not isinstance(lines, list):
            raise UsageError(f"{where}: unknown kind of rule {kind!r}; use exact or core")
        rules = [_parse_rule(line, f"{where}: {kind} {index + 1}") for index, line in enumerate(lines)]
        if kind == "core" and any(ids != find_core_ids(ids) for ids, _ in rules):
            raise UsageError(f"{where}: a set of core has ids that all vendors use")
        kinds[kind] = dict(rules)
        if len(kinds[kind]) != len(rules):
            raise UsageError(f"{where}: a set of {kind} occurs twice")
    return UnitRules(kinds["exact"], kinds["core"])


@cache
def load_packaged_rules() -> UnitRules:
    """Return the packaged rules. Loaded once, on demand."""
    try:
        return parse_rules(read_bytes(PACKAGED), str(PACKAGED))
    except OSError as error:
        raise UsageError(f"{PACKAGED}: {error.strerror}") from error
