"""Delays of reads and writes behind discards, from the block tracer's samples."""

from __future__ import annotations

from opwatch.trim.audit.flow import Amount, DiscardLoss, Flow, Origin, SenderKind, Stage, Trace
from opwatch.trim.audit.live import DelayedRequests, compare_samples, extract_sample, find_delayed
from tests.unit.support.samples import Op, make_sample


def make_waits(count: int, sum_ns: int, max_ns: int) -> Op:
    return Op(
        [1000] * count,
        scalars={"behind": count, "behind_sum_ns": sum_ns, "behind_max_ns": max_ns},
    )


def test_waits_between_two_samples_are_reported() -> None:
    begin = make_sample(0, read=make_waits(2, 1000, 700), write=make_waits(5, 9000, 4000))
    end = make_sample(1, read=make_waits(5, 7000, 3000), write=make_waits(5, 9000, 4000))
    assert find_delayed(begin, end) == (DelayedRequests("read", 3, 2000.0, 3000),)


def test_equal_samples_report_no_waits() -> None:
    same = make_sample(0, read=make_waits(2, 1000, 700))
    assert find_delayed(same, same) == ()


def make_traced_flow(disk: str, dev: str, stage: Stage, count: int) -> Flow:
    return Flow(
        disk,
        dev,
        stage,
        "discard",
        SenderKind.OTHER,
        0,
        Amount(count, 4096 * count, count, 0, 50 * count, 70),
    )


def make_origin(disk: str, dev: str, count: int) -> Origin:
    sizes = {"count": count, "bytes": 4096 * count, "min_bytes": 4096, "max_bytes": 4096, "below_granule": 0}
    return Origin(disk, dev, "fstrim", 77, "discard", SenderKind.OTHER, **sizes)


def make_trace(count: int) -> Trace:
    """Return a trace of two disks; the first has a partition."""
    return Trace(
        flows=tuple(
            make_traced_flow(disk, dev, stage, count * times)
            for disk, dev, times in (("nvme0n1", "259:0", 1), ("nvme0n1", "259:1", 10), ("sdb", "8:16", 100))
            for stage in (Stage.BIO, Stage.ISSUED, Stage.DONE)
        ),
        origins=(
            make_origin("nvme0n1", "259:0", count),
            make_origin("nvme0n1", "259:1", 10 * count),
            make_origin("sdb", "8:16", 9),
        ),
        loss=DiscardLoss(flows_full=count),
        stats={"nvme0n1": (11 * count + 2, 0), "sdb": (0, 0)},
    )


def test_two_samples_attribute_discards_to_senders() -> None:
    names = ({77: "/system.slice/fstrim", 5: "/x"}, {"259:1": "ext4 /srv", "8:16": "xfs /y"})
    then, now = (extract_sample(make_trace(n), "nvme0n1", None, *names, is_chained=False) for n in (3, 8))
    assert now.trace.stats == {"nvme0n1": (90, 0)}
    assert (now.cgroups, now.mounts) == ({77: "/system.slice/fstrim"}, {"259:1": "ext4 /srv"})
    discards = compare_samples(then, now, make_sample(0), make_sample(1), final=True)
    assert (discards.bios, discards.ended, discards.lost, discards.unseen) == (55, 55, 5, 35)
    whos = [(sender.comm, sender.cgroup, sender.where, sender.count) for sender in discards.senders]
    assert whos == [
        ("fstrim", "/system.slice/fstrim", "ext4 /srv", 50),
        ("fstrim", "/system.slice/fstrim", None, 5),
    ]
    assert compare_samples(then, now, make_sample(0), make_sample(1), final=False).unseen is None


def test_partition_counts_only_its_own_discards() -> None:
    then, now = (extract_sample(make_trace(n), "nvme0n1", "259:1", {}, {}, is_chained=True) for n in (0, 7))
    begin, end = make_sample(0), make_sample(1, read=make_waits(3, 600, 300))
    discards = compare_samples(then, now, begin, end, final=True)
    assert (discards.bios, discards.unseen, [sender.count for sender in discards.senders]) == (70, None, [70])
    assert discards.stalled == (DelayedRequests("read", 3, 200.0, 300),)
