"""Limits of a sweep: bytes written, drive life, temperature. Pure: checked repeatedly during the sweep."""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.guard.obstacles import Obstacle

MAX_LIFE_PERCENT, MAX_CELSIUS = 1, 70


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a sweep. With `is_of_plan` the user gave no byte limit, and `write_bytes` is the plan's
    maximum."""

    write_bytes: int
    life_percent: int = MAX_LIFE_PERCENT
    celsius: int = MAX_CELSIUS
    is_of_plan: bool = False


@dataclass(frozen=True, slots=True)
class Health:
    """Health as reported by a drive; None for values not reported. `host_bytes` is the kernel's count of
    written bytes."""

    host_bytes: int | None = None
    percentage_used: int | None = None
    available_spare: int | None = None
    spare_threshold: int | None = None
    critical_warning: int | None = None
    celsius: int | None = None


def find_overruns(budget: Budget, before: Health, now: Health, written: int, where: str) -> list[Obstacle]:
    """Return why the sweep must stop; empty if the sweep may go on. `written` is the total of all steps."""
    reasons = [*_check_health(budget, before, now)]
    if written > budget.write_bytes:
        remedy = "resume it with a larger --max-write if the drive may take that wear"
        reasons.append((f"{written} bytes were written; the limit is {budget.write_bytes} bytes", remedy))
    if now.celsius is not None and now.celsius >= budget.celsius:
        reasons.append(
            (f"its temperature is {now.celsius} °C; the limit is {budget.celsius} °C", "cool it, then resume")
        )
    return [Obstacle(what, where, remedy) for what, remedy in reasons]


def _check_health(budget: Budget, before: Health, now: Health) -> list[tuple[str, str]]:
    replace = "its data is at risk: do not write to it any more"
    reasons = []
    if now.critical_warning:
        reasons.append((f"the drive reports critical warning {now.critical_warning:02X}h", replace))
    spare, least = now.available_spare, now.spare_threshold
    if spare is not None and least is not None and spare < least:
        reasons.append((f"available spare {spare} % is below the drive's threshold of {least} %", replace))
    if now.percentage_used is not None and before.percentage_used is not None:
        worn = now.percentage_used - before.percentage_used
        if worn > budget.life_percent:
            remedy = "resume it with a larger --max-life if the drive may take that wear"
            reasons.append(
                (f"{worn} % of its rated life was used; the limit is {budget.life_percent} %", remedy)
            )
        if worn < 0:
            reasons.append(
                ("its wear indicator decreased", "it is another drive, or it was reset: make a new plan")
            )
    if now.host_bytes is not None and before.host_bytes is not None and now.host_bytes < before.host_bytes:
        reasons.append(
            ("its counter of written bytes decreased", "it was disconnected and came back: make a new plan")
        )
    return reasons
