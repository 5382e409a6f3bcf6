"""The claims of a published experiment as data, and their verdicts from measured values. Pure.

A claim is the author's; only claims are reproduced or not. A check compares our own model with theory, and
agrees or differs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple


class ScenarioVerdict(StrEnum):
    """Whether a result was reproduced."""

    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not reproduced"
    UNTOLD = "cannot be told"

    @property
    def label(self) -> str:
        """Return the text to show. The value stays as it is in documents."""
        return "undetermined" if self is ScenarioVerdict.UNTOLD else self.value


class CheckVerdict(StrEnum):
    """Whether the model agrees with theory."""

    AGREES = "agrees"
    DIFFERS = "differs"
    OPEN = "not checked"


class Finding(NamedTuple):
    """A result published by the author, and whether this run reproduces it."""

    what: str
    verdict: ScenarioVerdict
    why: str


class SelfCheck(NamedTuple):
    """A prediction of ours, and whether this run agrees with it."""

    what: str
    verdict: CheckVerdict
    why: str


class Judgement(NamedTuple):
    """What a run says about an experiment: verdicts on the author's claims, and results of our own checks."""

    findings: tuple[Finding, ...]
    checks: tuple[SelfCheck, ...] = ()


_CHECKED = {
    ScenarioVerdict.REPRODUCED: CheckVerdict.AGREES,
    ScenarioVerdict.NOT_REPRODUCED: CheckVerdict.DIFFERS,
    ScenarioVerdict.UNTOLD: CheckVerdict.OPEN,
}


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


