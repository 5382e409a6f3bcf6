"""The rows of docs/exactness.md: their sources, their intermediate readings, and their format."""

from __future__ import annotations

import re
from typing import Any

from opwatch.trace.trust import Reading
from tests.unit.support.samples import Op, make_sample
from tests.unit.trace.test_trust import make_stat
from tests.vm import exactness, suite
from tests.vm.guest.support.reading_checks import ReadingChecks, check_readings

ROW: dict[str, Any] = {
    **{"kernel": "6.1", "driver": "nvme", "op": "write", "requests": 1009, "bytes": 1009 * 4096},
    **{"errors": 0, "partial": 0, "requeued": 0, "drift": 0, "byte drift": None, "losses": 0},
}


def test_files_that_note_rows_are_found_by_their_imports() -> None:
    noting = {file.path.stem for file in suite.list_guest_files() if file.notes_rows}
    assert {"test_exactness", "test_stacks", "test_trouble"} <= noting
    assert "test_basics" not in noting
    for source in (
        "from tests.vm.guest.support.exact import observe_disks",
        "from tests.vm.guest.support import sysfs, exact",
        "def test() -> None:\n    import tests.vm.guest.support.exact",
    ):
        assert suite.has_import(source, "tests.vm.guest.support.exact")
    others = "from tests.vm.guest.support import sysfs\nfrom tests.vm import exactness"
    assert not suite.has_import(others, "tests.vm.guest.support.exact")


def test_row_reports_intermediate_readings_or_their_absence() -> None:
    page = exactness.render_page([ROW, ROW | {"between": ReadingChecks(57, ()).format_cell()}])
    first, second = page.splitlines()[-2:]
    assert first.endswith(" | 0 | - |")
    assert second.endswith(" | 0 | 0 of 57 |")
    assert re.search(r"\b2,018 requests .*\b2 rows", page)


def _make_reading(traced: int, kernel: int) -> Reading:
    """Return a reading with these numbers of traced and kernel-counted reads, all of 4096 bytes."""
    read = Op([1000] * traced, [4096] * traced)
    counts = make_stat(kernel)
    return Reading(make_sample(1, read=read), counts, counts)


def test_loss_at_an_intermediate_reading_is_found() -> None:
    whole = check_readings([_make_reading(0, 0), _make_reading(7, 7)])
    assert (whole.readings, whole.unexplained) == (1, ())
    cut = check_readings([_make_reading(0, 0), _make_reading(4, 5), _make_reading(7, 7), _make_reading(9, 9)])
    assert cut.readings == 3
    assert [reason.split(":")[0] for reason in cut.unexplained] == ["reading 1"]
    assert "1 read (4096 bytes)" in cut.unexplained[0]


def test_a_request_that_the_kernel_has_not_counted_yet_is_not_excused() -> None:
    """The tracer must wait for the kernel's count, and the readings check the wait."""
    cut = check_readings([_make_reading(0, 0), _make_reading(9, 8), _make_reading(9, 9)])
    assert [reason.split(":")[0] for reason in cut.unexplained] == ["reading 1"]
