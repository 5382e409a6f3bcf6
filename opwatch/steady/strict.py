"""Our own verdict on a steady state: what has to be proven before a number is one of the drive.

SNIA's rule looks at five values and knows neither how large the drive is nor what was written to it. Ours
asks first whether collection can have reached its balance: all of the spare area and once more what is in
use was written, all of what is in use is mapped, and the writes went everywhere alike. Then it asks, of
IOPS, of the 99th percentile and of write amplification together, whether what they still drift is proven to
be small. A busy host makes IOPS so noisy that no window of a bearable length proves that. Where write
amplification is measured and proven, IOPS need not be: they must show no drift, and have an error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum

from opwatch.compare.student import threshold
from opwatch.frozen import frozen
from opwatch.named import NamedTuple
from opwatch.steady.coverage import WriteSpread
from opwatch.steady.rounds import Round, joined

_BINS = 10
_LEAST_ROUNDS = 5
# Checks of how fast it was.
_OF_TIME = ("IOPS", "p99")


class StrictState(StrEnum):
    PASS = "pass"
    NOT_REACHED = "not reached"
    # Nothing speaks against it, but something that it needs was not measured.
    UNPROVEN = "unproven"


@frozen
class StrictRule:
    """What has to be proven. `drift` is the most that IOPS and WAF may move over the window, its own
    uncertainty included. A tail is too noisy for such a proof: of it, a drift beyond `tail_drift` must not
    show. Nor must one beyond `drift` of IOPS that are too noisy, where WAF has its proof, and then the error
    of their mean is at most `noise`. `window` is the length of the shortest in shares of what is in use.
    Longer ones, up to `longest`, serve where noise hides the drift in a short one."""

    coverage: float = 0.999
    # What is not mapped works as spare area: so much of the spare may be of that kind.
    false_spare: float = 0.01
    drift: float = 0.02
    tail_drift: float = 0.10
    noise: float = 0.05
    window: float = 1.0
    longest: float = 4.0
    chance: float = 0.05


@frozen
class StrictCheck:
    """One thing that is asked of a window. `is_met` is None where it was not measured; `wanted` and
    `measured` are for people."""

    name: str
    wanted: str
    measured: str
    is_met: bool | None


class LineDrift(NamedTuple):
    """How much the fitted line rises or falls over a window, at least and at most, and the error of the mean
    at 95 %. All are shares of the mean: noise proves neither rest nor motion."""

    least: float
    most: float
    error: float


@frozen
class SteadyWindow:
    """The last rounds, from `first_round` (from 1 on), as one."""

    first_round: int
    rounds: int
    whole: Round
    # How far each drifts; None where it was not measured.
    iops: LineDrift | None
    tail: LineDrift | None
    waf: LineDrift | None


@frozen
class StrictVerdict:
    state: StrictState
    checks: tuple[StrictCheck, ...]
    window: SteadyWindow | None

    @property
    def reason(self) -> str:
        """What it fails by, or what is missing; empty when it passes."""
        wrong = [check for check in self.checks if check.is_met is False]
        missing = [check for check in self.checks if check.is_met is None]
        return "; ".join(
            f"{check.name}: {check.measured}, wanted {check.wanted}" for check in wrong or missing
        )

    @property
    def is_amplification_proven(self) -> bool:
        """Whether the WAF of the window is the drive's, also where its IOPS or its tail are not at rest: what
        else disturbs those, a busy host before all, moves no more data."""
        others = [check for check in self.checks if check.name not in _OF_TIME]
        return self.window is not None and all(check.is_met for check in others)

    def report(self) -> dict[str, object]:
        window = self.window
        return {
            "state": self.state.value,
            "reason": self.reason or None,
            "window": [window.first_round, window.first_round + window.rounds - 1] if window else None,
            "is_waf_proven": self.is_amplification_proven,
            "iops_error_ratio": window.iops.error if window and window.iops else None,
            "checks": [
                {
                    "name": check.name,
                    "wanted": check.wanted,
                    "measured": check.measured,
                    "is_met": check.is_met,
                }
                for check in self.checks
            ],
        }


@frozen
class SteadyGround:
    """What a verdict stands on beside the rounds. `spare_bytes` is T-U, or the most that it can be where T is
    not known, which `spare_is_bound` says. `written_bytes` came before the first round, and after the drive
    was filled or purged last."""

    active_bytes: int
    spare_bytes: int
    spread: WriteSpread | None
    spare_is_bound: bool = False
    written_bytes: int = 0


def judge_strict(
    rounds: Sequence[Round], ground: SteadyGround, rule: StrictRule | None = None
) -> StrictVerdict:
    """Whether the rounds end in a steady state. They are those since the fill, or since the purge where there
    was no fill, in order."""
    rule = rule or StrictRule()
    checks = [_writes(rounds, ground), *_spread(ground, rule)]
    window = _window(rounds, ground, rule)
    checks += _drifts(window, rule)
    if any(check.is_met is False for check in checks):
        state = StrictState.NOT_REACHED
    elif any(check.is_met is None for check in checks):
        state = StrictState.UNPROVEN
    else:
        state = StrictState.PASS
    return StrictVerdict(state, tuple(checks), window)


def _writes(rounds: Sequence[Round], ground: SteadyGround) -> StrictCheck:
    written = ground.written_bytes + sum(one.host_bytes for one in rounds)
    needed = ground.spare_bytes + ground.active_bytes
    bound = " at most" if ground.spare_is_bound else ""
    return StrictCheck(
        "host writes",
        f"{needed} bytes: the spare area (T-U{bound}) and once what is in use",
        f"{written} bytes",
        written >= needed,
    )


def _spread(ground: SteadyGround, rule: StrictRule) -> tuple[StrictCheck, StrictCheck]:
    """Checks of the coverage and the evenness of the writes."""
    false_spare = rule.false_spare * ground.spare_bytes / ground.active_bytes
    least = max(rule.coverage, 1 - false_spare)
    wanted = f"at least {100 * least:.4g} %"
    spread = ground.spread
    if spread is None:
        return (
            StrictCheck("coverage", wanted, "not measured", None),
            StrictCheck("uniformity", "writes that go everywhere alike", "not measured", None),
        )
    covered = StrictCheck(
        "coverage",
        wanted,
        f"{100 * spread.coverage_ratio:.4g} % ({spread.source})",
        spread.coverage_ratio >= least,
    )
    sigmas = "not measured" if spread.uneven_sigmas is None else f"{spread.uneven_sigmas:.1f} sigma off"
    return covered, StrictCheck("uniformity", "at most 5 sigma off", sigmas, spread.is_uniform)


def _window(rounds: Sequence[Round], ground: SteadyGround, rule: StrictRule) -> SteadyWindow | None:
    """The shortest window that proves what there is to prove, else the shortest there is."""
    shortest = None
    length = rule.window
    while length <= rule.longest:
        window = _last(rounds, length * ground.active_bytes, ground, rule)
        if window is None:
            break
        if all(check.is_met is not False for check in _drifts(window, rule)):
            return window
        shortest = shortest or window
        length *= 2
    return shortest


def _last(
    rounds: Sequence[Round], n_bytes: float, ground: SteadyGround, rule: StrictRule
) -> SteadyWindow | None:
    """The last rounds that have so many bytes, if they began behind the spare area's first use."""
    count = written = 0
    while count < len(rounds) and (written < n_bytes or count < _LEAST_ROUNDS):
        count += 1
        written += rounds[-count].host_bytes
    before = ground.written_bytes + sum(one.host_bytes for one in rounds[: len(rounds) - count])
    if written < n_bytes or count < _LEAST_ROUNDS or before < ground.spare_bytes:
        return None
    window = rounds[-count:]
    bins = min(_BINS, count)
    parts = [joined(window[part * count // bins : (part + 1) * count // bins]) for part in range(bins)]
    tails = [part.p99_ns for part in parts]
    wafs = [part.waf for part in parts]
    return SteadyWindow(
        first_round=len(rounds) - count + 1,
        rounds=count,
        whole=joined(window),
        iops=_drift([part.iops for part in parts], rule.chance),
        tail=_drift(tails, rule.chance),
        waf=_drift(wafs, rule.chance),
    )


def _drift(values: Sequence[float | None], chance: float) -> LineDrift | None:
    known = [value for value in values if value is not None]
    count = len(known)
    if count < len(values) or not any(known):
        return None
    mean = sum(known) / count
    middle = (count - 1) / 2
    spread = sum((x - middle) ** 2 for x in range(count))
    slope = sum((x - middle) * y for x, y in enumerate(known)) / spread
    rest = sum((y - mean - slope * (x - middle)) ** 2 for x, y in enumerate(known))
    error = threshold(chance, count - 2) * math.sqrt(rest / (count - 2) / spread)
    scale = (count - 1) / mean
    variance = sum((y - mean) ** 2 for y in known) / (count - 1)
    of_mean = threshold(chance, count - 1) * math.sqrt(variance / count) / mean
    return LineDrift(max(abs(slope) - error, 0.0) * scale, (abs(slope) + error) * scale, of_mean)


def _drifts(window: SteadyWindow | None, rule: StrictRule) -> list[StrictCheck]:
    proven = f"a drift of at most {100 * rule.drift:g} % over the window"
    shown = f"no drift beyond {100 * rule.tail_drift:g} % that shows over the window"
    wanted = {"IOPS": proven, "p99": shown, "WAF": proven}
    if window is None:
        missing = "no window that is long enough yet"
        return [StrictCheck(name, text, missing, False) for name, text in wanted.items()]
    tail, waf = window.tail, window.waf
    return [
        _iops(window, proven, rule),
        StrictCheck("p99", shown, *_measured(tail, tail and tail.least, "least", rule.tail_drift)),
        StrictCheck("WAF", proven, *_measured(waf, waf and waf.most, "most", rule.drift)),
    ]


def _measured(
    drift: LineDrift | None, share: float | None, bound: str, limit: float
) -> tuple[str, bool | None]:
    """What was measured, in words, and whether it is within a limit."""
    if drift is None or share is None:
        return "not measured", None
    return f"at {bound} {100 * share:.2g} %", share <= limit


def _iops(window: SteadyWindow, proven: str, rule: StrictRule) -> StrictCheck:
    """Noise of the host is in IOPS and not in WAF: where the latter proves the flash to be at rest, it is
    enough that IOPS show nothing else, and that their error is small."""
    iops, waf = window.iops, window.waf
    if iops is None or iops.most <= rule.drift or waf is None:
        return StrictCheck("IOPS", proven, *_measured(iops, iops and iops.most, "most", rule.drift))
    wanted = (
        f"{proven}, or, with such a WAF, none beyond that shows and an error of at most "
        f"{100 * rule.noise:g} %"
    )
    measured = (
        f"at most {100 * iops.most:.2g} %, at least {100 * iops.least:.2g} %, ± {100 * iops.error:.2g} %"
    )
    rests = waf.most <= rule.drift and iops.least <= rule.drift and iops.error <= rule.noise
    return StrictCheck("IOPS", wanted, measured, rests)
