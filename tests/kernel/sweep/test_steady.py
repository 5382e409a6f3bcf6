"""The results of a sweep of a block device, compared with the theory for such a drive."""

from __future__ import annotations

from pathlib import Path

import pytest

from opwatch.ftl import models
from opwatch.ftl.drive import Policy
from tests.kernel.support.drives import MIB, create_drive
from tests.kernel.sweep.test_sweep import parse_levels, run_sweep

_PAGES = 256
_OPS = (0.12, 0.28)
_USER = 512 * MIB


def compute_exact(policy: Policy, alpha: float) -> float:
    return models.predict_greedy(alpha, _PAGES) if policy is Policy.GREEDY else models.predict_fifo(alpha)


@pytest.mark.parametrize("policy", [Policy.GREEDY, pytest.param(Policy.FIFO, marks=pytest.mark.manual)])
def test_waf_of_each_level_is_that_of_the_exact_model(policy: Policy, tmp_path: Path) -> None:
    config = {"policy": policy, "superblock_bytes": _PAGES * 4096}
    with create_drive(_USER, "7%", config=config, no_data=True) as target:
        flash = target.read_truth()["physical_bytes"]
        sizes = [int(flash / (1 + op)) // 4096 * 4096 for op in _OPS]
        levels = ("--op", ",".join(map(str, sizes)), "--rounds", "50")
        pace = ("--settle", "0", "--refresh", "0", "--fill", "1")
        done = run_sweep("run", target, tmp_path, "--dev", target.device, *levels, *pace)
        assert done.returncode in (0, 6), done.stderr
    for level, size in zip(parse_levels(done.stdout), sizes, strict=True):
        figures, verdict = level["figures"], level["opwatch"]
        assert figures["waf"] == pytest.approx(compute_exact(policy, flash / size), rel=0.01)
        # The window's figures equal the sum of its rounds, to the byte.
        begin, end = verdict["window"]
        rounds = level["rounds"][begin - 1 : end]
        assert figures["nand_bytes"] == sum(one["nand_bytes"] for one in rounds)
        # On a busy host, IOPS and its variation may stay unproven; all other checks are met.
        met = {check["name"]: check["is_met"] for check in verdict["checks"]}
        assert met["host writes"] and met["coverage"]
