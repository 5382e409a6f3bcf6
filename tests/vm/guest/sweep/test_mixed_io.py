"""Mixed I/O on md arrays and dm, over drives that serve one request at a time in 5 ms, which makes each
array's rates known."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.vm.guest.sweep.mixed_sets import mount_sets, run_mixed_io

# Manual runs only: five configurations with six loads each.
TIERS = ()
TIMEOUT_S = 1800
# Maximum rate of a drive: 200 requests per second, less the driver's overhead.
MAX_IOPS = 200


def _find_rate(document: dict[str, Any], name: str, load: str) -> dict[str, Any]:
    [one] = [one for one in document["configurations"] if one["name"] == name]
    rate: dict[str, Any]
    [rate] = [rate for rate in one["rates"] if rate["load"] == load]
    return rate


def _compute_requests_per_io(rate: dict[str, Any]) -> float:
    """Return the number of member requests per I/O of the load."""
    work = sum(member["reads"] + member["writes"] for member in rate["members"])
    return float(work / (rate["reads"] + rate["writes"]))


def test_sets_are_compared_side_by_side() -> None:
    with mount_sets() as points:
        document = run_mixed_io(points, 5)
    print(json.dumps(document))
    kinds = [one["kind"] for one in document["configurations"]]
    assert kinds == ["disk", "md-raid1", "md-raid10", "md-raid5", "dm"]
    members = [len(one["rates"][0]["members"]) for one in document["configurations"]]
    assert members == [1, 2, 4, 3, 1]
    # A read goes to one of two members and a write to both, however busy the machine is.
    for name, load, requests in (
        ("single", "8k random 75r", 1.0),
        ("raid1", "8k random 75r", 1.25),
        ("raid10", "8k random 75r", 1.25),
        ("raid1", "8k random 25r", 1.75),
        ("dm", "8k random 25r", 1.0),
    ):
        assert _compute_requests_per_io(_find_rate(document, name, load)) == pytest.approx(requests, abs=0.1)
    # A short write to RAID 5 also reads the blocks needed for the parity.
    assert _compute_requests_per_io(_find_rate(document, "raid5", "8k random 25r")) > 2.2
    loads = [(name, load) for name in points for load in ("8k random 25r", "128k seq read")]
    for rate in (_find_rate(document, name, load) for name, load in loads):
        for member in rate["members"]:
            # No drive serves more than one request at a time, or any request in less than 5 ms.
            assert member["reads"] + member["writes"] <= 1.05 * MAX_IOPS * rate["seconds"] + 20
            assert member["mean_ns"] is None or member["mean_ns"] >= 4.5e6
