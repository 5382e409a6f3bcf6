"""The steady state of SNIA's Solid State Storage Performance Test Specification 2.0.2, section 2.1.24.

Over a measurement window of five rounds, the tracked variable must not spread by more than 20 % of its mean,
and the line fitted to it must not rise or fall by more than 10 % of its mean. A test runs at most 25 rounds.
The rule is applied as written: it ignores the drive's size, so it also passes on the plateau before garbage
collection starts. strict.py has the additional conditions of opwatch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from opwatch.codec import Signed
from opwatch.errors import NotEnoughData


@dataclass(frozen=True, slots=True)
class PtsRule:
    """The limits set by the specification."""

    window: int = 5
    data_excursion: Fraction = Fraction(20, 100)
    slope_excursion: Fraction = Fraction(10, 100)
    most_rounds: int = 25


@dataclass(frozen=True, slots=True)
class PtsFit:
    """The fields that the specification requires in every report, under opwatch's names.

    `rounds` are counted from 1. `least_squares_formula` is the fit as text, with the round number as x.
    """

    variable: str
    rounds: tuple[int, ...]
    values: tuple[float, ...]
    average: float
    allowed_data_excursion: float
    measured_data_excursion: float
    allowed_slope_excursion: float
    measured_slope_excursion: float
    slope: Signed
    intercept: Signed
    least_squares_formula: str
    is_steady: bool


@dataclass(frozen=True, slots=True)
class PtsReport:
    """A verdict as reported. `window` has the first and last round, counted from 1."""

    rule: str
    is_steady: bool
    not_reached: bool
    rounds: int
    most_rounds: int
    window: tuple[int, int]
    variables: tuple[PtsFit, ...]


@dataclass(frozen=True, slots=True)
class PtsVerdict:
    """The rule's result for a run of `rounds` rounds.

    `fits` describe the first window in which every variable was steady. If no window was steady, `fits`
    describe the last window and `is_steady` is false, which a report has to state.
    """

    is_steady: bool
    rounds: int
    fits: tuple[PtsFit, ...]
    rule: PtsRule = PtsRule()

    @property
    def window(self) -> tuple[int, int]:
        """Return the numbers of the first and last round, counted from 1."""
        return self.fits[0].rounds[0], self.fits[0].rounds[-1]

    def to_report(self) -> PtsReport:
        return PtsReport(
            rule="SNIA SSS PTS 2.0.2, 2.1.24",
            is_steady=self.is_steady,
            not_reached=not self.is_steady,
            rounds=self.rounds,
            most_rounds=self.rule.most_rounds,
            window=self.window,
            variables=self.fits,
        )


def judge_pts(tracks: Mapping[str, Sequence[float]], rule: PtsRule | None = None) -> PtsVerdict:
    """Apply the rule to these variables (one value per round); all must be steady in the same window."""
    rule = rule or PtsRule()
    lengths = {len(values) for values in tracks.values()}
    if len(lengths) != 1:
        raise NotEnoughData(
            "a steady state needs variables to follow, with one value of each for every round"
        )
    rounds = lengths.pop()
    if rounds < rule.window:
        raise NotEnoughData(f"{rounds} rounds were done; SNIA's rule needs {rule.window}")
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
    """Fit one window of one variable.

    Fractions keep rounding from deciding a value exactly on a limit.
    """
    exact = [Fraction(value) for value in values]
    count = len(exact)
    average = sum(exact, Fraction(0)) / count
    middle = Fraction(count - 1, 2)
    spread = sum(((x - middle) ** 2 for x in range(count)), Fraction(0))
    slope = sum(((x - middle) * y for x, y in enumerate(exact)), Fraction(0)) / spread
    data = max(exact) - min(exact)
    rise = abs(slope) * (count - 1)
    intercept = float(average - slope * (first_round + middle))
    sign = "-" if slope < 0 else "+"
    return PtsFit(
        variable=variable,
        rounds=tuple(range(first_round, first_round + count)),
        values=tuple(values),
        average=float(average),
        allowed_data_excursion=float(rule.data_excursion * average),
        measured_data_excursion=float(data),
        allowed_slope_excursion=float(rule.slope_excursion * average),
        measured_slope_excursion=float(rise),
        slope=float(slope),
        intercept=intercept,
        least_squares_formula=f"y = {intercept:.6g} {sign} {abs(float(slope)):.6g} x",
        is_steady=data <= rule.data_excursion * average and rise <= rule.slope_excursion * average,
    )
