"""The section of an experiment, built from the document of its sweep."""

from __future__ import annotations

from collections.abc import Iterator

from opwatch import units
from opwatch.fields import Fields
from opwatch.scenarios.claims import ScenarioVerdict
from opwatch.scenarios.scenario import ScenarioKind
from opwatch.sinks.plain.cells import align_columns, get_number
from opwatch.sinks.scenario.iometer import format_iometer
from opwatch.sinks.scenario.statements import format_statements
from opwatch.sinks.wrapping import wrap_text

_LEVELS = ("level", "new IOPS", "cliff at", "predicted", "after", "steady", "gain", "models")
_POINTS = ("file", "MiB/s", "reserved", "apart", "of first", "published")
_MIB = 1 << 20


def format_scenario(scenario: Fields) -> Iterator[str]:
    """Yield the experiment's source and results, and whether the results match the author's."""
    yield from wrap_text(f"scenario {scenario.read_text('name')}: {scenario.read_text('title')}")
    yield from wrap_text(f"source: {scenario.read_text('source')}. {scenario.read_text('remark')}")
    kind = scenario.read_member("kind", ScenarioKind)
    if kind is ScenarioKind.IOMETER:
        yield from format_iometer(scenario)
        yield from format_statements(scenario)
        return
    yield from (
        _format_saturation(scenario) if kind is ScenarioKind.SATURATION else _format_free_space(scenario)
    )


def _format_saturation(scenario: Fields) -> Iterator[str]:
    """Yield the drop of each level, and whether the level gains as published."""
    levels = scenario.read_subtables("levels", "a level")
    yield from align_columns(_LEVELS, [_format_level(level) for level in levels])
    for level in levels:
        yield from wrap_text(
            f"{level.read_text('label')}, {level.read_member('likeness', ScenarioVerdict).label}: "
            f"{level.read_text('why')}"
        )


def _format_level(level: Fields) -> tuple[str, ...]:
    cliff = level.read_optional("cliff", level.read_subtable)
    fell_at = get_number(cliff, "host_bytes") if cliff else None
    after = get_number(cliff, "seconds") if cliff else None
    predicted = get_number(level, "predicted_cliff_bytes")
    return (
        level.read_text("label"),
        _format_rate(get_number(level, "fresh_iops")),
        "-" if fell_at is None else units.format_capacity(round(fell_at)),
        "-" if predicted is None else units.format_capacity(round(predicted)),
        "-" if after is None else f"{after:.0f} s",
        _format_rate(get_number(level, "steady_iops")),
        _format_gain(level),
        _format_expected(level),
    )


def _format_rate(iops: float | None) -> str:
    return "-" if iops is None else f"{iops:.0f}"


def _format_gain(level: Fields) -> str:
    gain, error = get_number(level, "gain"), get_number(level, "gain_error")
    if gain is None:
        return "-"
    by = ", WAF" if level.table.get("is_by_waf") is True else ""
    return (f"x {units.format_with_error(gain, error)}" if error else f"x {gain:.2f}") + by


def _format_expected(level: Fields) -> str:
    if level.table.get("expected_gain") is None:
        return "-"
    band = level.read_subtable("expected_gain")
    low, high = get_number(band, "low"), get_number(band, "high")
    return "-" if low is None or high is None else f"{low:.2f}-{high:.2f}"


def _format_free_space(scenario: Fields) -> Iterator[str]:
    """Yield both curves, and verdicts on the author's findings."""
    points = scenario.read_subtables("points", "a file")
    yield from align_columns(_POINTS, [_format_point(point) for point in points])
    yield from format_statements(scenario)


def _format_point(point: Fields) -> tuple[str, ...]:
    apart = get_number(point, "apart_ratio")
    return (
        units.format_capacity(point.read_count("used_bytes")),
        *(_format_mebibytes(get_number(point, key)) for key in ("whole", "reserved")),
        "-" if apart is None else f"{100 * apart:+.2f} %",
        *(_format_share(get_number(point, key)) for key in ("relative", "published")),
    )


def _format_mebibytes(rate: float | None) -> str:
    return "-" if rate is None else f"{rate / _MIB:.0f}"


def _format_share(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3f}"