def make_range(value: float | None) -> ExpectedRange | None:
    """Return the range of a single value, or None if the value is unknown."""
    return None if value is None else ExpectedRange(value, value)


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

    `flags` are conditions, which apply if true, and `texts` are words for the reasons.
    """

    amounts: Mapping[str, Sequence[MeasuredValue]]
    expected: Mapping[str, Sequence[ExpectedRange | None]] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, bool] = field(default_factory=dict)


_Pair = tuple[MeasuredValue, ExpectedRange | None]


@dataclass(frozen=True, slots=True)
class PublishedClaim:
    """A published claim, or a check of ours; the fields are the keys in the experiment's file.

    `measured` names the amounts, divided by those of `over` if given. `expected` is a name in the evidence,
    or a range; `published` are two figures to divide instead. `unless`, `refuted_by` and `excuses` map flags
    to reasons: the first leaves the verdict open, the second refutes the claim, and the third leaves it open
    where the values refute the claim. `inside`, `outside` (if different) and `missing` are the other reasons.
    All may name texts, `value`, `low` and `high` of the last amount, and `worst` and `within` in percent.
    `on` is "model" or "drive" if the claim applies to only one of them, `drives` names the profiles of the
    drives that it is about, if not all, and `except_drives` those that it is not about. A claim `per_level`
    is judged for each level after the first.
    """

    what: str
    kind: ClaimKind
    inside: str
    outside: str = ""
    missing: str = ""
    measured: str = ""
    over: str = ""
    expected: str | Sequence[float] = (0.0, math.inf)
    published: Sequence[float] = ()
    within_percent: float = 0.0
    unless: Mapping[str, str] = field(default_factory=dict)
    refuted_by: Mapping[str, str] = field(default_factory=dict)
    excuses: Mapping[str, str] = field(default_factory=dict)
    on: str = ""
    drives: Sequence[str] = ()
    except_drives: Sequence[str] = ()
    per_level: bool = False

    def judge(self, evidence: ScenarioEvidence) -> Finding:
        """Return the verdict on the claim, with the reason."""
        pairs = list(zip(self._list_values(evidence), self._list_ranges(evidence), strict=False))
        verdict, why = self._decide(evidence.flags, pairs)
        words = self._make_numbers(pairs) | dict(evidence.texts)
        return Finding(self.what.format_map(words), verdict, why.format_map(words))

    def _decide(self, flags: Mapping[str, bool], pairs: Sequence[_Pair]) -> tuple[ScenarioVerdict, str]:
        """Return the verdict and the template of the reason."""
        if obstacle := _find_reason(self.unless, flags):
            return ScenarioVerdict.UNTOLD, obstacle
        if refutation := _find_reason(self.refuted_by, flags):
            return ScenarioVerdict.NOT_REPRODUCED, refutation
        is_known = pairs and all(one.value is not None and wanted for one, wanted in pairs)
        if self.kind is not ClaimKind.ABSENT and not is_known:
            return ScenarioVerdict.UNTOLD, self.missing
        if self._holds(pairs):
            return ScenarioVerdict.REPRODUCED, self.inside
        if excuse := _find_reason(self.excuses, flags):
            return ScenarioVerdict.UNTOLD, excuse
        if any(one.limit for one, _ in pairs):
            return ScenarioVerdict.UNTOLD, f"{self.outside or self.inside}, and {{limit}}"
        return ScenarioVerdict.NOT_REPRODUCED, self.outside or self.inside

    def _list_values(self, evidence: ScenarioEvidence) -> Iterable[MeasuredValue]:
        values = evidence.amounts.get(self.measured, ())
        return map(_divide, values, evidence.amounts.get(self.over, ())) if self.over else values

    def _list_ranges(self, evidence: ScenarioEvidence) -> Iterable[ExpectedRange | None]:
        if isinstance(self.expected, str):
            return evidence.expected.get(self.expected, ())
        low, high = [self.published[0] / self.published[1]] * 2 if self.published else self.expected
        return itertools.repeat(ExpectedRange(low, high))

    def _holds(self, pairs: Sequence[_Pair]) -> bool:
        if self.kind is ClaimKind.ORDER:
            values = [one.value or 0.0 for one, _ in pairs]
            return all(later <= earlier for earlier, later in itertools.pairwise(values))
        return all(self._is_inside(*pair) for pair in pairs)

    def _is_inside(self, one: MeasuredValue, wanted: ExpectedRange | None) -> bool:
        if one.value is None or wanted is None:
            return False
        within = self.within_percent / 100
        low, high = (1 - within) * wanted.low, (1 + within) * wanted.high
        return low - one.error <= one.value <= high + one.error

    def _make_numbers(self, pairs: Sequence[_Pair]) -> dict[str, object]:
        if not pairs:
            return {}
        one, wanted = pairs[-1]
        apart = [
            abs(one.value / wanted.low - 1)
            for one, wanted in pairs
            if one.value is not None and wanted and wanted.low
        ]
        return {
            "value": one.value,
            "limit": next((one.limit for one, _ in pairs if one.limit), ""),
            "low": wanted and wanted.low,
            "high": wanted and wanted.high,
            "worst": 100 * max(apart, default=0.0),
            "within": self.within_percent,
        }


def _find_reason(reasons: Mapping[str, str], flags: Mapping[str, bool]) -> str:
    """Return the first reason whose flag applies, or nothing."""
    return next((reason for flag, reason in reasons.items() if flags.get(flag)), "")


def _divide(upper: MeasuredValue, lower: MeasuredValue) -> MeasuredValue:
    """Return the quotient with its error. If one of the values is limited, so is the quotient."""
    if upper.value is None or not upper.value or not lower.value:
        return MeasuredValue(None)
    value, ratio = upper.value / lower.value, math.hypot(upper.error / upper.value, lower.error / lower.value)
    return MeasuredValue(value, value * ratio, limit=upper.limit or lower.limit)


def parse_claims(rows: Iterable[Mapping[str, Any]]) -> tuple[PublishedClaim, ...]:
    """Return the claims of an experiment, in their order."""
    return tuple(PublishedClaim(**{**row, "kind": ClaimKind(row["kind"])}) for row in rows)


def select_claims(
    claims: Iterable[PublishedClaim], on: str = "", drive: str = ""
) -> tuple[PublishedClaim, ...]:
    """Return the claims about a "model", or a "drive", and about the drive of this profile."""
    return tuple(
        claim
        for claim in claims
        if claim.on in ("", on)
        and (not claim.drives or drive in claim.drives)
        and drive not in claim.except_drives
    )


def judge_claims(claims: Iterable[PublishedClaim], evidence: ScenarioEvidence) -> tuple[Finding, ...]:
    """Return the verdicts on these claims, in their order."""
    return tuple(claim.judge(evidence) for claim in claims)


def make_self_check(finding: Finding) -> SelfCheck:
    """Return the same judgement in the words of a check."""
    return SelfCheck(finding.what, _CHECKED[finding.verdict], finding.why)
