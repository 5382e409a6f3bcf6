"""The section of an experiment, built from the document of its sweep."""

from __future__ import annotations

from collections.abc import Iterator

from opwatch import units
from opwatch.fields import Fields
from opwatch.scenarios.scenario import ScenarioKind
from opwatch.sinks.folding import folded
from opwatch.sinks.plain.cells import columns_of, number
from opwatch.sinks.scenario.iometer import iometer_lines
from opwatch.sinks.scenario.statements import statement_lines

_LEVELS = ("level", "new IOPS", "cliff at", "predicted", "after", "at rest", "gain", "models")
_POINTS = ("file", "MiB/s", "reserved", "apart", "of first", "published")
_MIB = 1 << 20


def scenario_lines(scenario: Fields) -> Iterator[str]:
    """Yield the experiment's source and results, and whether the results match the author's."""
    yield from folded(f"scenario {scenario.text('name')}: {scenario.text('title')}")
    yield from folded(f"source: {scenario.text('source')}. {scenario.text('remark')}")
    kind = scenario.kind("kind", ScenarioKind)
    if kind is ScenarioKind.IOMETER:
        yield from iometer_lines(scenario)
        yield from statement_lines(scenario)
        return
    yield from _saturation(scenario) if kind is ScenarioKind.SATURATION else _free_space(scenario)


def _saturation(scenario: Fields) -> Iterator[str]:
    """Yield the drop of each level, and whether the level gains as published."""
    levels = scenario.tables("levels", "a level")
    yield from columns_of(_LEVELS, [_level(level) for level in levels])
    for level in levels:
        yield from folded(f"{level.text('label')}, {level.text('likeness')}: {level.text('why')}")


def _level(level: Fields) -> tuple[str, ...]:
    cliff = level.optional("cliff", level.sub)
    fell_at = number(cliff, "host_bytes") if cliff else None
    after = number(cliff, "seconds") if cliff else None
    predicted = number(level, "predicted_cliff_bytes")
    return (
        level.text("label"),
        _rate(number(level, "fresh_iops")),
        "-" if fell_at is None else units.capacity(round(fell_at)),
        "-" if predicted is None else units.capacity(round(predicted)),
        "-" if after is None else f"{after:.0f} s",
        _rate(number(level, "steady_iops")),
        _gain(level),
        _expected(level),
    )


def _rate(iops: float | None) -> str:
    return "-" if iops is None else f"{iops:.0f}"


def _gain(level: Fields) -> str:
    gain, error = number(level, "gain"), number(level, "gain_error")
    if gain is None:
        return "-"
    by = ", WAF" if level.table.get("is_by_waf") is True else ""
    return (f"x {units.with_error(gain, error)}" if error else f"x {gain:.2f}") + by


def _expected(level: Fields) -> str:
    if level.table.get("expected_gain") is None:
        return "-"
    band = level.sub("expected_gain")
    low, high = number(band, "low"), number(band, "high")
    return "-" if low is None or high is None else f"{low:.2f}-{high:.2f}"


def _free_space(scenario: Fields) -> Iterator[str]:
    """Yield both curves, and verdicts on the author's findings."""
    points = scenario.tables("points", "a file")
    yield from columns_of(_POINTS, [_point(point) for point in points])
    yield from statement_lines(scenario)


def _point(point: Fields) -> tuple[str, ...]:
    apart = number(point, "apart_ratio")
    return (
        units.capacity(point.count("used_bytes")),
        *(_mebibytes(number(point, key)) for key in ("whole", "reserved")),
        "-" if apart is None else f"{100 * apart:+.2f} %",
        *(_share(number(point, key)) for key in ("relative", "published")),
    )


def _mebibytes(rate: float | None) -> str:
    return "-" if rate is None else f"{rate / _MIB:.0f}"


def _share(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3f}"
