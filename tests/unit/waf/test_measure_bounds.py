"""The true value is within the error for any host and drive, if no page is older than stated. Refreshes come
at any time, polls take time, work pauses, and other processes may write."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from opwatch.counters.reading import CounterReading, Proof
from opwatch.waf.measure import MeasuredWaf, Measurement
from opwatch.waf.trail import Poll, Trail

TICK_NS = 10**8
HOST, NAND = "log 02h data units written", "log C0h physical media units written"
PLACED = ("log 22h HBMW", "log 22h MBMW")


@dataclass
class Page:
    """Shows the count of some tick, at most `age` ticks old."""

    age: int
    chance: random.Random
    of: int = 0
    due: int = 0

    def pass_tick(self, tick: int) -> None:
        if tick >= self.due:
            self.of, self.due = tick, tick + self.chance.randint(1, max(self.age, 1))


@dataclass
class World:
    """A random host, drive and poller."""

    seed: int
    foreign: bool
    same_page: bool
    host: list[int] = field(default_factory=lambda: [10**6])
    nand: list[int] = field(default_factory=lambda: [3 * 10**6])
    kernel: list[int] = field(default_factory=lambda: [0])

    def __post_init__(self) -> None:
        chance = self.chance = random.Random(self.seed)
        self.age = chance.choice((1, 5, 20, 60))
        self.quanta = (
            (1, chance.choice((1, 1000, 50_000))) if self.foreign else (1000, chance.choice((1, 9000)))
        )
        self.pages = (Page(self.age, chance), Page(self.age, chance))
        if self.same_page:
            self.pages = (self.pages[0], self.pages[0])
        self.trail = Trail()
        self.read_of: list[int] = []

    def advance_time(self, *, busy: bool) -> None:
        """Advance a tenth of a second. The drive writes to NAND only during host writes."""
        chance = self.chance
        wrote = chance.randrange(1, 10_000) if busy and chance.random() < 0.8 else 0
        counted = 0 if self.foreign and chance.random() < 0.3 else wrote
        self.host.append(self.host[-1] + wrote)
        self.nand.append(self.nand[-1] + int(wrote * chance.uniform(0.5, 6)))
        self.kernel.append(self.kernel[-1] + counted)
        for page in self.pages:
            page.pass_tick(len(self.host) - 1)

    def poll_drive(self, *, busy: bool) -> None:
        begin, before = len(self.host) - 1, self.kernel[-1]
        for _ in range(self.chance.randrange(2)):
            self.advance_time(busy=busy)
        shown = [
            CounterReading(values[page.of] // quantum * quantum, "bytes", quantum, source, Proof.SPEC)
            for values, page, quantum, source in zip(
                (self.host, self.nand),
                self.pages,
                self.quanta,
                PLACED if self.same_page else (HOST, NAND),
                strict=True,
            )
        ]
        self.read_of.append(self.pages[1].of)
        for _ in range(self.chance.randrange(2)):
            self.advance_time(busy=busy)
        end = len(self.host) - 1
        self.trail.add_poll(
            Poll(begin * TICK_NS, end * TICK_NS + 1, before, self.kernel[-1], host=shown[:1], nand=shown[1:])
        )

    def poll_repeatedly(self, count: int, *, busy: bool) -> None:
        for _ in range(count):
            for _ in range(self.chance.randint(1, 8)):
                self.advance_time(busy=busy)
            self.poll_drive(busy=busy)

    def measure_work(self) -> tuple[MeasuredWaf, float]:
        """Return the measurement of a piece of work, and the true value."""
        for _ in range(self.chance.randrange(30)):
            self.advance_time(busy=True)
        self.poll_repeatedly(self.chance.randrange(1, 12), busy=False)
        begin, first = len(self.read_of) - 1, len(self.host) - 1
        self.poll_repeatedly(self.chance.randrange(2, 40), busy=True)
        self.poll_drive(busy=False)
        end, last = len(self.read_of) - 1, len(self.host) - 1
        self.poll_repeatedly(self.chance.randrange(0, 15), busy=False)
        age_ns = (self.age + 1) * TICK_NS
        measured = Measurement(self.trail, begin, end, refresh_ns=age_ns).make_result()
        return measured, (self.nand[last] - self.nand[first]) / (self.host[last] - self.host[first])

    def compute_true_waf(self, first: int, last: int) -> float:
        return (self.nand[last] - self.nand[first]) / (self.host[last] - self.host[first])


@pytest.mark.parametrize("same_page", [False, True], ids=["two pages", "one page"])
@pytest.mark.parametrize("foreign", [False, True], ids=["alone", "others write"])
def test_true_value_is_within_the_error_in_every_simulation(*, foreign: bool, same_page: bool) -> None:
    answered = whole = chance = 0
    for seed in range(300):
        world = World(seed, foreign, same_page)
        measured, truth = world.measure_work()
        stretch = measured.stretch
        if measured.waf is None or measured.error is None or stretch is None:
            assert measured.reason
            continue
        answered += 1
        slack = measured.error * (1 + 1e-9) + 1e-9
        if stretch.whole and not foreign:
            whole += 1
            # A page may by chance show exactly the written bytes, if its age is equal before and after.
            lucky = stretch.host.fresh and abs(measured.waf - truth) > slack
            chance += lucky
            assert lucky or abs(measured.waf - truth) <= slack, seed
        if stretch.begin.read and stretch.end.read and stretch.host.agrees is not None:
            read = world.compute_true_waf(world.read_of[stretch.begin.poll], world.read_of[stretch.end.poll])
            assert abs(measured.waf - read) <= slack, seed
    assert answered > 200
    assert chance <= 2
    assert foreign or whole > 125
