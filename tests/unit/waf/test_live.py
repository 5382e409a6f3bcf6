from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from opwatch.collectors.firmware.live import LiveWaf
from opwatch.counters.catalogue.families import Catalogue
from opwatch.counters.looks.nvme import collect_nvme
from opwatch.counters.looks.sample import CommandKind, Refusal, RefusalKind
from opwatch.counters.looks.transport import CachedIdentify, RecordingTransport, ReplayTransport
from opwatch.counters.prove.report import make_report
from opwatch.errors import UsageError
from opwatch.host.device import BlockDevice, Devices, Leaf
from opwatch.sinks.lines import format_live
from opwatch.waf.live import CurrentWaf
from opwatch.waf.live_figure import compute_current_waf, is_stale
from opwatch.waf.live_trail import LiveTrail
from opwatch.waf.polls import make_poll
from opwatch.waf.trail import SHUT_DOWN, Poll
from tests.unit.support.drive_readings import read_drive
from tests.unit.support.virtual_drive import CATALOGUE, FDP, OCP, Bench, VirtualDrive


def test_newest_window_with_enough_precision_is_shown() -> None:
    drive = VirtualDrive(OCP, 5)
    bench = Bench(drive, every_s=5)
    bench.poll_drive()
    assert (
        compute_current_waf(bench.trail).waf is None
        and compute_current_waf(bench.trail).nand_bytes_per_s is None
    )
    drive.rate = 100e6
    bench.poll_for(300)
    first = bench.newest_index - 120
    bench.poll_for(600)
    figure = compute_current_waf(bench.trail)
    begin, end = bench.truths[first], bench.truths[-1]
    truth = (end.nand - begin.nand) / (end.host - begin.host)
    assert figure.waf is not None and figure.waf_error is not None
    assert 590 < figure.window_s < 620
    assert figure.waf_error < 0.05 * figure.waf
    assert abs(figure.waf - truth) < 0.05 * truth
    assert figure.nand_bytes_per_s is not None and figure.nand_error_bytes_per_s is not None
    assert (
        abs(figure.nand_bytes_per_s - truth * 100e6) <= figure.nand_error_bytes_per_s + 0.02 * truth * 100e6
    )
    assert figure.nand_error_bytes_per_s < 0.1 * figure.nand_bytes_per_s


def test_lost_counter_gives_a_reason() -> None:
    drive = VirtualDrive(OCP, 5)
    bench = Bench(drive)
    drive.rate = 100e6
    bench.poll_for(10)
    drive.shutdowns += 1
    bench.poll_for(2)
    assert compute_current_waf(bench.trail).reason == SHUT_DOWN


def test_line_shows_waf_and_error() -> None:
    whole = CurrentWaf(2.3456, 0.04, None, 60.0, 812e6, 20e6, "log C0h", 1)
    assert format_live(whole) == "WAF 2.35 ± 0.04 over 60 s, NAND 812 ± 20.0 MB/s"
    none = replace(whole, waf=None, waf_error=None, reason="why", nand_bytes_per_s=None)
    assert format_live(none) == "WAF none: why"


def test_unchanged_pages_during_host_writes_are_reported() -> None:
    drive = VirtualDrive(OCP, 5, refresh_s=600)
    bench = Bench(drive)
    bench.poll_for(3)
    drive.rate = 50e6
    bench.poll_for(20)
    reason = compute_current_waf(bench.trail).reason or ""
    assert re.search(r"\b\d+ s .*\b[\d.]+ [GM]B;.* opwatch waf --refresh 10m", reason)


def test_idle_host_is_reported() -> None:
    bench = Bench(VirtualDrive(OCP, 1))
    bench.poll_for(20)
    assert "--refresh" not in (compute_current_waf(bench.trail).reason or "")


def test_idle_host_is_reported_up_to_the_last_poll() -> None:
    """A watch shows the reason beside newer intervals, in which the host may write."""
    bench = Bench(VirtualDrive(FDP, 1))
    bench.poll_for(20)
    figure = compute_current_waf(bench.trail)
    assert (
        figure.reason
        == f"no host writes in the {figure.window_s:.0f} s before the last poll of the drive's counters"
    )


def test_single_poll_reports_too_few_readings() -> None:
    bench = Bench(VirtualDrive(OCP, 1))
    bench.poll_drive()
    assert "once" in (compute_current_waf(bench.trail).reason or "")


def test_poll_without_counters_is_noticed() -> None:
    bench = Bench(VirtualDrive(OCP, 1))
    bench.poll_for(3)
    assert not is_stale(bench.trail)
    bench.trail.add_poll(Poll(10**12, 10**12 + 1, 0, 0))
    assert is_stale(bench.trail)


class FailingWaf(LiveWaf):
    def _poll_drives(self) -> None:
        raise UsageError("/etc/opwatch/counters.d/bad.toml: line 3: no such key")


def raise_usage_error() -> Catalogue:
    raise UsageError("bad.toml")


