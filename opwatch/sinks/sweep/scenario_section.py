"""An experiment as lines: source, tables of its kind, verdicts on the author's claims, and our own checks.

Built from the document, so new and stored experiments look the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from opwatch import units
from opwatch.fields import Fields
from opwatch.foreign import require_table
from opwatch.scenarios.claims import CheckVerdict, Finding, ScenarioVerdict, SelfCheck, make_self_check
from opwatch.scenarios.scenario import ScenarioKind
from opwatch.sinks.blocks import Block, TextTable, format_blocks
from opwatch.sinks.plain.cells import get_number
from opwatch.sinks.sweep.scenario_document import TYPE
from opwatch.sinks.wrapping import wrap_text

# Makes a cell of a row.
Cell = Callable[[Fields], str]
Columns = Mapping[str, Cell]
_FIGURES = 4


def _text(key: str) -> Cell:
    return lambda row: row.read_text(key)


def _number(path: str, show: Callable[[float], str]) -> Cell:
    """Return the cell of a number, a dash if it is null. A dot leads into a nested table."""
    *outer, key = path.split(".")

    def format_number(row: Fields) -> str:
        for name in outer:
            if row.table.get(name) is None:
                return "-"
            row = row.read_subtable(name)
        value = get_number(row, key)
        return "-" if value is None else show(value)

    return format_number


def _capacity(path: str) -> Cell:
    return _number(path, lambda value: units.format_capacity(round(value)))


def _megabytes(path: str) -> Cell:
    return _number(path, units.format_megabytes)


def _decimal(path: str, form: str, factor: float = 1) -> Cell:
    return _number(path, lambda value: form.format(factor * value))


def _make_table(columns: Columns, rows: Sequence[Fields]) -> TextTable:
    return TextTable(tuple(columns), [tuple(cell(row) for cell in columns.values()) for row in rows])


def _format_gain(gain: float | None, error: float | None, form: str) -> str:
    if gain is None:
        return "-"
    return f"x {units.format_with_error(gain, error)}" if error else f"x {gain:{form}}"


def _format_level_gain(level: Fields) -> str:
    gain = get_number(level, "gain")
    by = ", WAF" if gain is not None and level.table.get("is_by_waf") is True else ""
    return _format_gain(gain, get_number(level, "gain_error"), ".2f") + by


def _format_expected(level: Fields) -> str:
    low, high = (_decimal(f"expected_gain.{end}", "{:.2f}")(level) for end in ("low", "high"))
    return "-" if "-" in (low, high) else f"{low}-{high}"


_LEVELS: Columns = {
    "level": _text("label"),
    "new IOPS": _decimal("fresh_iops", "{:.0f}"),
    "cliff at": _capacity("cliff.host_bytes"),
    "predicted": _capacity("predicted_cliff_bytes"),
    "after": _decimal("cliff.seconds", "{:.0f} s"),
    "steady": _decimal("steady_iops", "{:.0f}"),
    "gain": _format_level_gain,
    "models": _format_expected,
}


def _read_names(fields: Fields, key: str) -> list[str]:
    """Return a list of names; documents of earlier versions have none."""
    return [fields.check_text(name, key) for name in fields.read_list(key)] if key in fields.table else []


def _list_saturation(scenario: Fields) -> Iterator[Block]:
    """Yield the levels, the reason for each level without a gain, and which other profiles are the same."""
    levels = scenario.read_subtables("levels", "a level")
    yield _make_table(_LEVELS, levels)
    alike = _read_names(scenario, "differs_in_size_only_from")
    if alike:
        yield (
            f"This profile differs from {', '.join(alike)} in size alone: it says nothing about other "
            "differences between these drives"
        )
    for level in levels[1:]:
        if get_number(level, "gain") is None:
            yield f"{level.read_text('label')}: {level.read_text('why')}"


_POINTS: Columns = {
    "file": _capacity("used_bytes"),
    "MiB/s": _decimal("whole", "{:.0f}", 1 / (1 << 20)),
    "reserved": _decimal("reserved", "{:.0f}", 1 / (1 << 20)),
    "apart": _decimal("apart_ratio", "{:+.2f} %", 100),
    "of first": _decimal("relative", "{:.3f}"),
    "published": _decimal("published", "{:.3f}"),
}


def _list_free_space(scenario: Fields) -> Iterator[Block]:
    yield _make_table(_POINTS, scenario.read_subtables("points", "a file"))


def name_run(row: Fields) -> str:
    """Return the kind of I/O and the state of the drive."""
    return f"{row.read_text('op')}, {'full' if row.read_flag('is_full') else 'empty'}"


_RATES: Columns = {
    "run": name_run,
    "left free": _text("level"),
    "MB/s": _megabytes("bytes_per_s"),
    "IOPS": _decimal("iops", "{:.0f}"),
    "mean ms": _number("mean_ns", lambda ns: f"{ns / 1e6:.3f}"),
    "CPU %": _decimal("cpu_ratio", "{:.3g}", 100),
}


def find_holder(document: Fields) -> Fields:
    """Return the part of a document that holds the results: a sweep has a separate part for them."""
    return document if document.table.get("type") != "sweep" else document.read_subtable("scenario")


def find_published_gain(holder: Fields, op: str) -> float | None:
    """Return the ratio of the published rates of reads or writes, or None."""
    published = holder.read_subtable("published")
    rows = published.read_amount_lists(op, _FIGURES) if op in published.table else []
    return rows[-1][1] / rows[0][1] if len(rows) > 1 and rows[0][1] else None


def _list_iometer(holder: Fields) -> Iterator[Block]:
    """Yield the measured rates, the published rates, and the ratios of both."""
    rates = holder.read_subtables("rates", "a rate")
    published = holder.read_subtable("published")
    yield TextTable(tuple(_RATES), sorted(tuple(cell(rate) for cell in _RATES.values()) for rate in rates))
    yield from dict.fromkeys(reason for rate in rates for reason in _explain_missing(rate))
    if any(get_number(rate, "cpu_ratio") is not None for rate in rates):
        yield "CPU: fio's share of one CPU, including generating random data"
    levels = list(dict.fromkeys(rate.read_text("level") for rate in rates))
    rows = [
        (f"{op}, published", level, *(f"{value:g}" for value in row))
        for op in published.table
        for level, row in zip(levels, published.read_amount_lists(op, _FIGURES), strict=False)
    ]
    if rows:
        yield TextTable(tuple(_RATES), rows)

    def format_published(gain: Fields) -> str:
        return _format_gain(find_published_gain(holder, gain.read_text("op")), None, ".3f")

    gains: Columns = {
        "ratio": name_run,
        "here": lambda gain: _format_gain(get_number(gain, "gain"), get_number(gain, "error"), ".3f"),
        "predicted": _decimal("foretold", "x {:.2f}"),
        "published": format_published,
    }
    yield _make_table(gains, holder.read_subtables("gains", "a ratio"))


def _explain_missing(rate: Fields) -> Iterator[str]:
    """Yield the reasons for missing figures. A rate without IOPS has no CPU either."""
    missing = rate.read_subtable("missing").table
    for name, why in missing.items():
        if name != "cpu_ratio":
            yield f"{name_run(rate)}, {rate.read_text('level')}: {why}"
        elif why != missing.get("iops"):
            yield f"no CPU: {why}"


_RUNS: Columns = {
    "run": _text("name"),
    "fs free": _capacity("free_bytes"),
    "stale": _capacity("stale_bytes"),
    "room": _capacity("room_bytes"),
    "predicted": _capacity("foretold_cliff_bytes"),
    "came at": _capacity("cliff_bytes"),
    "off by": _decimal("error_ratio", "{:+.2f} %", 100),
    "first": _megabytes("first_bytes_per_s"),
    "last": _megabytes("last_bytes_per_s"),
}


def _list_untrimmed(document: Fields) -> Iterator[Block]:
    """Yield the runs, and their rounds side by side, with speeds in MB/s."""
    runs = document.read_subtables("runs", "a run")
    yield _make_table(_RUNS, runs)
    yield (
        "stale: free space of the filesystem that the drive still holds as data; room: flash without "
        "data; predicted, came at: bytes written until data is moved; first, last: MB/s of the first "
        "round and of the last tenth"
    )
    names = [run.read_text("name").partition(" ")[0] for run in runs]
    header = ("round", *(f"{name} {unit}" for name in names for unit in ("GB", "MB/s")))
    rounds = zip_longest(*(run.read_subtables("rounds", "a round") for run in runs))
    rows = [
        (str(number), *(cell for one in row for cell in _format_round(one)))
        for number, row in enumerate(rounds, 1)
    ]
    yield TextTable(header, rows)


def _format_round(one: Fields | None) -> tuple[str, str]:
    written, seconds = (get_number(one, key) if one else None for key in ("host_bytes", "seconds"))
    speed = units.format_megabytes(written / seconds) if written is not None and seconds else "-"
    return "-" if written is None else f"{written / 1e9:.2f}", speed


_MIX_RATES: Columns = {
    "IOPS": _decimal("iops", "{:.0f}"),
    "MB/s": _megabytes("bytes_per_s"),
    "mean": _number("mean_ns", units.format_ns),
}
_CPU: Columns = {"CPU": _decimal("cpu_ratio", "{:.2f}")}
_PUBLISHED: Columns = {
    "IOPS ±": _decimal("error_ratio", "{:.1f} %", 100),
    "there": _decimal("published.iops", "{:.0f}"),
    "MB/s there": _megabytes("published.bytes_per_s"),
}
_MEMBERS = ("load", "member", "reads/s", "writes/s", "MB/s", "mean", "busy", "per I/O")


def _list_mixed(document: Fields) -> Iterator[Block]:
    """Yield all configurations side by side, then the members of each."""
    configurations = document.read_subtables("configurations", "a configuration")
    is_model = document.table.get("model") is not None
    yield from (_describe_configuration(one, is_model=is_model) for one in configurations)
    rates = [
        (rate.read_text("load"), one.read_text("name"), rate)
        for one in configurations
        for rate in one.read_subtables("rates", "a rate")
    ]
    loads = list(dict.fromkeys(load for load, _, _ in rates))
    columns = {**_MIX_RATES, **(_PUBLISHED if is_model else _CPU)}
    yield TextTable(
        ("load", "configuration", *columns),
        [
            (load, name, *(cell(rate) for cell in columns.values()))
            for load, name, rate in sorted(rates, key=lambda row: loads.index(row[0]))
        ],
        words=2,
    )
    if is_model:
        yield "there: the author's figures; - where none was found"
    for one in configurations:
        how = "" if is_model else ", by the kernel's count"
        yield f"Members of {one.read_text('name')}{how}:"
        rows = [row for rate in one.read_subtables("rates", "a rate") for row in _format_members(rate)]
        yield TextTable(_MEMBERS, rows, words=2)
    yield (
        "mean: latency of the load's I/Os, and of a member's requests; busy: share of the time with "
        "requests; per I/O: the member's requests per I/O of the load"
        + ("" if is_model else "; CPU: fio's share of one CPU")
    )


def _describe_configuration(one: Fields, *, is_model: bool) -> str:
    size, kind = units.format_capacity(one.read_count("file_bytes")), one.read_text("kind")
    if is_model:
        return f"{one.read_text('name')}: {one.read_text('device')} as {kind}, {size} in use"
    where = f"{one.read_text('folder')}, on {one.read_text('device')} ({kind})"
    return f"{one.read_text('name')}: a file of {size} in {where}"


def _format_members(rate: Fields) -> Iterator[tuple[str, ...]]:
    load, seconds = rate.read_text("load"), rate.read_amount("seconds")
    ios = rate.read_amount("iops") * seconds
    for member in rate.read_subtables("members", "a member"):
        reads, writes = get_number(member, "reads"), get_number(member, "writes")
        if reads is None or writes is None:
            yield load, member.read_text("name"), *["-"] * (len(_MEMBERS) - 2)
            continue
        moved = (get_number(member, "read_bytes") or 0.0) + (get_number(member, "write_bytes") or 0.0)
        yield (
            load,
            member.read_text("name"),
            f"{reads / seconds:.0f}",
            f"{writes / seconds:.0f}",
            units.format_megabytes(moved / seconds),
            units.format_ns(get_number(member, "mean_ns")),
            f"{(get_number(member, 'active_ms') or 0.0) / 10 / seconds:.0f} %",
            f"{(reads + writes) / ios:.2f}" if ios else "-",
        )


_BLOCKS: Mapping[ScenarioKind, Callable[[Fields], Iterator[Block]]] = {
    ScenarioKind.SATURATION: _list_saturation,
    ScenarioKind.FREE_SPACE: _list_free_space,
    ScenarioKind.IOMETER: _list_iometer,
    ScenarioKind.UNTRIMMED: _list_untrimmed,
    ScenarioKind.MIXED: _list_mixed,
}


def list_experiment_blocks(document: Fields) -> Iterator[Block]:
    """Yield the tables of an experiment, without its verdicts."""
    holder = find_holder(document)
    yield from _BLOCKS[document.read_subtable("scenario").read_member("kind", ScenarioKind)](holder)


def format_scenario(scenario: Fields) -> Iterator[str]:
    """Yield the lines of an experiment that is part of the document of a sweep."""
    kind = scenario.read_member("kind", ScenarioKind)
    if kind in (ScenarioKind.UNTRIMMED, ScenarioKind.MIXED):
        raise scenario.make_error("its kind has no levels")
    yield from format_blocks([*_list_head(scenario), *_BLOCKS[kind](scenario)])
    yield from _format_judgement(scenario)


def format_experiment(document: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of an experiment with a document of its own."""
    where = "the experiment"
    fields = Fields(require_table(document, where), where)
    if fields.table.get("type") != TYPE:
        raise fields.make_error(f"type is not {TYPE}: it was not written by opwatch sweep run --scenario")
    scenario = fields.read_subtable("scenario")
    kind = scenario.read_member("kind", ScenarioKind)
    if kind in (ScenarioKind.SATURATION, ScenarioKind.FREE_SPACE):
        raise scenario.make_error("its kind has levels")
    yield from format_blocks(_list_head(scenario))
    yield from wrap_text(f"{fields.read_text('target')}, {fields.read_text('workload')}")
    if fields.table.get("model") is not None:
        yield from wrap_text(format_model(fields.read_subtable("model")))
    yield ""
    yield from format_blocks(_BLOCKS[kind](fields))
    yield from _format_judgement(fields)


