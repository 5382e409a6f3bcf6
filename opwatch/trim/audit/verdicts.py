"""Whether a trim reached the drive, and what is to be said of it as a whole. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opwatch.trim.audit.accounts import Bearing, judge_all
from opwatch.trim.audit.audit import AuditEvidence, ReadBack, Row, RowKind, Verdict
from opwatch.trim.audit.flow import Stage, Who, total
from opwatch.trim.stack.causes import Effect, Reason, reason
from opwatch.trim.stack.facts import DiskFacts, LoopFacts
from opwatch.trim.stack.layers import Kind, Layer
from opwatch.trim.stale.sentinel import Seen


def general(
    evidence: AuditEvidence, verdict: Verdict, leaves: Sequence[Layer], reached: int
) -> tuple[Reason, ...]:
    """What is to be said of a trim that seems to have arrived, of the disks where it did."""
    proven = evidence.read_back and not evidence.read_back.reason
    if proven:
        return tuple(of_read_back(evidence, leaves, reached))
    if counted := still_counted(evidence, reached):
        return tuple(_held_back(leaves, counted))
    if verdict not in (Verdict.ACCEPTED, Verdict.PARTIAL):
        return ()
    doubts = []
    for leaf in leaves:
        if leaf.facts_as(DiskFacts).virtual:
            observed = "a virtual disk: its host decides, and a guest cannot see it"
            doubts.append(reason("host-may-drop", leaf.device, observed, device=leaf.device))
        elif leaf.kind is Kind.LOOP and not (loop := leaf.facts_as(LoopFacts)).simulated_drive:
            if loop.backing_filesystem not in (None, "tmpfs", "ramfs"):
                blanks = {"mount": loop.backing_mount or "/", "file": loop.backing_file or leaf.device}
                observed = f"its file lies on {loop.backing_filesystem}"
                doubts.append(reason("loop-frees-file", leaf.device, observed, None, **blanks))
        else:
            observed = "a completed discard is advice that the drive may ignore or put off"
            doubts.append(reason("advisory", leaf.device, observed))
    return tuple(doubts)


def verdict(evidence: AuditEvidence, rows: Sequence[Row], sent: int, reached: int) -> Verdict:
    """Whether it reached the drive."""
    below = [why for row in rows if row.kind is not RowKind.FILESYSTEM for why in row.reasons]
    if any(why.code == "trace-lost" for why in below):
        return Verdict.UNKNOWN
    failures = any(row.errors for row in rows)
    lost = any(
        why.cause.effect in (Effect.STOPS, Effect.SKIPS, Effect.SHORTENS) and why.lost_bytes != 0
        for why in below
    )
    unexplained = sum(row.unexplained_bytes for row in rows)
    if not reached:
        return _nothing_reached(evidence, rows, below, sent, failures, lost or unexplained > 0)
    ended_early = bool(evidence.answer and evidence.answer.interrupted)
    if failures or lost or unexplained or ended_early:
        return Verdict.PARTIAL
    answer = _read_back(evidence, reached)
    if answer is not Verdict.ACCEPTED:
        return answer
    if still_counted(evidence, reached):
        return Verdict.UNKNOWN
    return Verdict.PROVEN if accounted(evidence) else Verdict.ACCEPTED


def accounted(evidence: AuditEvidence) -> bool:
    """Whether each disk that completed discards counts as trimmed what completed, to the byte."""
    trace = evidence.trace
    ended = {
        leaf.device
        for leaf in evidence.before.leaves()
        for stage in (Stage.DONE, Stage.BIO_DONE)
        if total(trace.select(stage, disk=leaf.device[:16])).bytes
    }
    proven = {
        account.account.device
        for account in judge_all(evidence.accounts, trace)
        if account.bearing is Bearing.PROVES
    }
    return bool(ended) and ended <= proven


def _of_maps(answer: ReadBack) -> tuple[int, int] | None:
    """Bytes of sentinels that maps lost, and those that they still have; None where none can be believed."""
    telling = [map_ for map_ in answer.maps.values() if map_.gone_bytes is not None]
    if not telling:
        return None
    return sum(map_.gone_bytes or 0 for map_ in telling), sum(map_.after_bytes or 0 for map_ in telling)


def _nothing_left(evidence: AuditEvidence, rows: Sequence[Row]) -> bool:
    """FITRIM did its work and found nothing to do: 0 bytes and no error. That a minimum left all of it out is
    another matter; that ext4 remembers what it trimmed is not."""
    answer, asked = evidence.answer, evidence.asked
    if (
        answer is None
        or answer.claimed != 0
        or answer.error
        or answer.interrupted
        or (asked and asked.minlen)
    ):
        return False
    whys = [why for row in rows for why in row.reasons if why.cause.effect is not Effect.HARMLESS]
    return all(why.code == "ext4-already-trimmed" for why in whys)


def _nothing_reached(
    evidence: AuditEvidence,
    rows: Sequence[Row],
    below: Sequence[Reason],
    sent: int,
    failures: bool,
    lost: bool,
) -> Verdict:
    if failures:
        return Verdict.REJECTED
    if _nothing_left(evidence, rows) and not sent and not lost:
        return Verdict.NOTHING_LEFT
    if not sent or lost:
        return Verdict.NOT_SENT
    # It was turned into something else, or there was nothing to free.
    if any(why.cause.effect is Effect.HIDES and why.lost_bytes for why in below):
        return Verdict.UNKNOWN
    return Verdict.ACCEPTED


def still_counted(evidence: AuditEvidence, reached: int) -> str | None:
    """How the only drive's own count contradicts that it freed what it was told to; None when it does not. A
    count that is always the whole drive tells nothing."""
    leaves = evidence.before.leaves()
    count = evidence.read_back.count if evidence.read_back else None
    if count and count.ignores:
        return f"what the drive counts as in use: {count.words}"
    in_use = evidence.in_use.get(leaves[0].device) if len(leaves) == 1 else None
    if in_use is None or in_use.written is None or not _once(evidence):
        return None
    if in_use.before >= leaves[0].size_bytes:
        return None
    most = leaves[0].size_bytes - reached
    if in_use.after <= most + in_use.written:
        return None
    words = f"the drive counts {in_use.after} B as in use, and at most {most} B of it were not trimmed"
    return f"{words}, or {in_use.written} B written since" if in_use.written else words


# These may discard a byte twice in one FITRIM, or from a thread that serves others too.
_MORE_THAN_ONCE = ("btrfs", "f2fs", "bcachefs")


def _once(evidence: AuditEvidence) -> bool:
    """Whether what completed are as many different bytes: of a trim of our own, by a filesystem that discards
    each once. In a watch the same space may be trimmed again and again."""
    filesystem = evidence.before.filesystem
    return evidence.answer is not None and filesystem is not None and filesystem.kind not in _MORE_THAN_ONCE


def of_read_back(evidence: AuditEvidence, leaves: Sequence[Layer], reached: int) -> Iterator[Reason]:
    """Data that can still be read, or are still counted, although their discard completed."""
    answer = evidence.read_back
    assert answer
    kept = answer.bytes.get(Seen.UNCHANGED, 0)
    counted = still_counted(evidence, reached)
    maps = _of_maps(answer)
    if maps and maps[1]:
        observed = f"{maps[1]} B of sentinels are still in the map of what the drive holds"
    elif maps:
        return  # A drive may give old data for blocks that it has given up.
    elif kept:
        observed = f"{kept} B of sentinels still read as they were written"
    elif counted:
        observed = counted
    else:
        return
    yield from _held_back(leaves, observed)


def _held_back(leaves: Sequence[Layer], observed: str) -> Iterator[Reason]:
    """Discards that completed, and something shows that the data are still there."""
    for leaf in leaves:
        code = "host-may-drop" if leaf.facts_as(DiskFacts).virtual else "advisory"
        yield reason(code, leaf.device, observed, device=leaf.device)


def _read_back(evidence: AuditEvidence, reached: int) -> Verdict:
    """A clean trace, held against what was read back."""
    answer = evidence.read_back
    if not answer or answer.reason:
        return Verdict.ACCEPTED
    gone = answer.bytes.get(Seen.ZEROS, 0) + answer.bytes.get(Seen.ONES, 0)
    kept = answer.bytes.get(Seen.UNCHANGED, 0)
    maps = _of_maps(answer)
    if maps:  # the drive's own word on these very blocks
        gone, kept = maps
    if gone and not kept:
        # It may read as gone, and the drive still count it as data.
        return Verdict.UNKNOWN if still_counted(evidence, reached) else Verdict.PROVEN
    if gone:
        return Verdict.PARTIAL
    return Verdict.UNKNOWN if kept else Verdict.ACCEPTED


def foreign(evidence: AuditEvidence) -> int:
    """Discarded bytes of other processes on the disks of this stack."""
    names = {layer.device[:16] for layer in evidence.before.leaves()}
    return sum(
        flow.amount.bytes
        for flow in evidence.trace.flows
        if flow.stage is Stage.BIO and flow.disk in names and flow.who is Who.OTHER
    )
