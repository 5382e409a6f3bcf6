from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from opwatch.collectors.firmware.live import LiveWaf
from opwatch.errors import UsageError
from opwatch.host.device import BlockDevice, Devices
from opwatch.sinks.lines import live_line
from opwatch.waf.live import Live
from opwatch.waf.live_figure import live, stale
from opwatch.waf.trail import Poll
from tests.unit.support.virtual_drive import OCP, Bench, VirtualDrive


def test_the_newest_window_that_says_enough_is_shown() -> None:
    drive = VirtualDrive(OCP, 5)
    bench = Bench(drive, every_s=5)
    bench.poll()
    assert live(bench.trail).waf is None and live(bench.trail).nand_bytes_per_s is None
    drive.rate = 100e6
    bench.polls(300)
    first = bench.newest - 120
    bench.polls(600)
    figure = live(bench.trail)
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


def test_a_counter_that_is_lost_is_a_reason() -> None:
    drive = VirtualDrive(OCP, 5)
    bench = Bench(drive)
    drive.rate = 100e6
    bench.polls(10)
    drive.shutdowns += 1
    bench.polls(2)
    assert "lost power" in (live(bench.trail).reason or "")


def test_the_line() -> None:
    whole = Live(2.3456, 0.04, None, 60.0, 812e6, 20e6, "log C0h", 1)
    assert live_line(whole) == "WAF 2.35 ± 0.04 over 60 s, NAND 812 ± 20.0 MB/s"
    none = replace(whole, waf=None, waf_error=None, reason="why", nand_bytes_per_s=None)
    assert live_line(none) == "WAF none: why"


def test_pages_that_stand_still_while_the_host_writes_say_so() -> None:
    drive = VirtualDrive(OCP, 5, refresh_s=600)
    bench = Bench(drive)
    bench.polls(3)
    drive.rate = 50e6
    bench.polls(20)
    reason = live(bench.trail).reason or ""
    assert "have not moved" in reason and "the host wrote" in reason and "GB" in reason
    assert "wrote nothing" not in reason
    assert "opwatch waf --refresh 10m waits for that" in reason


def test_a_host_that_is_idle_is_said_to_be_idle() -> None:
    bench = Bench(VirtualDrive(OCP, 1))
    bench.polls(20)
    assert "have not moved" not in (live(bench.trail).reason or "")


def test_one_look_is_a_sentence() -> None:
    bench = Bench(VirtualDrive(OCP, 1))
    bench.poll()
    assert live(bench.trail).reason == "the drive's counters were read once so far; it takes two looks"


def test_a_look_that_reads_nothing_is_noticed() -> None:
    bench = Bench(VirtualDrive(OCP, 1))
    bench.polls(3)
    assert not stale(bench.trail)
    bench.trail.add(Poll(10**12, 10**12 + 1, 0, 0))
    assert stale(bench.trail)


class Failing(LiveWaf):
    def _poll_all(self) -> None:
        raise UsageError("/etc/opwatch/counters.d/bad.toml: line 3: no such key")


def test_a_thread_that_fails_leaves_its_reason_and_not_the_last_value() -> None:
    disk = BlockDevice("nvme0n1", (259, 0), Path("/nonexistent"))
    reader = Failing(Devices(), lambda _: {"nvme0n1": disk}, 1.0)
    reader.add([])
    reader._latest["nvme0n1"] = Live(2.0, 0.1, None, 60.0, 1.0, 0.1, "log C0h", 1)
    reader.start()
    reader.look()
    figure = reader.get("nvme0n1")
    assert figure and figure.waf is None and figure.nand_bytes_per_s is None
    assert figure.reason == ("counters are not read: /etc/opwatch/counters.d/bad.toml: line 3: no such key")
    assert live_line(figure).startswith("WAF none: counters are not read: /etc")
