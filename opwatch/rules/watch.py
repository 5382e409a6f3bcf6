"""Check rules against the observations of each interval, and report newly met rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from opwatch.errors import UsageError
from opwatch.rules.parse import parse_rule
from opwatch.rules.rule import CPU, CPU_IO, METRICS, STALL, WAF, LimitKind, Rule, Unit
from opwatch.samples.observation import Event, Observation
from opwatch.trace.derive import OpInterval
from opwatch.units import format_plain

# Rules without a number: events of a disk.
ERROR, GONE = "error", "gone"
_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "us"))
_QUANTILES = {"p50": "p50", "p99": "p99", "p99.9": "p99_9"}


@dataclass(frozen=True, slots=True)
class Firing:
    """A disk started to meet a rule at `mono_ns`, a time on the clock of the samples."""

    rule: str
    device: str
    mono_ns: int
    words: str


@dataclass(slots=True)
class _State:
    """The state of one rule for one disk.

    `since_ns` is the start of the time during which the rule has been met without interruption, or None.
    """

    since_ns: int | None = None
    has_fired: bool = False


@dataclass(slots=True)
class RuleWatch:
    """Checks the observations of a run.

    A rule fires when it starts to be met, and again after an interval in which it was not met.
    """

    rules: Sequence[Rule]
    words: frozenset[str] = frozenset()
    _states: dict[tuple[int, str], _State] = field(default_factory=dict)
    # Disappeared disks, with the time, because the end of a run reports the disks again.
    _gone: set[tuple[str, int]] = field(default_factory=set)

    @classmethod
    def from_texts(cls, texts: Iterable[str]) -> RuleWatch:
        """Create a watch from rules, `error` and `gone`, as a user wrote them.

        Raises BadRule or UsageError.
        """
        rules, words = [], set()
        for text in texts:
            if text.strip() in (ERROR, GONE):
                words.add(text.strip())
                continue
            rule = parse_rule(text)
            if rule.kind is not LimitKind.LEVEL:
                raise UsageError(
                    f"rule {text!r}: a change needs a second recording to compare with; write a level "
                    "instead, e.g. p99>20ms or waf>3"
                )
            if rule.metric == CPU_IO:
                raise UsageError(
                    f"rule {text!r}: {CPU_IO} is known for whole runs only (opwatch compare); use {CPU}, "
                    "which is known for each interval"
                )
            rules.append(rule)
        return cls(rules, frozenset(words))

    def process_news(self, news: Observation | Event) -> list[Firing]:
        """Process an observation or event; return the newly met rules."""
        if isinstance(news, Event) or news.final:
            return self._check_gone(news)
        firings = [self._check_rule(number, rule, news) for number, rule in enumerate(self.rules)]
        return [firing for firing in [self._check_errors(news), *firings] if firing]

    @property
    def needs_drives(self) -> bool:
        """Return whether any rule needs the drives' own counters."""
        return any(rule.metric == WAF for rule in self.rules)

    def _check_gone(self, news: Observation | Event) -> list[Firing]:
        """Return a firing for a disk that disappeared during or at the end of the watch."""
        leaving = news.leaving
        if GONE not in self.words or not leaving or leaving.why != GONE:
            return []
        if (news.device, leaving.at_ns) in self._gone:
            return []
        self._gone.add((news.device, leaving.at_ns))
        return [Firing(GONE, news.device, leaving.at_ns, f"{news.device} is gone")]

    def _check_errors(self, news: Observation) -> Firing | None:
        if ERROR not in self.words:
            return None
        failed = {op: interval.errors for op, interval in news.interval.ops.items() if interval.errors}
        if not failed:
            return None
        words = ", ".join(f"{count} of {op}" for op, count in failed.items())
        return Firing(ERROR, news.device, news.interval.end_ns, f"errors on {news.label}: {words}")

    def _check_rule(self, number: int, rule: Rule, news: Observation) -> Firing | None:
        state = self._states.setdefault((number, news.device), _State())
        beyond = [(op, value) for op, value in _list_values(rule, news) if rule.is_beyond(value)]
        if not beyond:
            state.since_ns, state.has_fired = None, False
            return None
        if state.since_ns is None:
            state.since_ns = news.interval.begin_ns
        lasting_ns = news.interval.end_ns - state.since_ns
        if state.has_fired or lasting_ns < (rule.lasting_s or 0) * 1e9:
            return None
        state.has_fired = True
        op, value = beyond[0]
        name = f"{op} {rule.metric}" if op else rule.metric
        words = f"{rule.text} on {news.label}: {name} {_format_value(rule.metric, value)}"
        return Firing(rule.text, news.device, news.interval.end_ns, words)


def _list_values(rule: Rule, news: Observation) -> list[tuple[str | None, float]]:
    """Return the known values of a rule's metric, each with the operation."""
    if rule.metric == CPU:
        return [(None, news.cpu.busy_cores)] if news.cpu else []
    if rule.metric == STALL:
        return [(None, float(news.stall.least_ns if news.stall else 0))]
    if rule.metric == WAF:
        waf = news.live.waf if news.live else None
        return [] if waf is None else [(None, waf)]
    ops = news.interval.ops
    chosen = {rule.op: ops[rule.op]} if rule.op in ops else {} if rule.op else ops
    values = [(op, _extract_value(rule.metric, one, news.interval.seconds)) for op, one in chosen.items()]
    # An operation without requests has a rate of 0 but no latency.
    if rule.op and not chosen and METRICS[rule.metric] in (Unit.PER_S, Unit.MB_PER_S):
        values = [(rule.op, 0.0)]
    return [(op, value) for op, value in values if value is not None]


def _extract_value(metric: str, one: OpInterval, seconds: float) -> float | None:
    match metric:
        case "iops":
            return one.count / seconds if seconds else None
        case "mbps":
            return one.bytes / seconds / 1e6 if seconds else None
        case "mean":
            return one.latency.mean
        case "max":
            return one.latency.max
        case _:
            return one.latency.quantiles[_QUANTILES[metric]]


def _format_value(metric: str, value: float) -> str:
    match METRICS[metric]:
        case Unit.NS:
            scale, name = next((one for one in _TIMES if value >= one[0]), (1.0, "ns"))
            return f"{value / scale:.3g} {name}"
        case Unit.PER_S:
            return f"{format_plain(value, 4)}/s"
        case Unit.MB_PER_S:
            return f"{format_plain(value, 3)} MB/s"
        case _:
            return f"{value:.3g}"
