from __future__ import annotations

from dataclasses import replace

from opwatch.live import Live, live
from opwatch.sinks.lines import live_line
from tests.unit.virtual_drive import OCP, Bench, VirtualDrive


def test_the_newest_window_that_says_enough_is_shown() -> None:
    drive = VirtualDrive(OCP, 5)
    bench = Bench(drive, every_s=5)
    bench.poll()
    assert live(bench.trail).waf is None and live(bench.trail).nand_bytes_per_s is None
    drive.rate = 100e6
    bench.polls(300)
    first = bench.newest - 120
    bench.polls(600)
    found = live(bench.trail)
    begin, end = bench.seen[first], bench.seen[-1]
    truth = (end.nand - begin.nand) / (end.host - begin.host)
    assert found.waf is not None and found.waf_error is not None
    assert 590 < found.window_s < 620
    assert found.waf_error < 0.05 * found.waf
    assert abs(found.waf - truth) < 0.05 * truth
    assert found.nand_bytes_per_s is not None and found.nand_error_bytes_per_s is not None
    assert abs(found.nand_bytes_per_s - truth * 100e6) <= found.nand_error_bytes_per_s + 0.02 * truth * 100e6
    assert found.nand_error_bytes_per_s < 0.1 * found.nand_bytes_per_s


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
