"""Alerts of the rule file, evaluated over virtual time and compared with the truth.

A running server evaluates rules at the present time only. Here each alert's expression, with its recording
rules inserted, is a range query over the days of a replay, and `for` is applied to its answer.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .engines import Server, find_program, run_prometheus
from .plan import DAY_S, FaultKind, FleetPlan
from .replay import STEP_S, DriveTruth, write_replay

RULES = Path(__file__).parents[3] / "tools" / "deploy" / "prometheus" / "opwatch.rules.yml"
_RECORD = re.compile(r"\bopwatch:\w+:\w+")
# The fault that each alert is for.
FAULTS = {
    "OpwatchWafJump": FaultKind.WAF_JUMP,
    "OpwatchSpareBelowThreshold": FaultKind.SPARE_FALLS,
    "OpwatchSpareFalling": FaultKind.SPARE_FALLS,
    "OpwatchEnduranceEndsSoon": FaultKind.WEARS_OUT,
    "OpwatchDriveUnreadable": FaultKind.UNREADABLE,
    "OpwatchTrimBlocked": FaultKind.BLOCKED_TRIMS,
    "OpwatchTrimLost": FaultKind.LOST_TRIMS,
    "OpwatchCounterNoLongerTrusted": FaultKind.UNTRUSTED,
    "OpwatchHostCounterTooLow": FaultKind.WRONG_UNIT,
    "OpwatchRequestsUnexplained": FaultKind.UNEXPLAINED,
    "OpwatchLatencyOutlier": FaultKind.SLOW,
    "OpwatchDeviceNotWatched": None,
}
# A true end of life up to this much later than the alert's 90 days is not a false alarm, because the wear has
# steps of 1 %.
_END_SLACK = 1.25
# A true ratio of the day to the week before from which the alert on a jump is not false: 2 less the error.
_TRUE_JUMP = 1.9


@dataclass(frozen=True, slots=True)
class AlertRule:
    """An alert whose expression contains no recording rules."""

    name: str
    severity: str
    expression: str
    hold_s: float


@dataclass(frozen=True, slots=True)
class Firing:
    """An alert about a drive or filesystem of a host, without interruption."""

    labels: dict[str, str] = field(hash=False)
    begin_s: float
    end_s: float


def list_alert_rules(server: Server) -> list[AlertRule]:
    """Return the alerts that the server has loaded, with recording rules inserted."""
    rules = [rule for group in server.get("/api/v1/rules")["groups"] for rule in group["rules"]]
    records = {rule["name"]: rule["query"] for rule in rules if rule["type"] == "recording"}

    def insert_records(expression: str) -> str:
        return _RECORD.sub(lambda match: f"({insert_records(records[match[0]])})", expression)

    return [
        AlertRule(rule["name"], rule["labels"]["severity"], insert_records(rule["query"]), rule["duration"])
        for rule in rules
        if rule["type"] == "alerting"
    ]


def find_firings(
    server: Server, rule: AlertRule, begin_s: float, end_s: float, step_s: float = STEP_S
) -> list[Firing]:
    """Return when the alert fires: its expression has a value for at least `hold_s`, at every step."""
    firings = []
    for series in server.query_range(rule.expression, begin_s, end_s, step_s):
        labels = series["metric"]
        moments = [float(moment) for moment, _ in series["values"]]
        first = last = moments[0]
        for moment in (*moments[1:], float("inf")):
            if moment - last > 1.5 * step_s:
                if last - first >= rule.hold_s:
                    firings.append(Firing(labels, first + rule.hold_s, last))
                first = moment
            last = moment
    return firings


@dataclass(slots=True)
class AlertResult:
    """What an alert did over a replay: its alarms, the injected faults that it found, and its delays.

    `related` are alarms about a drive whose fault is another one, for example a jump of write amplification
    because the firmware counts too few host writes.
    """

    rule: AlertRule
    true: int = 0
    related: int = 0
    false: list[Firing] = field(default_factory=list)
    injected: int = 0
    found: set[str] = field(default_factory=set)
    delays_s: list[float] = field(default_factory=list)


class TruthIndex:
    """The drives of a fleet by the labels of alerts."""

    def __init__(self, fleet: FleetPlan, truths: Iterable[DriveTruth]) -> None:
        self.fleet = fleet
        self._truths = list(truths)
        self._by_serial = {truth.drive.plan.serial: truth for truth in self._truths}

    def find_drive(self, firing: Firing) -> DriveTruth | None:
        """Return the drive that an alert is about, which has the alert's device name when it begins."""
        labels = firing.labels
        if serial := labels.get("serial") or labels.get("mountpoint", "").removeprefix("/data/"):
            return self._by_serial.get(serial)
        for truth in self._truths:
            host, device = truth.drive.plan.host, truth.devices[truth.find_step(firing.begin_s)]
            if (host, device) == (labels.get("instance"), labels.get("device")):
                return truth
        return None

    def is_true(self, name: str, firing: Firing) -> bool:
        """Return true if the alert names something that really happened."""
        truth = self.find_drive(firing)
        if truth is None:
            return False
        if name == "OpwatchWafJump":
            return _compute_highest_jump(truth, firing) >= _TRUE_JUMP
        if name == "OpwatchEnduranceEndsSoon":
            left_s = truth.drive.compute_true_end() - firing.begin_s
            return left_s < 90 * DAY_S * _END_SLACK
        kind = FAULTS[name]
        return kind is not None and truth.drive.plan.find_fault(kind, firing.end_s) is not None


