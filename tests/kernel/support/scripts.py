"""Checks of the scripts in tools/bt for a known load, for this kernel and for guests."""

from __future__ import annotations

import os
from typing import Any

from tests.kernel.support.bpftrace import ROOT, collect_maps, run_script

BT = ROOT / "tools" / "bt"
# The kernel runs no tracepoint program while another runs on the same CPU, so the script misses a completion
# whose interrupt arrives during a program; issues interrupt nothing. On separate CPUs no completion is
# missed; otherwise up to MISSED per operation.
MISSED = 5


def is_within_missed(count: int, exact: int, missed: int) -> bool:
    """Return whether at most `missed` of the exact count are missing; a larger count is never right."""
    return exact - missed <= count <= exact


def run_on_mixture(script: str, node: str) -> tuple[dict[str, Any], list[str]]:
    """Return the maps and printed lines of a script that watches a disk under `load.run_mixture`. The disk's
    discard limit is 256 KiB, so each discard of 512 KiB is split in two."""
    number = os.stat(node).st_rdev
    lines = run_script(BT / script, str(os.major(number)), str(os.minor(number)), load=node)
    printed = "".join(line["data"] for line in lines if line["type"] == "printf")
    return collect_maps(lines), printed.splitlines()


def sum_histograms(histograms: dict[str, Any]) -> dict[str, int]:
    """Return the number of values in the histograms of a map, summed by operation letter."""
    sums: dict[str, int] = {}
    for key, buckets in histograms.items():
        op = decode_operation(key.split(",")[2])
        sums[op] = sums.get(op, 0) + sum(bucket["count"] for bucket in buckets)
    return sums


def decode_operation(rwbs: str) -> str:
    """Return the operation's letter: a flush is FF, and a write may have an F before or after its W."""
    return "flush" if rwbs.startswith("FF") else rwbs.lstrip("F")[0]


def check_latency(node: str, missed: int = MISSED) -> None:
    printed, _ = run_on_mixture("oplatency.bt", node)
    counts = sum_histograms(printed["@usecs"])
    for op, exact in (("R", 23), ("W", 36), ("D", 14)):
        assert is_within_missed(counts[op], exact, missed), counts
    assert counts["flush"] >= 11 - missed
    assert "@errors" not in printed


def check_size(node: str, missed: int = MISSED) -> None:
    printed, _ = run_on_mixture("opsize.bt", node)
    assert sum_histograms(printed["@bytes"]) == {"R": 23, "W": 36, "D": 14}
    sums: dict[str, int] = {}
    for key, stats in printed["@sum"].items():
        op = decode_operation(key.split(",")[2])
        sums[op] = sums.get(op, 0) + stats["total"]
    assert sums == {"R": 23 * 4096, "W": 29 * 8192 + 7 * 4096, "D": 7 << 19}


def check_discards(node: str, missed: int = MISSED) -> None:
    printed, lines = run_on_mixture("discards.bt", node)
    events = [line.split()[1] for line in lines if line[:8].strip().replace(".", "").isdigit()]
    counts = [events.count(e) for e in ("queued", "split", "issued", "complete")]
    assert counts[:3] == [7, 7, 14], "\n".join(lines)
    assert is_within_missed(counts[3], 14, missed), "\n".join(lines)
    assert printed["@queued_bytes"] == printed["@issued_bytes"] == 7 << 19
    assert is_within_missed(printed["@completed_bytes"], 7 << 19, missed << 18)
    assert "@failed_bytes" not in printed


def check_discarders(node: str, missed: int = MISSED) -> None:
    printed, _ = run_on_mixture("discarders.bt", node)
    assert sum(printed["@bytes"].values()) == 7 << 19
    assert sum(printed["@discards"].values()) == 7
    assert all("blkdev" in key for key in printed["@discards"])


def check_flush_cost(node: str, missed: int = MISSED) -> None:
    printed, _ = run_on_mixture("flushcost.bt", node)
    [flush] = printed["@flush"].values()
    assert flush["count"] >= 11 - missed
    assert flush["total"] >= flush["average"] > 0
    written = sum(stats["count"] for name in ("@write", "@fua") for stats in printed.get(name, {}).values())
    assert is_within_missed(written, 36, missed)


CHECKS = {
    "oplatency": check_latency,
    "opsize": check_size,
    "discards": check_discards,
    "discarders": check_discarders,
    "flushcost": check_flush_cost,
}
