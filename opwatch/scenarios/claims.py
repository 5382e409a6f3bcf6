"""The claims of a published experiment as data, and their verdicts from measured values. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from opwatch.fields import Fields


class ScenarioVerdict(StrEnum):
    """Whether a result was reproduced."""

    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not reproduced"
    UNTOLD = "cannot be told"

    @property
    def label(self) -> str:
        """Return the text to show. The value stays as it is in documents."""
        return "undetermined" if self is ScenarioVerdict.UNTOLD else self.value


class Finding(NamedTuple):
    """A result published by the author, and whether this run reproduces it."""

    what: str
    verdict: ScenarioVerdict
    why: str


class ClaimKind(StrEnum):
    """The kind of a claim about measured values."""

    RATIO = "ratio"  # each value is within the expected range, tolerance and error included
    ORDER = "order"  # no value is larger than the one before
    ABSENT = "absent"  # nothing happened that would refute the claim


@dataclass(frozen=True, slots=True)
class ExpectedRange:
    """The range that is expected of a value."""

    low: float
    high: float


class MeasuredValue(NamedTuple):
    """A measured value and its error, None if it was not measured.

    `limit` says what else than the drive limits the value; such a value does not refute a claim.
    """

    value: float | None
    error: float = 0.0
    limit: str = ""


@dataclass(frozen=True, slots=True)
class ScenarioEvidence:
    """The results of an experiment under the names that its claims use.

    `texts` are words for the reasons; an obstacle that does not apply is empty.
    """

    amounts: Mapping[str, Sequence[MeasuredValue]]
    expected: Mapping[str, Sequence[ExpectedRange | None]] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)

    def find_text(self, names: Sequence[str]) -> str:
        """Return the first of these texts that applies as a template, or nothing."""
        text = next((text for name in names if (text := self.texts.get(name, ""))), "")
        return text.replace("{", "{{").replace("}", "}}")


@dataclass(frozen=True, slots=True)
class PublishedClaim:
    """A published claim, or a prediction.

    `measured` names the amounts, divided by those of `over` if given. `expected` is a range or a name in the
    evidence, and `within` the relative tolerance. A text of `unless` leaves the verdict open, one of
    `refuted_by` decides it, and one of `excuses` leaves it open where the values refute the claim. `inside`,
    `outside` and `missing` are the reasons; they and `what` may name texts and numbers. `on` is "model" or
    "drive" if the claim applies to only one of them.
    """

    what: str
    kind: ClaimKind
    measured: str
    over: str
    expected: str | ExpectedRange
    within: float
    unless: Sequence[str]
    refuted_by: Sequence[str]
    excuses: Sequence[str]
    inside: str
    outside: str
    missing: str
    on: str

    def judge(self, evidence: ScenarioEvidence) -> Finding:
        """Return the verdict on the claim, with the reason."""
        pairs = list(zip(self._list_amounts(evidence), self._list_expected(evidence), strict=False))
        verdict, why = self._decide(evidence, pairs)
        words = self._make_numbers(evidence, pairs) | dict(evidence.texts)
        return Finding(self.what.format_map(words), verdict, why.format_map(words))

    def _decide(self, evidence: ScenarioEvidence, pairs: Sequence[_Pair]) -> tuple[ScenarioVerdict, str]:
        """Return the verdict and a template of the reason."""
        obstacle, refutation = evidence.find_text(self.unless), evidence.find_text(self.refuted_by)
        if obstacle:
            return ScenarioVerdict.UNTOLD, obstacle
        if refutation:
            return ScenarioVerdict.NOT_REPRODUCED, refutation
        if self.kind is not ClaimKind.ABSENT and not (pairs and all(map(_is_known, pairs))):
            return ScenarioVerdict.UNTOLD, self.missing
        if self._holds(pairs):
            return ScenarioVerdict.REPRODUCED, self.inside
        excuse = evidence.find_text(self.excuses)
        if excuse:
            return ScenarioVerdict.UNTOLD, excuse
        limited = next((one.limit for one, _ in pairs if one.limit), "")
        if limited:
            return ScenarioVerdict.UNTOLD, f"{self.outside}, and {limited}"
        return ScenarioVerdict.NOT_REPRODUCED, self.outside

    def _list_amounts(self, evidence: ScenarioEvidence) -> Iterable[MeasuredValue]:
        measured = evidence.amounts.get(self.measured, ())
        if not self.over:
            return measured
        return itertools.starmap(_divide, zip(measured, evidence.amounts.get(self.over, ()), strict=False))

    def _list_expected(self, evidence: ScenarioEvidence) -> Iterable[ExpectedRange | None]:
        if isinstance(self.expected, ExpectedRange):
            return itertools.repeat(self.expected)
        return evidence.expected.get(self.expected, ())

    def _holds(self, pairs: Sequence[_Pair]) -> bool:
        if self.kind is ClaimKind.ORDER:
            values = [one.value or 0.0 for one, _ in pairs]
            return all(later <= earlier for earlier, later in itertools.pairwise(values))
        return all(self._is_inside(*pair) for pair in pairs)

    def _is_inside(self, one: MeasuredValue, wanted: ExpectedRange | None) -> bool:
        if one.value is None or wanted is None:
            return False
        low, high = (1 - self.within) * wanted.low, (1 + self.within) * wanted.high
        return low - one.error <= one.value <= high + one.error

    def _make_numbers(self, evidence: ScenarioEvidence, pairs: Sequence[_Pair]) -> dict[str, object]:
        """Return the numbers for the reasons: the last pair, and the largest difference in percent."""
        wanted = self.expected if isinstance(self.expected, ExpectedRange) else None
        numbers: dict[str, object] = {"within": 100 * self.within, "low": "", "high": "", "value": ""}
        if pairs:
            one, wanted = pairs[-1]
            numbers["value"] = one.value
            numbers["side"] = "less" if wanted and (one.value or 0.0) < wanted.low else "more"
        if wanted:
            numbers |= {"low": wanted.low, "high": wanted.high}
        apart = [abs((one.value or 0.0) / band.low - 1) for one, band in pairs if band and band.low]
        names = (name for name in (self.measured, self.over) if name and name not in evidence.amounts)
        return numbers | {"worst": 100 * max(apart, default=0.0), "absent": next(names, "")}


_Pair = tuple[MeasuredValue, ExpectedRange | None]


def _is_known(pair: _Pair) -> bool:
    return pair[0].value is not None and pair[1] is not None


def _divide(upper: MeasuredValue, lower: MeasuredValue) -> MeasuredValue:
    """Return the quotient. If one of the values is limited, so is the quotient."""
    if upper.value is None or not lower.value:
        return MeasuredValue(None)
    return MeasuredValue(upper.value / lower.value, limit=upper.limit or lower.limit)


def parse_claims(fields: Fields) -> tuple[PublishedClaim, ...]:
    """Return the claims of an experiment, in their order."""
    rows = fields.read_subtables("claims", "a claim") if "claims" in fields.table else []
    return tuple(map(_parse_claim, rows))


def _parse_claim(row: Fields) -> PublishedClaim:
    def read(key: str) -> str:
        return row.read_optional(key, row.read_text) or ""

    def list_names(key: str) -> tuple[str, ...]:
        return row.read_optional(key, row.read_texts) or ()

    return PublishedClaim(
        what=row.read_text("what"),
        kind=row.read_member("kind", ClaimKind),
        measured=read("measured"),
        over=read("over"),
        expected=_parse_expected(row),
        within=(row.read_optional("within_percent", row.read_amount) or 0.0) / 100,
        unless=list_names("unless"),
        refuted_by=list_names("refuted_by"),
        excuses=list_names("excuses"),
        inside=row.read_text("inside"),
        outside=read("outside") or row.read_text("inside"),
        missing=read("missing"),
        on=read("on"),
    )


def _parse_expected(row: Fields) -> str | ExpectedRange:
    """Return the name of the expected values, or the range: [low, high], or published = [a, b] as a / b."""
    if "published" in row.table:
        above, below = (float(figure) for figure in row.read_list("published"))
        return ExpectedRange(above / below, above / below)
    expected = row.table.get("expected", [0.0, math.inf])
    if isinstance(expected, str):
        return expected
    low, high = (float(bound) for bound in expected)
    return ExpectedRange(low, high)


def judge_claims(
    claims: Iterable[PublishedClaim], evidence: ScenarioEvidence, on: str = ""
) -> tuple[Finding, ...]:
    """Return the verdicts on all claims that apply to a "model", or to a "drive"."""
    return tuple(claim.judge(evidence) for claim in claims if claim.on in ("", on))
