"""A simulated drive with the behaviour of a measured drive. Pure.

The spare area and the collector come from the fit of a sweep, and the speed from two time constants. A write
takes controller time, and each page programmed for it takes die time. The controller time comes from the
fastest level, the die time from the level with the most programmed pages; the longer of the two limits the
drive at the other levels.
"""

from __future__ import annotations

from collections.abc import Sequence

from opwatch.errors import NotEnoughData
from opwatch.ftl.drive import Policy
from opwatch.ftl.profiles import Profile
from opwatch.sweep.outcome import LevelOutcome
from opwatch.sweep.result import SweepResult

PREFIX = "fitted:"
_PAGE = 4096
_POLICIES = {"FIFO": Policy.FIFO, "two choices": Policy.D_CHOICES, "random": Policy.RANDOM}
# A typical flash die; the number of dies is chosen to match the measured speed.
_PLANES, _FLASH_PAGE, _BLOCK = 2, 16384, 4 << 20
_PROGRAM_NS, _READ_NS, _ERASE_NS = 700_000, 60_000, 3_000_000
# A buffer of typical size would hold a large part of the small model.
_BUFFER = 1 << 20
# The buses are never the bottleneck: the two time constants include their time.
_FAST = 1 << 40


def fit_profile(result: SweepResult, where: str) -> Profile:
    """Return the profile fitted to a sweep of a drive. `where` names the source of the sweep."""
    fit = result.fit_levels()
    if fit is None:
        raise NotEnoughData(
            f"{where}: no level with a WAF above 1 reached steady state under uniform writes, so there "
            "is no spare area to simulate"
        )
    policy = _POLICIES.get(fit.model.name, Policy.GREEDY)
    drive = {
        "user_bytes": max(one.level.scale.capacity_bytes for one in result.outcomes) // _PAGE * _PAGE,
        "physical_bytes": round(fit.flash_bytes) // _PAGE * _PAGE,
        "policy": policy,
    }
    if policy is Policy.D_CHOICES:
        drive["policy_arg"] = 2
    steady = [one for one in result.select_steady() if one.figures.iops and one.figures.waf]
    return Profile(
        name=f"{PREFIX}{where}",
        description=f"fitted to measurements of {result.target}",
        source="A sweep; latencies are fitted only as far as they follow from the speed",
        drive=drive,
        timing=_fit_timing(steady),
    )


def _fit_timing(levels: Sequence[LevelOutcome]) -> dict[str, int]:
    speeds = [(one.figures.iops or 0.0, one.figures.waf or 1.0) for one in levels]
    command_ns = 1e9 / max(iops for iops, _ in speeds)
    page_ns, waf = min((1e9 / (iops * waf), waf) for iops, waf in speeds)
    unit_pages = _PLANES * _FLASH_PAGE // _PAGE
    # Relocated pages are read before programming, and each page has its share of a block's erase.
    beside_ns = _READ_NS * (1 - 1 / waf) + _ERASE_NS * _FLASH_PAGE / _BLOCK
    dies = max(round((_PROGRAM_NS + beside_ns) / (page_ns * unit_pages)), 1)
    return {
        "dies": dies,
        "planes": _PLANES,
        "channels": dies,
        "page_bytes": _FLASH_PAGE,
        "block_bytes": _BLOCK,
        "read_ns": _READ_NS,
        "program_ns": max(round(page_ns * unit_pages * dies - beside_ns), 1),
        "erase_ns": _ERASE_NS,
        "channel_bytes_per_s": _FAST,
        "host_bytes_per_s": _FAST,
        "command_ns": round(command_ns),
        "buffer_bytes": _BUFFER,
    }