def _compute_highest_jump(truth: DriveTruth, firing: Firing) -> float:
    """Return the highest true ratio of a day to the week before, while the alert's expression holds."""
    highest = 0.0
    for now_s in (firing.begin_s, (firing.begin_s + firing.end_s) / 2, firing.end_s):
        day = _compute_ratio(truth, now_s - DAY_S, now_s)
        week = _compute_ratio(truth, now_s - 8 * DAY_S, now_s - DAY_S)
        if day and week:
            highest = max(highest, day / week)
    return highest


def _compute_ratio(truth: DriveTruth, begin_s: float, end_s: float) -> float | None:
    first, last = truth.find_step(begin_s), truth.find_step(end_s)
    host = truth.host_bytes[last] - truth.host_bytes[first]
    return (truth.media_bytes[last] - truth.media_bytes[first]) / host if host else None


def judge_alert(rule: AlertRule, firings: Sequence[Firing], index: TruthIndex) -> AlertResult:
    """Return the alert's true and false alarms."""
    kind = FAULTS[rule.name]
    result = AlertResult(rule, injected=len(index.fleet.list_faulty(kind)) if kind else 0)
    for firing in firings:
        truth = index.find_drive(firing)
        if truth is None or not index.is_true(rule.name, firing):
            if truth and any(fault.begin_s <= firing.end_s for fault in truth.drive.plan.faults):
                result.related += 1
            else:
                result.false.append(firing)
            continue
        result.true += 1
        fault = kind and truth.drive.plan.find_fault(kind, firing.end_s)
        if fault and truth.drive.plan.serial not in result.found:
            result.found.add(truth.drive.plan.serial)
            result.delays_s.append(max(0.0, firing.begin_s - fault.begin_s))
    return result


def evaluate_fleet(fleet: FleetPlan, days: float, folder: Path) -> list[AlertResult]:
    """Replay a fleet, evaluate all alerts over its days, and return what each of them did."""
    text = folder / "replay.txt"
    with text.open("w") as file:
        truths = write_replay(fleet, days, file)
    import_text(text, folder / "data")
    text.unlink()
    config = f"rule_files: [{RULES}]\n"
    options = ("--query.lookback-delta=12m", "--query.timeout=10m", "--query.max-samples=500000000")
    with run_prometheus(folder, config, *options) as server:
        index = TruthIndex(fleet, truths)
        end_s = fleet.begin_s + days * DAY_S
        return [
            judge_alert(rule, find_firings(server, rule, fleet.begin_s, end_s), index)
            for rule in list_alert_rules(server)
        ]


def import_text(text: Path, data: Path) -> None:
    """Make blocks of a database from OpenMetrics text with timestamps."""
    # Each block reads the whole text again, so few large blocks are faster than many of two hours.
    subprocess.run(
        [
            *(find_program("promtool"), "tsdb", "create-blocks-from", "openmetrics"),
            *("--max-block-duration=162h", "--quiet", str(text), str(data)),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def evaluate_in_folder(fleet: FleetPlan, days: float) -> list[AlertResult]:
    """Evaluate a fleet in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        return evaluate_fleet(fleet, days, Path(folder))
