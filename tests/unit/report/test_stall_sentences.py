"""A stall, which a steady rate around it may hide, comes before every other sentence of its disk."""

from __future__ import annotations

from opwatch.report.changes import MetricChanges
from opwatch.report.run_picture import gather_run
from opwatch.report.subject import ReportedRun
from opwatch.sinks.report.sentences import summarize_run
from opwatch.trace.account.stall import Stall
from tests.unit.compare.counted_disk import generate_entries


def sentences(stall: Stall | None) -> list[str]:
    picture = gather_run(generate_entries([{"write": {400_000: 500}}] * 40))
    (disk,) = picture.disks.values()
    disk.stall = stall
    changes: dict[str, tuple[MetricChanges, ...]] = {disk.label: ()}
    return summarize_run(ReportedRun("run", {}, picture, {}, (), changes, (), (), "", lambda at_ns: None))


def test_stall_is_the_first_sentence() -> None:
    without = sentences(None)
    assert len(without) >= 1
    stalled = sentences(Stall(2, 10**9, 3_600_000_000))
    assert "3.6 s" in stalled[0]
    assert stalled[1:] == without


def test_stall_that_a_slow_request_explains_is_left_out() -> None:
    assert sentences(Stall(2, 10**9, 900_000_000)) == sentences(None)
