"""Measure the false alarms of each alert over ten days of a simulated fleet, for docs/fleet-alerts.md.

    python -m tests.bench.fleet_alerts

Six fleets of 400 drives, each with two drives per kind of fault, and with reboots, renamed and replaced
drives, idle drives, failed page reads, and changes of the workload that are no faults. Takes about 36 minutes
on two idle processors. Six fleets without a false alarm show that the rate is below its bound.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.fleet.scrape.alerts import AlertResult, evaluate_in_folder
from tests.fleet.scrape.plan import DAY_S, make_fleet
from tests.section import Section

from .figure import choose_exit_status, choose_size

SECTION = Section("fleet-alerts.md", "false alarms")
DAYS = choose_size(10.0, 1.5)
SEEDS = choose_size(range(1, 7), range(1, 2))
HOSTS = choose_size(50, 3)
DISKS = 8
FAULTY = choose_size(2, 1)
# Faults begin on the third day.
FAULT_BEGIN_S = choose_size(3 * DAY_S, DAY_S // 4)
# The day of the year does not matter; the days of the week have different loads.
BEGIN_S = 20_000 * DAY_S
# False alarms per 1,000 drives and week, for alerts above info.
BOUND = 1.0
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class AlertSummary:
    """What an alert did over all fleets."""

    name: str
    severity: str
    true: int
    related: int
    false: int
    found: int
    injected: int
    delay_s: float | None
    drive_weeks: float

    @property
    def false_rate(self) -> float:
        """Return the false alarms per 1,000 drives and week."""
        return 1000 * self.false / self.drive_weeks

    @property
    def highest_rate(self) -> float:
        """Return the upper bound of the true rate."""
        return 1000 * bound_mean(self.false) / self.drive_weeks

    @property
    def is_within_bound(self) -> bool:
        return self.severity == "info" or self.false_rate <= BOUND


def bound_mean(events: int) -> float:
    """Return the highest mean of a Poisson distribution that agrees with the number of events."""
    low, high = 0.0, 10.0 + 3.0 * events
    while high - low > 1e-6:
        mean = (low + high) / 2
        chance = sum(math.exp(-mean) * mean**count / math.factorial(count) for count in range(events + 1))
        low, high = (mean, high) if chance > 1 - CONFIDENCE else (low, mean)
    return high


def summarize_alert(results: Sequence[AlertResult], drive_weeks: float) -> AlertSummary:
    """Return the sum over fleets of one alert."""
    delays = [delay for result in results for delay in result.delays_s]
    rule = results[0].rule
    return AlertSummary(
        rule.name,
        rule.severity,
        sum(result.true for result in results),
        sum(result.related for result in results),
        sum(len(result.false) for result in results),
        sum(len(result.found) for result in results),
        sum(result.injected for result in results),
        statistics.median(delays) if delays else None,
        drive_weeks,
    )


def format_summaries(summaries: Iterable[AlertSummary]) -> list[str]:
    """Return the summaries as a Markdown table."""
    lines = [
        "| alert | severity | false alarms | per 1,000 drives and week | at most "
        "| faults found | median delay |",
        "|---|---|---|---|---|---|---|",
    ]
    for summary in summaries:
        found = f"{summary.found} of {summary.injected}" if summary.injected else "not injected"
        delay = "" if summary.delay_s is None else f"{summary.delay_s / 3600:.1f} h"
        missed = "" if summary.is_within_bound else " **missed**"
        lines.append(
            f"| {summary.name} | {summary.severity} | {summary.false} | {summary.false_rate:.2f}{missed} "
            f"| {summary.highest_rate:.2f} | {found} | {delay} |"
        )
    return lines


def measure_fleet(seed: int) -> list[AlertResult]:
    """Return what each alert did in the fleet with this seed."""
    fleet = make_fleet(
        seed,
        n_hosts=HOSTS,
        n_disks=DISKS,
        begin_s=BEGIN_S,
        days=DAYS,
        faulty=FAULTY,
        fault_begin_s=BEGIN_S + FAULT_BEGIN_S,
    )
    return evaluate_in_folder(fleet, DAYS)


def main() -> int:
    by_name: dict[str, list[AlertResult]] = {}
    summaries: list[AlertSummary] = []
    for n_fleets, seed in enumerate(SEEDS, 1):
        for result in measure_fleet(seed):
            by_name.setdefault(result.rule.name, []).append(result)
            for firing in result.false:
                print(f"false: {result.rule.name} {firing}", flush=True)
        drives = n_fleets * HOSTS * DISKS
        weeks = drives * DAYS / 7
        summaries = [summarize_alert(results, weeks) for results in by_name.values()]
        lines = [
            f"Measured by `make bench-fleet` over {DAYS:g} days of {drives:,} simulated drives "
            f"({weeks:,.0f} drive-weeks).",
            "",
            *format_summaries(summaries),
        ]
        print("\n".join(lines), flush=True)
        SECTION.write_body("\n".join(lines))
    return choose_exit_status(holds=all(summary.is_within_bound for summary in summaries))


if __name__ == "__main__":
    sys.exit(main())
