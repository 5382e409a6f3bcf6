"""Evidence from drives and the kernel for a trim: vendor counters of simulated drives, kernel messages."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opwatch.host.usage import Mount
from opwatch.tools.acting.trim import fitrim_process
from opwatch.trim.audit.accounts import CounterEvidence, JudgedAccount
from opwatch.trim.audit.audit import Asked, Audit, Verdict
from opwatch.trim.audit.fitrim import FitrimAnswer
from tests.kernel.support import trims
from tests.kernel.support.drives import MIB, create_drive
from tests.kernel.support.trims import ATTEMPTS, has_host_losses, mount_filesystem, sum_reasons
from tests.kernel.trim.test_audit import create_sealed
from tests.requirements import require_drive

SIZE = 512 * MIB
SOURCE = "log CAh E5"


def audit_new_filesystem(*faults: str) -> tuple[Audit, dict[str, int], dict[str, int]]:
    """Return an audit of a new filesystem on a simulated drive, and the drive's truth before and after."""
    for _ in range(ATTEMPTS):
        with create_drive(SIZE, faults=faults) as one, mount_filesystem(one.device, "ext4") as point:
            (point / "file").write_bytes(os.urandom(64 * MIB))
            os.sync()
            (point / "file").unlink()
            os.sync()
            before = one.read_truth()
            result = trims.audit_point(point)
            after = one.read_truth()
        if not has_host_losses(result):
            break
    return result, before, after


def find_counter(result: Audit) -> JudgedAccount:
    [account] = [candidate for candidate in result.counters if candidate.account.source == SOURCE]
    return account


def test_trim_is_proven_when_a_drive_counter_rises_by_the_completed_bytes() -> None:
    require_drive()
    result, before, after = audit_new_filesystem()
    assert result.verdict is Verdict.PROVEN
    account = find_counter(result)
    assert account.bearing is CounterEvidence.PROVES
    assert account.account.amount_moved == after["trim_bytes"] - before["trim_bytes"] == result.reached_bytes
    assert result.evidence.read_back is None
    assert sum_reasons(result) == {}


def test_counter_is_silent_when_the_drive_ignores_trims() -> None:
    """The trace is equally perfect but no proof, and the drive's own count of held data contradicts it."""
    require_drive()
    result, before, after = audit_new_filesystem("trim=ignore")
    assert result.verdict is Verdict.UNKNOWN
    assert sum_reasons(result) == {"advisory": None}
    assert len(re.findall(r"\d B\b", result.reasons[0].observed)) >= 2
    account = find_counter(result)
    assert (account.bearing, account.account.amount_moved) == (CounterEvidence.SILENT, 0)
    assert "not move" in account.words
    assert result.reached_bytes == after["trim_bytes"] - before["trim_bytes"] > 60 * MIB


def test_audit_waits_for_a_drive_that_frees_later() -> None:
    require_drive()
    result, before, after = audit_new_filesystem("trim=lazy")
    assert result.verdict is Verdict.PROVEN
    assert before["valid_bytes"] - after["valid_bytes"] > 60 * MIB


def test_counter_is_silent_when_its_page_is_refreshed_late() -> None:
    require_drive()
    result, _, _ = audit_new_filesystem("refresh=600")
    assert find_counter(result).bearing is CounterEvidence.SILENT


def test_unreadable_counter_page_is_left_out() -> None:
    require_drive()
    result, _, _ = audit_new_filesystem("log-fail=ca")
    assert [account for account in result.counters if account.account.source == SOURCE] == []
    assert result.verdict is Verdict.ACCEPTED


@pytest.fixture
def _speaking(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """During each trim, write a message about an unrelated device into the kernel's log too."""
    ours = fitrim_process.trim_in_child

    def log_and_trim(mount: Mount, asked: Asked, started: Callable[[int], None]) -> FitrimAnswer:
        Path("/dev/kmsg").write_text("<6>opwatch test: about loop4077 only\n")
        return ours(mount, asked, started)

    monkeypatch.setattr(fitrim_process, "trim_in_child", log_and_trim)
    yield


# The kernel prints at most 10 failed requests in 5 s, of all disks (blk_print_req_error()).
_RATE_LIMIT_S, _ATTEMPTS = 5.0, 4


@pytest.mark.usefixtures("_speaking")
def test_evidence_has_kernel_messages_of_the_audited_devices_only() -> None:
    """Discards fail, and the kernel logs the device, the sector and the operation."""
    for attempt in range(_ATTEMPTS):
        for _, result in trims.audit_until_complete(lambda: create_sealed("xfs")):
            name = next(row.device for row in result.rows if row.layer == "loop")
            said = result.evidence.log
        assert said.unknown is None
        assert not any("loop4077" in line for line in said.lines)
        assert all(name in line for line in said.lines)
        if any("DISCARD" in line and f"dev {name}," in line for line in said.lines):
            return
        # Tests of failing disks that run at the same time used up the limit.
        time.sleep(_RATE_LIMIT_S * (attempt + 1))
    pytest.fail(f"no message about a discard: {said}")
