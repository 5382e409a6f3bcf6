"""Percentage of rated life used, from a standard page or else from a vendor's attribute.

An attribute is used only if it was compared with the device statistics of real drives of the same family. The
source states the result of the comparison, because drives of one family differ.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from opwatch.counters.evidence import Attribute, Evidence
from opwatch.counters.prove.limits import MAX_ERASES
from opwatch.counters.reading import CounterReading, Proof, make_unknown

_MISSING = "it was not read, or the drive does not report it"
# Both pages use one byte, where 255 means more than 254 %.
_SATURATED = 255
# Maximum difference on nearly all compared drives.
_STEP = 3
# The attributes stop at this value, however worn the drive is.
_LAST_VALUE = 1
# A drive with this percentage of its life left has not used 255 %.
_LEFT = 10
# SandForce controllers have these, with or without names in smartctl's database.
_SANDFORCE = (201, 204, 230, 231, 233, 234)


@dataclass(frozen=True, slots=True)
class _WearRule:
    """How one attribute of a family reports wear.

    `reads`: the percentage left is in the `value` or in the `raw` number, or the raw number is the percentage
    `used`. `agrees`: number of compared drives within 3 % of their device statistics.
    """

    id: int
    name: str
    family: re.Pattern[str]
    reads: str
    agrees: str


def _make_rule(number: int, name: str, family: str, reads: str, agrees: str) -> _WearRule:
    return _WearRule(number, name, re.compile(family), reads, agrees)


# Compared on 12,278 drives of linuxhw/EnterpriseDrive and bsdhw/SMART (CC-BY-4.0), where either side is at
# least 2 %. Excluded are names that failed on more than one drive in ten, such as Wear_Leveling_Count on
# drives that smartctl does not know.
_RULES = (
    _make_rule(
        177,
        "Wear_Leveling_Count",
        "Samsung|SK hynix|Seagate Nytro XF1230|Kingston.*UV",
        "value",
        "757 of 775",
    ),
    _make_rule(173, "Wear_Leveling_Count", "Samsung", "value", "20 of 20"),
    _make_rule(202, "Percent_Lifetime_Remain", "Micron|Crucial", "used", "564 of 618"),
    _make_rule(231, "SSD_Life_Left", "Phison", "raw", "400 of 440"),
    _make_rule(231, "SSD_Life_Left", "Kingston.*UV|Seagate Nytro", "value", "67 of 67"),
    _make_rule(231, "SSD_Life_Left_Perc", "Seagate Nytro XF1230", "raw", "14 of 14"),
    _make_rule(233, "Media_Wearout_Indicator", "Intel(?! 54)", "value", "1026 of 1061"),
    _make_rule(245, "Percent_Life_Remaining", "Dell Certified Intel", "raw", "33 of 33"),
    _make_rule(245, "Drive_Life_Remaining%", "Sandisk", "raw", "21 of 21"),
    _make_rule(201, "Lifetime_Remaining%", "Marvell based SanDisk", "value", "15 of 15"),
)


def _read_used(rule: _WearRule, attribute: Attribute) -> int | None:
    """Return the percentage used, or None if the attribute does not have the expected form."""
    value, raw = attribute.value, attribute.raw
    if rule.reads == "used":
        # The value is 100 - raw in one byte. Otherwise smartctl shows another quantity as raw.
        return raw if raw is not None and value is not None and raw + value in (100, 356) else None
    # Dell's Intel drives count writes in 233. Intel's own drives have a raw number of 0.
    if rule.reads == "value" and rule.id == 233 and raw:
        return None
    # One firmware stores another quantity in 173 instead of an erase count.
    if rule.id == 173 and (raw is None or raw >= MAX_ERASES):
        return None
    left = raw if rule.reads == "raw" else value
    # A raw 0 with a value of 100 means that the firmware does not maintain the raw number.
    if left is None or left > 100 or (rule.reads == "raw" and left == 0 and value == 100):
        return None
    return 100 - left


def read_wear_attribute(evidence: Evidence) -> CounterReading | None:
    """Return the percentage used by a vendor attribute, or None if no rule covers the drive."""
    family = evidence.drive.family or ""
    for rule in _RULES:
        attribute = evidence.find_attribute(rule.id)
        if not attribute or attribute.name != rule.name or not rule.family.match(family):
            continue
        used = _read_used(rule, attribute)
        if used is None:
            continue
        source = (
            f"attribute {rule.id} {rule.name} (within {_STEP} % of device statistics on {rule.agrees} drives)"
        )
        reading = CounterReading(used, "percent", _STEP, source, Proof.LEARNED)
        return reading.as_lower_bound() if rule.reads != "used" and 100 - used <= _LAST_VALUE else reading
    return None


def _find_life_left(evidence: Evidence) -> Attribute | None:
    """Return an attribute that contradicts 255 % by reporting much life left, or None."""
    rules = [rule for rule in _RULES if rule.reads == "value" and rule.id == 233]
    if all(evidence.find_attribute(number) for number in _SANDFORCE):
        attribute = evidence.find_attribute(231)
        return attribute if attribute and (attribute.value or 0) >= _LEFT else None
    family = evidence.drive.family or ""
    for rule in rules:
        attribute = evidence.find_attribute(rule.id)
        if attribute and attribute.name == rule.name and rule.family.match(family):
            return attribute if not attribute.raw and (attribute.value or 0) >= _LEFT else None
    return None


def _make_spec_reading(used: int, source: str) -> CounterReading:
    reading = CounterReading(used, "percent", 1, source, Proof.SPEC)
    return reading.as_lower_bound() if used == _SATURATED else reading


def _read_statistics(evidence: Evidence, used: int) -> CounterReading:
    reading = _make_spec_reading(used, "device statistics 07h/008h")
    other = _find_life_left(evidence) if used == _SATURATED else None
    if other is None:
        return reading
    return reading.without_value(
        f"device statistics report 255 % or more, but attribute {other.id} {other.name} reports "
        f"{other.value} % left: SandForce firmware reports 255 % on new drives"
    )


def find_percentages_used(evidence: Evidence) -> list[CounterReading]:
    """Return all sources of the percentage used, best first, or one reading without a value."""
    readings: list[CounterReading] = []
    statistics, smart, scsi = evidence.statistics, evidence.smart, evidence.scsi
    if statistics and statistics.percentage_used is not None:
        readings.append(_read_statistics(evidence, statistics.percentage_used))
    if smart and smart.percentage_used is not None:
        readings.append(_make_spec_reading(smart.percentage_used, "log 02h percentage used"))
    if scsi and scsi.percentage_used is not None:
        readings.append(_make_spec_reading(scsi.percentage_used, "SCSI log 11h"))
    attribute = read_wear_attribute(evidence)
    if attribute and not any(_is_redundant(attribute, reading) for reading in readings):
        readings.append(attribute)
    if not readings and evidence.endurance_used is not None:
        source = "smartctl's endurance_used, which it takes from an attribute or from device statistics"
        readings.append(CounterReading(evidence.endurance_used, "percent", 1, source, Proof.CANDIDATE))
    readings.sort(key=lambda reading: reading.value is None)
    return readings or [make_unknown(_MISSING, "percent")]


def _is_redundant(ours: CounterReading, theirs: CounterReading) -> bool:
    """Return whether the second reading makes the first one redundant."""
    if ours.value is None or theirs.value is None:
        return False
    return abs(ours.value - theirs.value) <= _STEP or (ours.at_least and theirs.value >= ours.value)
