"""Checks of lines with owners: owners add up to the disk, and intervals add up to the summary."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.vm.guest.support.watcher import Watcher

Document = dict[str, Any]


def sum_by_owner(line: Document) -> dict[str, dict[str, tuple[int, int]]]:
    """Return (requests, bytes) by owner and operation. A removed group appears under its number."""
    rows = [
        (one["name"] or f"{one['kind']} {one['cgroup_number'] or ''}", one["ops"])
        for one in line["owners"]["owners"]
    ]
    rows.append(("other", line["owners"]["other"]["ops"]))
    return {name: {op: (own["count"], own["bytes"]) for op, own in ops.items()} for name, ops in rows if ops}


def make_owner_key(owner: Document) -> str:
    """Return a key that stays the same when the owner's name becomes known."""
    return f"{owner['kind']} {owner['cgroup_number']} {owner['pid']}"


_WAITS = ("throttle_ns", "admission_ns", "queue_ns")


def assert_waits_match(line: Document) -> None:
    """Check that the owners' waits add up to the disk's."""
    sums: Counter[tuple[str, str, str]] = Counter()
    for ops in [one["ops"] for one in line["owners"]["owners"]] + [line["owners"]["other"]["ops"]]:
        for op, own in ops.items():
            for name in _WAITS:
                sums.update({(op, name, field): own[name][field] for field in ("known", "sum")})
    for op, whole in line["ops"].items():
        for name in (name for name in _WAITS if name in whole):
            known, mean = sums[op, name, "known"], whole[name]["mean"] or 0
            assert known == whole[name].get("known", known), (op, name, line)
            assert sums[op, name, "sum"] == pytest.approx(mean * known, abs=0.5, rel=1e-12), (op, name, line)


def assert_sums_match(line: Document) -> None:
    """Check that each column of a line adds up to the disk's value."""
    sums: Counter[tuple[str, str]] = Counter()
    parts = [one["ops"] for one in line["owners"]["owners"]] + [line["owners"]["other"]["ops"]]
    for ops in parts:
        for op, own in ops.items():
            for name in ("count", "bytes", "time_ns"):
                assert own[name] >= 0, line
                sums[op, name] += own[name]
    for op, whole in line["ops"].items():
        assert sums[op, "count"] == whole["count"], (op, line)
        assert sums[op, "bytes"] == whole["bytes"], (op, line)
        # A reading during a completion already has its bytes and time, but the request itself is in the next
        # reading. There is then no mean to compare the time with.
        if whole["count"]:
            time_ns = whole["latency_ns"]["mean"] * whole["count"]
            assert sums[op, "time_ns"] == pytest.approx(time_ns, abs=0.5 + time_ns * 1e-12), (op, line)


def assert_all_sums_match(watcher: Watcher) -> Document:
    """Check every line and that the intervals add up to the summary; return the summary."""
    assert watcher.interrupt_opwatch() == 0, watcher.words
    lines = [line for line in watcher.lines if line["type"] in ("interval", "summary")]
    for line in lines:
        assert_sums_match(line)
    [summary] = [line for line in lines if line["type"] == "summary"]
    assert summary["unexplained"] == [], summary["trust"]
    sums: Counter[tuple[str, str]] = Counter()
    for line in lines:
        for one in line["owners"]["owners"] if line["type"] == "interval" else ():
            sums.update({(make_owner_key(one), op): own["count"] for op, own in one["ops"].items()})
    whole = {
        (make_owner_key(one), op): own["count"]
        for one in summary["owners"]["owners"]
        for op, own in one["ops"].items()
    }
    assert sums == whole, {
        key: (sums[key], whole.get(key)) for key in sums | whole if sums[key] != whole.get(key)
    }
    return dict(summary)
