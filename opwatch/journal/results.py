"""The measurements of a level in a journal, from which all verdicts are recomputed. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from opwatch.steady.pts import judge_pts
from opwatch.steady.rounds import Round
from opwatch.steady.strict import VerdictInputs, judge_strict
from opwatch.sweep.levels import OpLevel
from opwatch.sweep.outcome import LevelFigures, LevelOutcome, LevelProbe, LevelSecond, add_verdict_error

_MIN_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class LevelRecord:
    """All measurements of one level. `place` is the level's index in the list of levels, from 0."""

    place: int = field(metadata={"key": "level"})
    rounds: tuple[Round, ...]
    ground: VerdictInputs
    figures: LevelFigures
    probes: tuple[LevelProbe, ...] = ()
    seconds: tuple[LevelSecond, ...] = ()

    def make_outcome(self, level: OpLevel) -> LevelOutcome:
        """Return the level's outcome: the record plus the verdicts derived from it."""
        strict = judge_strict(self.rounds, self.ground)
        return LevelOutcome(
            level=level,
            rounds=self.rounds,
            figures=add_verdict_error(self.figures, strict),
            pts=judge_pts({"IOPS": [one.iops for one in self.rounds]})
            if len(self.rounds) >= _MIN_ROUNDS
            else None,
            strict=strict,
            probes=self.probes,
            seconds=self.seconds,
        )
