"""The causes that a simulated drive, or the host above it, can have: how each is made and known."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from tests.kernel.support.drives import MIB
from tests.why.bench import SIZE, Bench, make_fio, run_beside, set_faults, set_queue
from tests.why.plan import find_rates

_COOL_S = 4
_THERMAL = f"thermal=tmt1:60,tmt2:75,cool:{_COOL_S}s,"
_COLD = f"{_THERMAL}heat:0"
# Longer than any window; the process is stopped at its end.
_LONG_S = 600
Act = Callable[[Bench, random.Random], AbstractContextManager[object]]


@dataclass(frozen=True)
class Cause:
    """A cause. Its truth is the first of: episodes of the drive, growth of a counter, the run, windows."""

    what: str
    act: Act | None = None  # during each window; None: it acts by itself
    config: dict[str, int] = field(default_factory=dict)
    op: str = "400%"  # the base load does not use it up, so the drive has nothing to collect
    faults: Callable[[random.Random], tuple[str, ...]] = lambda _: ()
    episodes: tuple[str, ...] = ()
    counter: tuple[str, int] | None = None  # its name, and the growth per poll that counts
    base_load: tuple[str, ...] = ()
    processes: int = 1  # that share the base load
    depth: int = 16  # requests of the base load in flight
    poll_s: int = 5  # between two polls of the drive
    least_write_rate: int = 0  # bytes per second of the base load, by larger writes
    on_filesystem: bool = False
    is_constant: bool = False  # it acts for the whole run
    shape: str = "steady"  # of the base load, if the run does not ask for another one
    prepare: tuple[str, ...] = ()  # fio options of a load before the run


def load_beside(*options: str, group: str | None = None) -> Act:
    def act(bench: Bench, source: random.Random) -> AbstractContextManager[object]:
        seed = f"--randseed={source.randrange(1 << 30)}"
        argv = make_fio(bench.target, _LONG_S, "--ioengine=libaio", seed, *options)
        return run_beside(argv, f"{group}-{bench.drive.name}" if group else None)

    return act


def inject(during: tuple[str, ...], after: tuple[str, ...]) -> Act:
    return lambda bench, _: set_faults(bench, during, after)


def limit_tags(bench: Bench, _: random.Random) -> AbstractContextManager[object]:
    return set_queue(bench, "nr_requests", "4")


@contextmanager
def use_scheduler(bench: Bench, source: random.Random) -> Iterator[None]:
    """Let BFQ issue one request at a time, and wait for the next request of the same process."""
    beside = load_beside("--rw=read", "--bs=4k", "--iodepth=1", "--rate_iops=50")
    with set_queue(bench, "scheduler", "bfq"), beside(bench, source):
        # It is gone with the scheduler.
        (bench.queue / "iosched" / "strict_guarantees").write_text("1")
        yield


def heat_up(bench: Bench, _: random.Random) -> AbstractContextManager[object]:
    """Heat so that the base load would end at 120 °C: tmt2 is reached after 2.3 s."""
    gb_per_s = sum(find_rates(bench.load)) * 4096 / 1e9
    return set_faults(bench, (f"{_THERMAL}heat:{80 / (_COOL_S * gb_per_s):.0f}",), (_COLD,))


def draw_stalls(source: random.Random) -> tuple[str, ...]:
    return (f"stall=every:{source.uniform(4, 12):.2f}s,for:{source.randrange(60, 250)}ms",)


def draw_sleep(source: random.Random) -> tuple[str, ...]:
    return (f"sleep-after={source.randrange(400, 800)}ms:{source.randrange(40, 100)}ms",)


def draw_log_stalls(source: random.Random) -> tuple[str, ...]:
    return tuple(f"log-stall={page}:{source.randrange(40, 120)}ms" for page in ("02", "c0"))


def draw_slow_die(source: random.Random) -> tuple[str, ...]:
    return (f"slow-die={source.randrange(8)}:{source.randrange(100, 300)}x",)


# Programs that keep eight dies busy for most of the time at 30 MB/s, and are not suspended for reads.
_LONG_PROGRAMS = {"service.dies": 8, "service.suspend_ns": 8_000_000, "service.program_ns": 8_000_000}

CAUSES = {
    "none": Cause("nothing is injected"),
    "gc": Cause(
        "the drive collects garbage in bursts",
        # A burst frees 24 MiB, which the writes of the base load fill again in 6 to 12 s.
        config=_LONG_PROGRAMS | {"service.gc_burst": 1, "gc_low_superblocks": 4, "gc_high_superblocks": 100},
        op="25%",
        counter=("nand_write_gc_bytes", MIB // 4),
        least_write_rate=2_000_000,
        # Polls that are as far apart as the bursts do not show them.
        poll_s=1,
        prepare=("--rw=randwrite", "--bs=4k", "--ioengine=libaio", "--iodepth=32", f"--io_size={SIZE}"),
    ),
    "slc-full": Cause(
        "sequential writes fill the pseudo-SLC cache, which empties in pauses",
        # The cache takes 2 to 3 s of the writes; then the dies take fewer than the host writes.
        config={
            "slc_bytes": 96 * MIB,
            "slc_full": 1,  # folds to make room
            "buffer_bytes": 4 * MIB,
            "service.dies": 8,
            "service.program_ns": 8_000_000,
            "service.suspend_ns": 200_000,
        },
        op="200%",
        counter=("nand_write_fold_bytes", MIB // 4),
        base_load=("--percentage_random=100,0",),
        least_write_rate=50_000_000,
        shape="spells",
    ),
    "thermal": Cause(
        "the drive gets hot",
        heat_up,
        faults=lambda _: (_COLD,),
        episodes=("thermal-light", "thermal-heavy"),
    ),
    # Only a load that varies separates a period in seconds from one in bytes.
    # With few requests in flight, a stall delays less than 1 % of the requests of a second.
    "stall": Cause(
        "housekeeping by time", faults=draw_stalls, episodes=("stall",), shape="halved", depth=256
    ),
    "log-stall": Cause(
        "our polls of log pages stop the drive",
        faults=draw_log_stalls,
        episodes=("log-stall",),
    ),
    "sleep": Cause(
        "requests after idle gaps wake the drive",
        faults=draw_sleep,
        episodes=("sleep-exit",),
        shape="pauses",
    ),
    "slow-die": Cause(
        "one die is slow", config={"service.dies": 8}, faults=draw_slow_die, episodes=("slow-die",)
    ),
    "way": Cause("answers are late on their path", inject(("way=5ms",), ("way=0ms",)), episodes=("way",)),
    "flush-storm": Cause(
        "a writer flushes after each write",
        load_beside("--rw=randwrite", "--bs=4k", "--fsync=1", "--iodepth=1", "--numjobs=4"),
        config={"plp": 0, "service.flush_ns": 3_000_000, "service.flush_stops": 1, "buffer_bytes": 4 * MIB},
    ),
    "discards": Cause(
        "large discards hold the drive",
        load_beside("--rw=randtrim", "--bs=1m", "--rate_iops=10"),
        config={"service.trim_ns": 20_000_000},
    ),
    "read-behind-write": Cause(
        "reads wait for programs of a writer",
        load_beside("--rw=write", "--bs=64k", "--iodepth=4", "--rate=30m"),
        config=_LONG_PROGRAMS,
    ),
    "saturation": Cause(
        "the same group asks for more than the drive can do",
        load_beside("--rw=randread", "--bs=4k", "--iodepth=32"),
    ),
    "large-among-small": Cause(
        "large reads of the same group", load_beside("--rw=read", "--bs=1m", "--iodepth=2", "--rate=200m")
    ),
    "neighbour": Cause(
        "another control group loads the drive",
        load_beside("--rw=randrw", "--bs=16k", "--iodepth=32", group="opwatch-why"),
    ),
    "scheduler": Cause("BFQ idles", use_scheduler),
    # Four requests at a time are 400 per second. Each process waits for a tag with a single request.
    "tags": Cause("four tags only", limit_tags, config={"service.latency_ns": 10_000_000}, processes=16),
    "errors": Cause(
        "reads fail after the drive tried for long",
        inject(("media-error=64M:16M", "slow=8ms"), ("clear",)),
        episodes=("slow",),
    ),
    "journal": Cause("commits of the journal of ext4", on_filesystem=True, is_constant=True),
}
