"""Entries of runs out of chance: whatever a live watch could yield, and in no order that it needs."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import strategies as st

from opwatch.clock import Anchor
from opwatch.counters.looks.sample import (
    CommandKind,
    DriveAnswer,
    FirmwareSample,
    NvmeCommand,
    Refusal,
    RefusalKind,
    SmartctlOutput,
)
from opwatch.counters.reading import DriveFacts
from opwatch.samples.entries import Began, Ended, Left, Looked, NotWatched, RunEntry, Ticked
from opwatch.samples.observation import Arrival, Event, Leaving
from opwatch.samples.sample import DiskSample, WatchedDisk
from opwatch.trace.stat import StatSample
from opwatch.trace.trust import Reading
from opwatch.trim.audit.flow import Amount, DiscardLoss, Flow, Origin, Stage, Trace, Who
from opwatch.trim.audit.live import MOST_NAME, OPS, DiscardSample
from tests.unit.support.samples import Op, sample

counts = st.integers(0, 2**64 - 1)
# What os.fsdecode() makes of a name that is no UTF-8 is among them.
names = st.text(st.characters(), max_size=20)
numbers = st.one_of(st.none(), counts)
texts = st.one_of(st.none(), names)
raw = st.binary(max_size=600)
moments = st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1), timezones=st.just(UTC))
groups = st.dictionaries(st.sampled_from(("read", "write", "flush", "discard")), counts)
stats = st.builds(StatSample, begin_ns=counts, end_ns=counts, requests=groups, bytes=groups, in_flight=counts)
disks = st.builds(
    WatchedDisk,
    device=names,
    origin=names,
    level=names,
    backend=names,
    lacks=st.lists(names, max_size=2).map(tuple),
    in_flight=counts,
    flush_queues=counts,
)
# Counters out of chance are the business of test_written; here each would be 17,000 words.
targets = st.sampled_from([sample(at * 10**9, read=Op([at * 900] * at, [4096] * at)) for at in range(3)])
readings = st.builds(
    Reading,
    sample=targets,
    before=st.one_of(st.none(), stats),
    after=st.one_of(st.none(), stats),
    no_witness=texts,
)
anchors = st.builds(Anchor, mono_ns=counts, wall_ns=counts, slack_ns=counts)
disk_samples = st.builds(DiskSample, disk=disks, reading=readings, misses=numbers, anchor=anchors)

amounts = st.builds(
    Amount, count=counts, bytes=counts, ranges=counts, granule_bytes=counts, sum_ns=counts, max_ns=counts
)
losses = st.builds(
    DiscardLoss,
    flows_full=counts,
    origins_full=counts,
    bios_full=counts,
    ranges_over=counts,
    unmatched=counts,
)


def _flows(disk: str) -> st.SearchStrategy[Flow]:
    return st.builds(
        Flow,
        disk=st.just(disk[:MOST_NAME]),
        dev=names,
        stage=st.sampled_from(Stage),
        op=st.sampled_from(OPS),
        who=st.sampled_from(Who),
        status=counts,
        amount=amounts,
    )


def _origins(disk: str) -> st.SearchStrategy[Origin]:
    return st.builds(
        Origin,
        disk=st.just(disk[:MOST_NAME]),
        dev=names,
        comm=names,
        cgroup=counts,
        op=st.sampled_from(OPS),
        who=st.sampled_from(Who),
        count=counts,
        bytes=counts,
        min_bytes=counts,
        max_bytes=counts,
        below_granule=counts,
    )


@st.composite
def discard_samples(draw: st.DrawFn) -> DiscardSample:
    disk = draw(names)
    trace = Trace(
        flows=tuple(draw(st.lists(_flows(disk), max_size=3))),
        origins=tuple(draw(st.lists(_origins(disk), max_size=3))),
        absent=draw(st.frozensets(names, max_size=3)),
        loss=draw(losses),
        misses=draw(counts),
        stats=draw(st.sampled_from(({}, {disk: (7, 4096)}))),
        claims_seen=draw(st.booleans()),
    )
    return DiscardSample(
        disk=disk,
        trace=trace,
        device=draw(texts),
        cgroups=draw(st.dictionaries(counts, names, max_size=2)),
        mounts=draw(st.dictionaries(names, names, max_size=2)),
        is_chained=draw(st.booleans()),
    )


refusals = st.builds(Refusal, kind=st.sampled_from(RefusalKind), text=names)
commands = st.builds(
    NvmeCommand, kind=st.sampled_from(CommandKind), number=counts, part=counts, uuid_index=counts
)
drives = st.builds(
    DriveFacts,
    protocol=texts,
    model=texts,
    firmware=texts,
    family=texts,
    serial=texts,
    vendor_id=numbers,
    capacity_bytes=numbers,
    lba_bytes=numbers,
    max_transfer_bytes=numbers,
    rotational=st.one_of(st.none(), st.booleans()),
    name=texts,
)
looks = st.builds(
    FirmwareSample,
    disk=names,
    drive=drives,
    begin_ns=counts,
    end_ns=counts,
    before=numbers,
    after=numbers,
    flying=counts,
    parts=st.dictionaries(names, counts, max_size=2),
    counted_on=st.lists(names, max_size=2).map(tuple),
    nsid=counts,
    answers=st.lists(
        st.builds(DriveAnswer, command=commands, answer=st.one_of(raw, refusals)), max_size=4
    ).map(tuple),
    smartctl=st.one_of(st.none(), st.builds(SmartctlOutput, status=st.integers(-15, 255), text=raw)),
    refused=st.one_of(st.none(), refusals),
)

arrivals = st.builds(
    Arrival,
    at=moments,
    at_ns=counts,
    since_ns=counts,
    unseen=st.one_of(st.none(), groups),
    unseen_bytes=st.one_of(st.none(), groups),
    reason=texts,
)
leavings = st.builds(Leaving, at=moments, at_ns=counts, why=names, doubt=texts)
events = st.builds(
    Event,
    kind=st.just("not_watched"),
    device=names,
    origin=names,
    at=moments,
    at_ns=counts,
    text=names,
    arrival=st.none(),
    leaving=st.none(),
)
by_place = st.dictionaries(counts, disk_samples, max_size=2)
discards_by_place = st.dictionaries(counts, discard_samples(), max_size=2)
maybe_discards = st.one_of(st.none(), discard_samples())
entries: st.SearchStrategy[RunEntry] = st.one_of(
    st.builds(
        Began,
        place=counts,
        sample=disk_samples,
        drive=texts,
        discards=maybe_discards,
        arrival=st.one_of(st.none(), arrivals),
        text=names,
    ),
    st.builds(Ticked, samples=by_place, discards=discards_by_place),
    st.builds(
        Left,
        place=counts,
        sample=disk_samples,
        leaving=leavings,
        text=names,
        discards=maybe_discards,
        is_blind=st.booleans(),
    ),
    st.builds(NotWatched, event=events),
    st.builds(Looked, sample=looks),
    st.builds(
        Ended,
        samples=by_place,
        discards=discards_by_place,
        leaving=st.dictionaries(counts, leavings, max_size=2),
        with_rest=st.booleans(),
        is_blind=st.booleans(),
    ),
)