def _list_head(scenario: Fields) -> Iterator[str]:
    yield f"scenario {scenario.read_text('name')}: {scenario.read_text('title')}"
    yield f"source: {scenario.read_text('source')}. {scenario.read_text('remark')}"


def format_model(model: Fields) -> str:
    """Return what is simulated, and where its constants are from."""
    text = f"A MODEL of {model.read_text('profile')} in virtual time, not a drive"
    if model.read_amount("ratio") != 1:
        text += f", simulated at {units.format_plain(100 * model.read_amount('ratio'))} % of its size"
    return f"{text}. Its constants: {model.read_text('source')}."


def read_findings(holder: Fields) -> list[Finding]:
    """Return the verdicts on the author's claims. Earlier documents of a saturation have none."""
    if "statements" not in holder.table and "levels" in holder.table:
        return []
    return [
        Finding(row.read_text("what"), row.read_member("verdict", ScenarioVerdict), row.read_text("why"))
        for row in holder.read_subtables("statements", "a statement")
    ]


def read_checks(holder: Fields) -> list[SelfCheck]:
    """Return the results of our own checks. In earlier documents a saturation has them in its levels."""
    if "checks" in holder.table:
        return [
            SelfCheck(row.read_text("what"), row.read_member("verdict", CheckVerdict), row.read_text("why"))
            for row in holder.read_subtables("checks", "a check")
        ]
    levels = [] if "statements" in holder.table else holder.read_subtables("levels", "a level")
    return [
        make_self_check(
            Finding(
                f"{level.read_text('label')} gains what the collector models predict",
                level.read_member("likeness", ScenarioVerdict),
                level.read_text("why"),
            )
        )
        for level in levels[1:]
    ]


def _format_judgement(holder: Fields) -> Iterator[str]:
    """Yield the verdicts on the author's claims, and apart from them our own checks."""
    findings, checks = read_findings(holder), read_checks(holder)
    yield ""
    yield "claims of the author:" if findings else "no claim of the author was judged"
    for finding in findings:
        yield from wrap_text(f"{finding.verdict.label}: {finding.what}; {finding.why}", "- ")
    if checks:
        yield "checks of our own model:"
    for check in checks:
        yield from wrap_text(f"{check.verdict.value}: {check.what}; {check.why}", "- ")
