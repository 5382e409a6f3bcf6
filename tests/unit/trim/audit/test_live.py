"""Delays of reads and writes behind discards, from the block tracer's samples."""

from __future__ import annotations

from opwatch.trim.audit.flow import Amount, DiscardLoss, Flow, Origin, Stage, Trace, Who
from opwatch.trim.audit.live import Stalled, discards_between, sample_of, stalled
from tests.unit.support.samples import Op, sample


def waited(count: int, sum_ns: int, max_ns: int) -> Op:
    return Op(
        [1000] * count,
        scalars={"behind": count, "behind_sum_ns": sum_ns, "behind_max_ns": max_ns},
    )


def test_waits_between_two_samples_are_reported() -> None:
    begin = sample(0, read=waited(2, 1000, 700), write=waited(5, 9000, 4000))
    end = sample(1, read=waited(5, 7000, 3000), write=waited(5, 9000, 4000))
    assert stalled(begin, end) == (Stalled("read", 3, 2000.0, 3000),)


def test_equal_samples_report_no_waits() -> None:
    same = sample(0, read=waited(2, 1000, 700))
    assert stalled(same, same) == ()


def flow(disk: str, dev: str, stage: Stage, count: int) -> Flow:
    return Flow(
        disk, dev, stage, "discard", Who.OTHER, 0, Amount(count, 4096 * count, count, 0, 50 * count, 70)
    )


def origin(disk: str, dev: str, count: int) -> Origin:
    sizes = {"count": count, "bytes": 4096 * count, "min_bytes": 4096, "max_bytes": 4096, "below_granule": 0}
    return Origin(disk, dev, "fstrim", 77, "discard", Who.OTHER, **sizes)


def a_trace(count: int) -> Trace:
    """Return a trace of two disks; the first has a partition."""
    return Trace(
        flows=tuple(
            flow(disk, dev, stage, count * times)
            for disk, dev, times in (("nvme0n1", "259:0", 1), ("nvme0n1", "259:1", 10), ("sdb", "8:16", 100))
            for stage in (Stage.BIO, Stage.ISSUED, Stage.DONE)
        ),
        origins=(
            origin("nvme0n1", "259:0", count),
            origin("nvme0n1", "259:1", 10 * count),
            origin("sdb", "8:16", 9),
        ),
        loss=DiscardLoss(flows_full=count),
        stats={"nvme0n1": (11 * count + 2, 0), "sdb": (0, 0)},
    )


def test_two_samples_attribute_discards_to_senders() -> None:
    names = ({77: "/system.slice/fstrim", 5: "/x"}, {"259:1": "ext4 /srv", "8:16": "xfs /y"})
    then, now = (sample_of(a_trace(n), "nvme0n1", None, *names, is_chained=False) for n in (3, 8))
    assert now.trace.stats == {"nvme0n1": (90, 0)}
    assert (now.cgroups, now.mounts) == ({77: "/system.slice/fstrim"}, {"259:1": "ext4 /srv"})
    discards = discards_between(then, now, sample(0), sample(1), final=True)
    assert (discards.bios, discards.ended, discards.lost, discards.unseen) == (55, 55, 5, 35)
    whos = [(sender.comm, sender.cgroup, sender.where, sender.count) for sender in discards.senders]
    assert whos == [
        ("fstrim", "/system.slice/fstrim", "ext4 /srv", 50),
        ("fstrim", "/system.slice/fstrim", None, 5),
    ]
    assert discards_between(then, now, sample(0), sample(1), final=False).unseen is None


def test_partition_counts_only_its_own_discards() -> None:
    then, now = (sample_of(a_trace(n), "nvme0n1", "259:1", {}, {}, is_chained=True) for n in (0, 7))
    begin, end = sample(0), sample(1, read=waited(3, 600, 300))
    discards = discards_between(then, now, begin, end, final=True)
    assert (discards.bios, discards.unseen, [sender.count for sender in discards.senders]) == (70, None, [70])
    assert discards.stalled == (Stalled("read", 3, 200.0, 300),)
