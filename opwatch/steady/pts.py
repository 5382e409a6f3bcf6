"""The steady state of SNIA's Solid State Storage Performance Test Specification 2.0.2, section 2.1.24.

Over a measurement window of five rounds, the tracked variable must not spread by more than 20 % of its
mean, and the line fitted to it must not rise or fall by more than 10 % of its mean. No more than 25 rounds
are done. The rule is applied as it stands: it knows nothing of the size of the drive, so it also passes on
the plateau before collection begins. What we ask for beyond it is in strict.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from opwatch.errors import NotEnoughData
from opwatch.frozen import frozen


@frozen
class PtsRule:
    """The numbers of the specification."""

    window: int = 5
    data_excursion: Fraction = Fraction(20, 100)
    slope_excursion: Fraction = Fraction(10, 100)
    most_rounds: int = 25


@frozen
class PtsFit:
    """What a report must say of one tracked variable: see `report()`."""

    variable: str
    values: tuple[float, ...]
    first_round: int
    average: float
    allowed_data_excursion: float
    measured_data_excursion: float
    allowed_slope_excursion: float
    measured_slope_excursion: float
    slope: float
    intercept: float
    is_steady: bool

    @property
    def formula(self) -> str:
        """The least squares fit, with the number of the round as x."""
        sign = "-" if self.slope < 0 else "+"
        return f"y = {self.intercept:.6g} {sign} {abs(self.slope):.6g} x"

    def report(self) -> dict[str, object]:
        """The fields that the specification wants in every report, by our names."""
        return {
            "variable": self.variable,
            "rounds": list(range(self.first_round, self.first_round + len(self.values))),
            "values": list(self.values),
            "average": self.average,
            "allowed_data_excursion": self.allowed_data_excursion,
            "measured_data_excursion": self.measured_data_excursion,
            "allowed_slope_excursion": self.allowed_slope_excursion,
            "measured_slope_excursion": self.measured_slope_excursion,
            "slope": self.slope,
            "intercept": self.intercept,
            "least_squares_formula": self.formula,
            "is_steady": self.is_steady,
        }


@frozen
class PtsVerdict:
    """What the rule says of a run. `rounds` were done. `fits` are of the first window in which every variable
    was steady; where there was none, of the last one, and `is_steady` is false: a report has to say so."""

    is_steady: bool
    rounds: int
    fits: tuple[PtsFit, ...]
    rule: PtsRule = PtsRule()

    @property
    def window(self) -> tuple[int, int]:
        """Its first and last round, from 1 on."""
        last = self.fits[0].first_round + self.rule.window - 1
        return self.fits[0].first_round, last

    def report(self) -> dict[str, object]:
        return {
            "rule": "SNIA SSS PTS 2.0.2, 2.1.24",
            "is_steady": self.is_steady,
            "not_reached": not self.is_steady,
            "rounds": self.rounds,
            "most_rounds": self.rule.most_rounds,
            "window": list(self.window),
            "variables": [fit.report() for fit in self.fits],
        }


def judge_pts(tracks: Mapping[str, Sequence[float]], rule: PtsRule | None = None) -> PtsVerdict:
    """What the rule says of these variables, one value a round, all of them steady in the same window."""
    rule = rule or PtsRule()
    lengths = {len(values) for values in tracks.values()}
    if len(lengths) != 1:
        raise NotEnoughData(
            "a steady state needs variables to follow, with one value of each for every round"
        )
    rounds = lengths.pop()
    if rounds < rule.window:
        raise NotEnoughData(f"{rounds} rounds were done: the rule of SNIA needs {rule.window}")
    rounds = min(rounds, rule.most_rounds)
    fits: tuple[PtsFit, ...] = ()
    for first in range(rounds - rule.window + 1):
        fits = tuple(
            fit_window(name, values[first : first + rule.window], first + 1, rule)
            for name, values in tracks.items()
        )
        if all(fit.is_steady for fit in fits):
            return PtsVerdict(True, first + rule.window, fits, rule)
    return PtsVerdict(False, rounds, fits, rule)


def fit_window(variable: str, values: Sequence[float], first_round: int, rule: PtsRule) -> PtsFit:
    """One window of one variable. In fractions: on a limit, rounding must not decide."""
    exact = [Fraction(value) for value in values]
    count = len(exact)
    average = sum(exact, Fraction(0)) / count
    middle = Fraction(count - 1, 2)
    spread = sum(((x - middle) ** 2 for x in range(count)), Fraction(0))
    slope = sum(((x - middle) * y for x, y in enumerate(exact)), Fraction(0)) / spread
    data = max(exact) - min(exact)
    rise = abs(slope) * (count - 1)
    return PtsFit(
        variable=variable,
        values=tuple(values),
        first_round=first_round,
        average=float(average),
        allowed_data_excursion=float(rule.data_excursion * average),
        measured_data_excursion=float(data),
        allowed_slope_excursion=float(rule.slope_excursion * average),
        measured_slope_excursion=float(rise),
        slope=float(slope),
        intercept=float(average - slope * (first_round + middle)),
        is_steady=data <= rule.data_excursion * average and rise <= rule.slope_excursion * average,
    )
