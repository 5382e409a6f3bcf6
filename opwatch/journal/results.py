"""The measurements of a level in a journal, from which all verdicts are recomputed. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from opwatch.fields import Fields
from opwatch.steady.coverage import WriteSpread
from opwatch.steady.pts import judge_pts
from opwatch.steady.rounds import Round
from opwatch.steady.strict import VerdictInputs, judge_strict
from opwatch.sweep.levels import OpLevel
from opwatch.sweep.outcome import HostBytes, LevelFigures, LevelOutcome, LevelProbe, LevelSecond, OpKind

_MIN_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class LevelRecord:
    """All measurements of one level. `place` is the level's index in the list of levels, from 0."""

    place: int
    rounds: tuple[Round, ...]
    ground: VerdictInputs
    figures: LevelFigures
    probes: tuple[LevelProbe, ...] = ()
    seconds: tuple[LevelSecond, ...] = ()

    def make_outcome(self, level: OpLevel) -> LevelOutcome:
        """Return the level's outcome: the record plus the verdicts derived from it."""
        return LevelOutcome(
            level=level,
            rounds=self.rounds,
            figures=self.figures,
            pts=judge_pts({"IOPS": [one.iops for one in self.rounds]})
            if len(self.rounds) >= _MIN_ROUNDS
            else None,
            strict=judge_strict(self.rounds, self.ground),
            probes=self.probes,
            seconds=self.seconds,
        )

    def to_document(self) -> dict[str, Any]:
        return {
            "level": self.place,
            "rounds": [asdict(one) for one in self.rounds],
            "ground": asdict(self.ground),
            "figures": asdict(self.figures),
            "probes": [_make_probe_document(probe) for probe in self.probes],
            "seconds": [list(second) for second in self.seconds],
        }


def _make_probe_document(probe: LevelProbe) -> dict[str, Any]:
    fields = probe._asdict()
    return {**fields.pop("kind")._asdict(), **fields}


def parse_record(fields: Fields) -> LevelRecord:
    """Parse a record written by document(). Raises BadInput for anything else."""
    return LevelRecord(
        place=fields.read_count("level"),
        rounds=tuple(parse_round(_require_row(row, fields)) for row in fields.read_list("rounds")),
        ground=_parse_inputs(fields.read_subtable("ground")),
        figures=_parse_figures(fields.read_subtable("figures")),
        probes=tuple(map(_parse_probe, fields.read_subtables("probes", "a probe"))),
        seconds=_parse_seconds(fields),
    )


def _require_row(row: object, fields: Fields) -> Fields:
    if not isinstance(row, dict):
        raise fields.make_error("rounds is not a list of tables")
    return Fields(row, f"{fields.where}: round")


def parse_round(fields: Fields) -> Round:
    one = Round(
        host_bytes=fields.read_count("host_bytes"),
        seconds=fields.read_amount("seconds"),
        ios=fields.read_count("ios"),
        p99_ns=fields.read_optional("p99_ns", fields.read_amount),
        nand_bytes=fields.read_optional("nand_bytes", fields.read_count),
    )
    if not one.seconds:
        raise fields.make_error("a round has a duration of 0")
    return one


def _parse_seconds(fields: Fields) -> tuple[LevelSecond, ...]:
    rows = fields.read_amount_lists("seconds", len(LevelSecond._fields))
    if not all(row[2] > 0 for row in rows):
        raise fields.make_error("a second has a duration of 0")
    return tuple(
        LevelSecond(begin_s, int(begin_bytes), seconds, int(ios), int(n_bytes))
        for begin_s, begin_bytes, seconds, ios, n_bytes in rows
    )


def _parse_probe(fields: Fields) -> LevelProbe:
    probe = LevelProbe(
        OpKind(fields.read_text("op"), is_full=fields.read_flag("is_full")),
        ios=fields.read_count("ios"),
        seconds=fields.read_amount("seconds"),
        mean_ns=fields.read_optional("mean_ns", fields.read_amount),
        cpu_s=fields.read_amount("cpu_s"),
        error_ratio=fields.read_optional("error_ratio", fields.read_amount),
    )
    if not probe.seconds:
        raise fields.make_error("a probe has a duration of 0")
    return probe


def _parse_inputs(fields: Fields) -> VerdictInputs:
    spread = fields.read_optional("spread", fields.read_subtable)
    ground = VerdictInputs(
        active_bytes=fields.read_count("active_bytes"),
        spare_bytes=fields.read_count("spare_bytes"),
        spread=WriteSpread(
            spread.read_amount("coverage_ratio"),
            spread.read_optional("uneven_sigmas", spread.read_signed),
            spread.read_text("source"),
        )
        if spread
        else None,
        spare_is_bound=fields.read_flag("spare_is_bound"),
        written_bytes=fields.read_count("written_bytes"),
    )
    if not ground.active_bytes:
        raise fields.make_error("0 bytes are in use")
    return ground


def _parse_figures(fields: Fields) -> LevelFigures:
    host = fields.read_subtable("host")
    counted = (host.read_optional(key, host.read_count) for key in ("trace", "fio", "firmware"))
    missing = fields.read_subtable("missing")
    amounts = {
        key: fields.read_optional(key, fields.read_amount)
        for key in (
            "waf",
            "waf_error",
            "iops",
            "iops_cv",
            "iops_worst_second",
            "cpu_ns_per_io",
            "load_cpu_ratio",
        )
    }
    by_trace, by_fio = fields.read_subtable("latency_by_trace"), fields.read_subtable("latency_by_fio")
    return LevelFigures(
        host=HostBytes(*counted),
        nand_bytes=fields.read_optional("nand_bytes", fields.read_count),
        temperature_c=fields.read_optional("temperature_c", fields.read_signed),
        latency_by_trace={key: by_trace.read_amount(key) for key in by_trace.table},
        latency_by_fio={key: by_fio.read_amount(key) for key in by_fio.table},
        missing={key: missing.read_text(key) for key in missing.table},
        **amounts,
    )
