"""What drives and the kernel say of a trim: vendor counters of simulated drives, messages of the kernel."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opwatch.collectors.audit import fitrim_process
from opwatch.host.usage import Mount
from opwatch.trim.audit.accounts import Bearing, Told
from opwatch.trim.audit.audit import Asked, Audit, Verdict
from opwatch.trim.audit.question import FitrimAnswer
from tests.kernel.support import trims
from tests.kernel.support.drives import MIB, drive
from tests.kernel.support.trims import ATTEMPTS, codes, lost_by_the_host, mounted
from tests.kernel.trim.test_audit import sealed
from tests.requirements import require_drive

SIZE = 512 * MIB
SOURCE = "log CAh E5"


def audited(*faults: str) -> tuple[Audit, dict[str, int], dict[str, int]]:
    """An audit of a new filesystem on a simulated drive, and what the drive knows of itself around it."""
    for _ in range(ATTEMPTS):
        with drive(SIZE, faults=faults) as one, mounted(one.device, "ext4") as point:
            (point / "file").write_bytes(os.urandom(64 * MIB))
            os.sync()
            (point / "file").unlink()
            os.sync()
            before = one.truth()
            found = trims.audit(point)
            after = one.truth()
        if not lost_by_the_host(found):
            break
    return found, before, after


def counter(found: Audit) -> Told:
    [told] = [each for each in found.counters if each.account.source == SOURCE]
    return told


def test_a_counter_that_rises_by_what_completed_is_proof() -> None:
    require_drive()
    found, before, after = audited()
    assert found.verdict is Verdict.PROVEN
    told = counter(found)
    assert told.bearing is Bearing.PROVES
    assert told.account.moved == after["trim_bytes"] - before["trim_bytes"] == found.reached_bytes
    assert found.evidence.read_back is None
    assert codes(found) == {}


def test_a_drive_that_ignores_trims_counts_none() -> None:
    """The same perfect trace, no proof, and its own count of what it holds contradicts."""
    require_drive()
    found, before, after = audited("trim=ignore")
    assert found.verdict is Verdict.UNKNOWN
    assert codes(found) == {"advisory": None}
    assert "B as in use, and at most" in found.reasons[0].observed
    told = counter(found)
    assert (told.bearing, told.account.moved) == (Bearing.SILENT, 0)
    assert "did not move" in told.words
    assert found.reached_bytes == after["trim_bytes"] - before["trim_bytes"] > 60 * MIB


def test_a_drive_that_frees_later_is_given_its_time() -> None:
    require_drive()
    found, before, after = audited("trim=lazy")
    assert found.verdict is Verdict.PROVEN
    assert before["valid_bytes"] - after["valid_bytes"] > 60 * MIB


def test_a_page_that_is_refreshed_later_tells_nothing() -> None:
    require_drive()
    found, _, _ = audited("refresh=600")
    assert counter(found).bearing is Bearing.SILENT


def test_a_page_that_cannot_be_read_is_left_out() -> None:
    require_drive()
    found, _, _ = audited("log-fail=ca")
    assert [each for each in found.counters if each.account.source == SOURCE] == []
    assert found.verdict is Verdict.ACCEPTED


@pytest.fixture
def _speaking(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """During each trim the kernel's log gets a message about no device of ours, too."""
    ours = fitrim_process.trim

    def trim(mount: Mount, asked: Asked, started: Callable[[int], None]) -> FitrimAnswer:
        Path("/dev/kmsg").write_text("<6>opwatch test: of loop4077 and of nobody else\n")
        return ours(mount, asked, started)

    monkeypatch.setattr(fitrim_process, "trim", trim)
    yield


@pytest.mark.usefixtures("_speaking")
def test_messages_of_the_devices_concerned() -> None:
    """Failed discards: the kernel names the device, the sector and the operation."""
    for _, found in trims.audited(lambda: sealed("xfs")):
        name = next(row.device for row in found.rows if row.layer == "loop")
        said = found.evidence.log
        assert said.unknown is None
        assert any("DISCARD" in line and f"dev {name}," in line for line in said.lines), said
        assert not any("loop4077" in line for line in said.lines)
        assert all(name in line for line in said.lines)
