"""The measurements of a level in a journal, from which all verdicts are recomputed. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from opwatch.fields import Fields
from opwatch.steady.coverage import WriteSpread
from opwatch.steady.pts import judge_pts
from opwatch.steady.rounds import Round
from opwatch.steady.strict import SteadyGround, judge_strict
from opwatch.sweep.levels import OpLevel
from opwatch.sweep.outcome import HostBytes, LevelFigures, LevelOutcome, LevelProbe, LevelSecond, OpKind

_LEAST_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class LevelRecord:
    """All measurements of one level. `place` is the level's index in the list of levels, from 0."""

    place: int
    rounds: tuple[Round, ...]
    ground: SteadyGround
    figures: LevelFigures
    probes: tuple[LevelProbe, ...] = ()
    seconds: tuple[LevelSecond, ...] = ()

    def outcome(self, level: OpLevel) -> LevelOutcome:
        """Return the level's outcome: the record plus the verdicts derived from it."""
        return LevelOutcome(
            level=level,
            rounds=self.rounds,
            figures=self.figures,
            pts=judge_pts({"IOPS": [one.iops for one in self.rounds]})
            if len(self.rounds) >= _LEAST_ROUNDS
            else None,
            strict=judge_strict(self.rounds, self.ground),
            probes=self.probes,
            seconds=self.seconds,
        )

    def document(self) -> dict[str, Any]:
        return {
            "level": self.place,
            "rounds": [asdict(one) for one in self.rounds],
            "ground": asdict(self.ground),
            "figures": asdict(self.figures),
            "probes": [_probe_document(probe) for probe in self.probes],
            "seconds": [list(second) for second in self.seconds],
        }


def _probe_document(probe: LevelProbe) -> dict[str, Any]:
    fields = probe._asdict()
    return {**fields.pop("kind")._asdict(), **fields}


def record_of(fields: Fields) -> LevelRecord:
    """Parse a record written by document(). Raises BadInput for anything else."""
    return LevelRecord(
        place=fields.count("level"),
        rounds=tuple(round_of(_table(row, fields)) for row in fields.rows("rounds")),
        ground=_ground(fields.sub("ground")),
        figures=_figures(fields.sub("figures")),
        # Journals of older versions have no probes.
        probes=tuple(map(_probe, fields.tables("probes", "a probe"))) if "probes" in fields.table else (),
        seconds=_seconds(fields) if "seconds" in fields.table else (),
    )


def _table(row: object, fields: Fields) -> Fields:
    if not isinstance(row, dict):
        raise fields.bad("rounds is no list of tables")
    return Fields(row, f"{fields.where}: round")


def round_of(fields: Fields) -> Round:
    one = Round(
        host_bytes=fields.count("host_bytes"),
        seconds=fields.amount("seconds"),
        ios=fields.count("ios"),
        p99_ns=fields.optional("p99_ns", fields.amount),
        nand_bytes=fields.optional("nand_bytes", fields.count),
    )
    if not one.seconds:
        raise fields.bad("a round took no time")
    return one


def _seconds(fields: Fields) -> tuple[LevelSecond, ...]:
    rows = fields.amounts("seconds", len(LevelSecond._fields))
    if not all(row[2] > 0 for row in rows):
        raise fields.bad("a second took no time")
    return tuple(
        LevelSecond(begin_s, int(begin_bytes), seconds, int(ios), int(n_bytes))
        for begin_s, begin_bytes, seconds, ios, n_bytes in rows
    )


def _probe(fields: Fields) -> LevelProbe:
    probe = LevelProbe(
        OpKind(fields.text("op"), is_full=fields.flag("is_full")),
        ios=fields.count("ios"),
        seconds=fields.amount("seconds"),
        mean_ns=fields.optional("mean_ns", fields.amount),
        cpu_s=fields.amount("cpu_s"),
        error_ratio=fields.optional("error_ratio", fields.amount),
    )
    if not probe.seconds:
        raise fields.bad("a probe took no time")
    return probe


def _ground(fields: Fields) -> SteadyGround:
    spread = fields.optional("spread", fields.sub)
    ground = SteadyGround(
        active_bytes=fields.count("active_bytes"),
        spare_bytes=fields.count("spare_bytes"),
        spread=WriteSpread(
            spread.amount("coverage_ratio"),
            spread.optional("uneven_sigmas", spread.signed),
            spread.text("source"),
        )
        if spread
        else None,
        spare_is_bound=fields.flag("spare_is_bound"),
        written_bytes=fields.count("written_bytes"),
    )
    if not ground.active_bytes:
        raise fields.bad("nothing is in use")
    return ground


def _figures(fields: Fields) -> LevelFigures:
    host = fields.sub("host")
    counted = (host.optional(key, host.count) for key in ("trace", "fio", "firmware"))
    missing = fields.sub("missing")
    amounts = {
        key: fields.optional(key, fields.amount)
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
    by_trace, by_fio = fields.sub("latency_by_trace"), fields.sub("latency_by_fio")
    return LevelFigures(
        host=HostBytes(*counted),
        nand_bytes=fields.optional("nand_bytes", fields.count),
        temperature_c=fields.optional("temperature_c", fields.signed),
        latency_by_trace={key: by_trace.amount(key) for key in by_trace.table},
        latency_by_fio={key: by_fio.amount(key) for key in by_fio.table},
        missing={key: missing.text(key) for key in missing.table},
        **amounts,
    )
