"""Selection of the measured interval, with writes by other processes."""

from __future__ import annotations

from opwatch.counters.reading import CounterReading, Proof
from opwatch.waf.measure import MeasuredWaf, Measurement
from opwatch.waf.trail import Poll, Trail

SECOND = 10**9
NAND, HOST = "log 22h MBMW (bytes)", "log 22h HBMW (bytes)"


def make_reading(value: int, source: str, quantum: int = 1) -> CounterReading:
    return CounterReading(value, "bytes", quantum, source, Proof.SPEC)


def measure_polls(
    polls: list[tuple[int, int, int]],
    begin: int,
    end: int,
    *,
    sources: tuple[str, str] = (HOST, NAND),
    refresh_ns: int | None = None,
) -> MeasuredWaf:
    """Measure from (kernel, host, NAND) counts at each second."""
    trail = Trail()
    for second, (kernel, host, nand) in enumerate(polls):
        trail.add_poll(
            Poll(
                second * SECOND,
                second * SECOND + 1,
                kernel,
                kernel,
                host=(make_reading(host, sources[0]),),
                nand=(make_reading(nand, sources[1]),),
            )
        )
    return Measurement(trail, begin, end, refresh_ns=refresh_ns).make_result()


def test_writes_that_the_kernel_does_not_see_are_part_of_the_work() -> None:
    # The kernel's writes come first; a passthrough command writes at the end.
    still = [(1000, 5000, 9000)] * 3
    polls = [*still, (2000, 6000, 10_000), (2000, 6000, 10_000), (2000, 6500, 10_600), (2000, 6500, 10_600)]
    result = measure_polls(polls, 2, 5)
    assert result.stretch and result.stretch.host.agrees is False
    assert (result.waf, result.error) == (1600 / 1500, 0)
    assert "passthrough" in (result.stretch.host.why or "")


def test_polls_during_the_work_do_not_widen_pages_of_known_age() -> None:
    # 1009 blocks by the kernel and 6 that bypass it. Two polls fall into the work.
    blocks, drive = [*[0] * 4, 141, 1009, 1009, 1009], [*[0] * 4, 141, 1009, 1015, 1015]
    polls = [(4096 * kernel, 4096 * host, 4096 * host) for kernel, host in zip(blocks, drive, strict=True)]
    result = measure_polls(polls, 3, 6, refresh_ns=SECOND // 2)
    assert result.stretch and result.stretch.whole and result.stretch.host.agrees is False
    assert (result.waf, result.error) == (1.0, 0)
    assert (result.stretch.host.span.low, result.stretch.host.span.error) == (4_157_440, 0)
    # With an unknown age, 141 blocks may have been in the page before the work, and the kernel's count lacks
    # others. The page's own difference between two polls is exact, but covers more than the work.
    result = measure_polls(polls, 3, 6)
    assert result.stretch and not result.stretch.whole
    assert (result.waf, result.error) == (1.0, 0)


def test_excess_of_the_kernels_count_is_also_explained() -> None:
    polls = [*[(1000, 5000, 9000)] * 3, (3000, 6000, 10_000), (3000, 6000, 10_000)]
    result = measure_polls(polls, 2, 3)
    assert result.stretch and result.stretch.host.agrees is False
    assert result.waf == 1.0
    assert "Write Zeroes" in (result.stretch.host.why or "")


def test_without_a_host_counter_the_kernel_is_not_contradicted_and_not_confirmed() -> None:
    polls = [*[(1000, 5000, 9000)] * 3, (2000, 6000, 11_000), (2000, 6000, 11_000), (2000, 6000, 11_000)]
    result = measure_polls(polls, 2, 3, sources=(HOST, "log C0h physical media units written"))
    assert result.stretch and result.stretch.host.agrees is None
    assert "others" in (result.stretch.host.why or "")


def test_waf_below_1_is_a_number() -> None:
    polls = [*[(1000, 5000, 9000)] * 3, (2000, 6000, 9400), (2000, 6000, 9400)]
    result = measure_polls(polls, 2, 3)
    assert result.waf == 0.4
    assert result.stretch and result.stretch.amplification.is_below_one
