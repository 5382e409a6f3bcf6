"""Mixed I/O on sets of hard disks in virtual time, beside the published tables. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from opwatch.errors import UsageError
from opwatch.fields import Fields
from opwatch.scenarios.claims import (
    ClaimKind,
    Judgement,
    MeasuredValue,
    PublishedClaim,
    ScenarioEvidence,
    judge_claims,
)
from opwatch.scenarios.disk_model import DiskSheet, DiskTally, parse_disk_sheet
from opwatch.scenarios.mixed import MemberCount, MixConfiguration, MixLoad, MixRate
from opwatch.scenarios.raid_model import RaidKind, RaidSet, SetLoad, SetRun, make_raid_set
from opwatch.scenarios.scenario import Scenario

_MIN_IOS, _MAX_IOS = 500, 1_000_000
_MIN_CHUNK = 4096
_WITHIN_PERCENT = 15


class SetSetup(NamedTuple):
    """How the sets are simulated: the I/Os of each load, the bytes of a chunk, and the disks' write cache."""

    threads: int
    ios: int
    chunk_bytes: int
    has_write_cache: bool


@dataclass(frozen=True, slots=True)
class ModelSet:
    """A set of the author, and the data sheet of its disks."""

    name: str
    kind: RaidKind
    members: int
    sheet: DiskSheet

    def create(self, setup: SetSetup) -> RaidSet:
        return make_raid_set(
            self.name,
            self.kind,
            self.members,
            self.sheet,
            setup.chunk_bytes,
            has_write_cache=setup.has_write_cache,
        )


class PublishedRate(NamedTuple):
    """A row of the author's tables; None where nothing was found."""

    iops: float | None = None
    bytes_per_s: float | None = None
    mean_ns: float | None = None


# By load and set.
PublishedRates = Mapping[tuple[str, str], PublishedRate]


def parse_set_setup(fields: Fields) -> SetSetup:
    """Return the settings. Raise UsageError for impossible ones."""
    setup = SetSetup(
        fields.read_count("threads"),
        fields.read_count("ios"),
        fields.read_count("chunk_bytes"),
        bool(fields.read_count("write_cache")),
    )
    if not _MIN_IOS <= setup.ios <= _MAX_IOS:
        raise UsageError(f"--set ios={setup.ios}: the range is {_MIN_IOS} to {_MAX_IOS}")
    if setup.chunk_bytes < _MIN_CHUNK or setup.chunk_bytes % _MIN_CHUNK:
        raise UsageError(f"--set chunk_bytes={setup.chunk_bytes}: write a multiple of {_MIN_CHUNK}")
    if not 1 <= setup.threads <= setup.ios // 10:
        raise UsageError(f"--set threads={setup.threads}: the range is 1 to a tenth of ios={setup.ios}")
    return setup


def parse_model_sets(fields: Fields) -> tuple[ModelSet, ...]:
    """Return the author's sets in the order of the tables."""
    disks = fields.read_subtable("disks")
    sheets = {name: parse_disk_sheet(name, disks.read_subtable(name)) for name in disks.table}
    return tuple(
        ModelSet(
            one.read_text("name"),
            one.read_member("kind", RaidKind),
            one.read_count("members"),
            sheets[one.read_text("disk")],
        )
        for one in fields.read_subtables("tested", "a set")
    )


def parse_published_rates(published: Fields, sets: Sequence[ModelSet]) -> PublishedRates:
    """Return the rows that were found. Vdbench counts in MiB per second, and in milliseconds."""
    rates: dict[tuple[str, str], PublishedRate] = {}
    for row in published.read_subtables("figures"):
        iops, speeds, times = (
            row.read_list(key) if key in row.table else [None] * len(sets)
            for key in ("iops", "mib_per_s", "ms")
        )
        for one, rate, speed, time in zip(sets, iops, speeds, times, strict=True):
            rates[row.read_text("load"), one.name] = PublishedRate(
                rate, None if speed is None else speed * (1 << 20), None if time is None else time * 1e6
            )
    return rates


