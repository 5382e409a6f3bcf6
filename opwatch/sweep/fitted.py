"""A simulated drive that behaves as one that was measured: its spare area and collector as the fit of a
sweep has them, its speed by two times. Pure.

A write takes the controller some time, and each page that is programmed for it takes the dies some. The
first is that of the fastest level, the second that of the level that programs most: whichever is longer
limits the others.
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
# A die of usual flash: so many are taken as make the speed that was measured.
_PLANES, _FLASH_PAGE, _BLOCK = 2, 16384, 4 << 20
_PROGRAM_NS, _READ_NS, _ERASE_NS = 700_000, 60_000, 3_000_000
# A buffer of a usual size would hold much of the model, which is small.
_BUFFER = 1 << 20
# What carries data is never what limits: what it takes is in the two times.
_FAST = 1 << 40


def fitted_profile(result: SweepResult, where: str) -> Profile:
    """The profile that a sweep of a drive leads to. `where` is what it was read from."""
    fit = result.fit()
    if fit is None:
        raise NotEnoughData(
            f"{where}: no level with a WAF above 1 has reached a steady state under uniform writes: there is "
            "no spare area to simulate"
        )
    policy = _POLICIES.get(fit.model.name, Policy.GREEDY)
    drive = {
        "user_bytes": max(one.level.scale.capacity_bytes for one in result.outcomes) // _PAGE * _PAGE,
        "physical_bytes": round(fit.flash_bytes) // _PAGE * _PAGE,
        "policy": policy,
    }
    if policy is Policy.D_CHOICES:
        drive["policy_arg"] = 2
    steady = [one for one in result.steady() if one.figures.iops and one.figures.waf]
    return Profile(
        name=f"{PREFIX}{where}",
        description=f"as {result.target} was measured",
        source="A sweep; latencies but for what follows from the speed are not fitted",
        drive=drive,
        timing=_timing(steady),
    )


def _timing(levels: Sequence[LevelOutcome]) -> dict[str, int]:
    speeds = [(one.figures.iops or 0.0, one.figures.waf or 1.0) for one in levels]
    command_ns = 1e9 / max(iops for iops, _ in speeds)
    page_ns, waf = min((1e9 / (iops * waf), waf) for iops, waf in speeds)
    unit_pages = _PLANES * _FLASH_PAGE // _PAGE
    # Of the pages that are programmed, those that were moved were read before; and each was erased.
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