def test_failed_thread_reports_its_reason_instead_of_the_last_value() -> None:
    drive = VirtualDrive(OCP, 5)
    trail, drive.rate = LiveTrail(lambda: CATALOGUE), 100e6
    for _ in range(30):
        trail.add_sample(read_drive(drive, ("nvme0n1 1 2",)))
        drive.advance_time(1)
    assert trail.live_waf and trail.live_waf.waf is not None
    disks = {name: BlockDevice(name, (259, 0), Path("/nonexistent")) for name in ("nvme0n1", "nvme1n1")}
    leaves = [Leaf(disk, disk) for disk in disks.values()]
    failing = FailingWaf(Devices(), lambda leaves: {leaf.device.name: leaf.device for leaf in leaves}, 1.0)
    failing.add_leaves(leaves[:1])
    failing.start()
    failing.poll_now()
    [sample] = failing.take_samples()
    trail.add_sample(sample)
    words = "counters cannot be read: /etc/opwatch/counters.d/bad.toml: line 3: no such key"
    figure = trail.live_waf
    assert figure and figure.waf is None and figure.nand_bytes_per_s is None
    assert figure.reason == words
    assert format_live(figure).startswith(f"WAF none: {words[:30]}")
    # A drive added later reports the same reason once, even without a catalogue to interpret counters.
    assert failing.take_samples() == []
    failing.add_leaves(leaves)
    [late] = failing.take_samples()
    assert late.disk == "nvme1n1"
    other = LiveTrail(raise_usage_error)
    other.add_sample(late)
    assert other.live_waf and other.live_waf.reason == words


def test_readings_and_polls_give_the_same_figure() -> None:
    """With another path the measurement restarts without the earlier figure."""
    drive = VirtualDrive(OCP, 5)
    bench, trail = Bench(drive), LiveTrail(lambda: CATALOGUE)
    assert trail.live_waf is None
    drive.rate = 100e6
    for _ in range(40):
        sample = read_drive(drive, ("nvme0n1 1 2",))
        trail.add_sample(sample)
        counted = make_report(drive.read_evidence(), CATALOGUE)
        bench.trail.add_poll(make_poll(counted, sample.begin_ns, sample.end_ns, sample.before, sample.after))
        drive.advance_time(1)
    figure = trail.live_waf
    assert figure and figure.waf is not None
    assert figure == compute_current_waf(bench.trail)
    trail.add_sample(read_drive(drive, ("nvme0n1 1 2", "nvme0n2 7 3")))
    anew = trail.live_waf
    assert anew and anew.waf is None and "once" in (anew.reason or "")


def test_failed_reading_has_a_reason_and_recovery_has_a_figure() -> None:
    drive = VirtualDrive(OCP, 5)
    trail, drive.rate = LiveTrail(lambda: CATALOGUE), 100e6
    for _ in range(30):
        trail.add_sample(read_drive(drive))
        drive.advance_time(1)
    drive.fails = {0xC0, 0x02}
    trail.add_sample(read_drive(drive))
    assert trail.live_waf and trail.live_waf.reason
    assert ": log page 02h: refused" in trail.live_waf.reason
    drive.fails = set()
    drive.advance_time(1)
    trail.add_sample(read_drive(drive))
    assert trail.live_waf.waf is not None


def test_repeated_polls_read_only_the_logs() -> None:
    """Identify determines which logs exist, so polling needs no decoding."""
    drive = VirtualDrive(OCP, 5)
    first = RecordingTransport(CachedIdentify(drive))
    collect_nvme(first, CATALOGUE)
    assert first.is_complete
    drive.rate = 100e6
    drive.advance_time(5)
    again = first.repeat_commands()
    assert [given.command for given in again.recorded_answers] == [
        given.command for given in first.recorded_answers
    ]
    pages = {given.command: given.answer for given in first.recorded_answers}
    for given in again.recorded_answers:
        is_identify = given.command.kind is CommandKind.IDENTIFY
        assert (given.answer is pages[given.command]) or not is_identify
    assert [given.answer for given in again.recorded_answers] != [
        given.answer for given in first.recorded_answers
    ]
    evidence = collect_nvme(ReplayTransport(again.recorded_answers), CATALOGUE)
    assert evidence == drive.read_evidence()


def test_first_reading_that_the_drive_refused_has_a_reason() -> None:
    drive = VirtualDrive(OCP, 5)
    drive.fails = {0xC0, 0x02}
    trail = LiveTrail(lambda: CATALOGUE)
    sample = read_drive(drive)
    refused = replace(
        sample,
        answers=tuple(replace(given, answer=Refusal(RefusalKind.OTHER, "no")) for given in sample.answers),
    )
    trail.add_sample(refused)
    assert trail.live_waf and trail.live_waf.waf is None and trail.live_waf.reason
    # A drive that answers but has no counter has no figure.
    other = LiveTrail(lambda: CATALOGUE)
    other.add_sample(replace(sample, answers=()))
    assert other.live_waf is None