def run_mixed_model(
    sets: Sequence[ModelSet],
    loads: Sequence[MixLoad],
    setup: SetSetup,
    seed: int,
    progress: Callable[[str], None],
) -> list[MixConfiguration]:
    """Run each load on new disks of each set."""
    configurations = []
    for one in sets:
        rates = []
        for load in loads:
            progress(f"{one.name}: {load.name}")
            rates.append(_run_load(one, load, setup, seed))
        configurations.append(
            MixConfiguration(
                one.name,
                "",
                f"{one.members} x {one.sheet.name}",
                one.kind.value,
                one.create(setup).capacity_bytes,
                tuple(rates),
            )
        )
    return configurations


def _run_load(one: ModelSet, load: MixLoad, setup: SetSetup, seed: int) -> MixRate:
    raid, threads = one.create(setup), load.threads or setup.threads
    rate = SetRun(raid, SetLoad(load.rdpct / 100, load.seekpct / 100, load.xfersize, threads), seed).run(
        setup.ios
    )
    return MixRate(
        load=load,
        reads=rate.reads,
        writes=rate.writes,
        moved_bytes=(rate.reads + rate.writes) * load.xfersize,
        seconds=rate.seconds,
        mean_ns=rate.mean_s * 1e9,
        cpu_ratio=None,
        members={f"disk {place}": _count_member(tally) for place, tally in enumerate(rate.members, 1)},
        error_ratio=rate.error_ratio,
    )


def _count_member(tally: DiskTally) -> MemberCount:
    return MemberCount(
        tally.reads,
        tally.writes,
        tally.read_bytes,
        tally.write_bytes,
        round(tally.waited_s * 1e3),
        round(tally.active_s * 1e3),
    )


def judge_mixed_model(
    scenario: Scenario, configurations: Sequence[MixConfiguration], published: PublishedRates
) -> Judgement:
    """Compare the ratios between sets, and between loads, with the author's."""
    amounts = {
        f"{rate.load.name} on {one.name}": [MeasuredValue(rate.iops, rate.iops * (rate.error_ratio or 0.0))]
        for one in configurations
        for rate in one.rates
    }
    claims = [
        *_make_set_claims(published, scenario.sets.read_text("reference")),
        *_make_load_claims(published),
    ]
    return Judgement(judge_claims(claims, ScenarioEvidence(amounts)))


def _make_set_claims(published: PublishedRates, reference: str) -> Iterator[PublishedClaim]:
    """Yield what each set does compared with the reference, for each load with published rates."""
    for (load, name), rate in published.items():
        base = published[load, reference].iops
        if name != reference and rate.iops and base:
            what = f"{load}: {name} does {rate.iops / base:.2f} times what {reference} does"
            yield _make_ratio_claim(what, f"{load} on {name}", f"{load} on {reference}", rate.iops, base)


def _make_load_claims(published: PublishedRates) -> Iterator[PublishedClaim]:
    """Yield what each set does under one load compared with the load before, if both rates are published."""
    loads = list(dict.fromkeys(load for load, _ in published))
    for earlier, later in pairwise(loads):
        for name in dict.fromkeys(name for _, name in published):
            first, second = published[earlier, name].iops, published[later, name].iops
            if first and second:
                what = f"{name}: {second / first:.2f} times as many I/Os of {later} as of {earlier}"
                yield _make_ratio_claim(what, f"{later} on {name}", f"{earlier} on {name}", second, first)


def _make_ratio_claim(what: str, measured: str, over: str, upper: float, lower: float) -> PublishedClaim:
    return PublishedClaim(
        what,
        ClaimKind.RATIO,
        "here {value:.2f} times; {within:g} % and the error by chance are allowed",
        missing="this load was not run",
        measured=measured,
        over=over,
        published=(upper, lower),
        within_percent=_WITHIN_PERCENT,
    )
