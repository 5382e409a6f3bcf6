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
    found = []
    for leaf in leaves:
        if leaf.facts_as(DiskFacts).virtual:
            seen = "a virtual disk: its host decides, and a guest cannot see it"
            found.append(reason("host-may-drop", leaf.device, seen, device=leaf.device))
        elif leaf.kind is Kind.LOOP and not (loop := leaf.facts_as(LoopFacts)).simulated_drive:
            if loop.backing_filesystem not in (None, "tmpfs", "ramfs"):
                blanks = {"mount": loop.backing_mount or "/", "file": loop.backing_file or leaf.device}
                seen = f"its file lies on {loop.backing_filesystem}"
                found.append(reason("loop-frees-file", leaf.device, seen, None, **blanks))
        else:
            seen = "a completed discard is advice that the drive may ignore or put off"
            found.append(reason("advisory", leaf.device, seen))
    return tuple(found)


def verdict(evidence: AuditEvidence, rows: Sequence[Row], sent: int, reached: int) -> Verdict:
    """Whether it reached the drive."""
    below = [each for row in rows if row.kind is not RowKind.FILESYSTEM for each in row.reasons]
    if any(each.code == "trace-lost" for each in below):
        return Verdict.UNKNOWN
    failures = any(row.errors for row in rows)
    lost = any(
        each.cause.effect in (Effect.STOPS, Effect.SKIPS, Effect.SHORTENS) and each.lost_bytes != 0
        for each in below
    )
    unexplained = sum(row.unexplained_bytes for row in rows)
    if not reached:
        return _nothing_reached(evidence, rows, below, sent, failures, lost or unexplained > 0)
    ended_early = bool(evidence.answer and evidence.answer.interrupted)
    if failures or lost or unexplained or ended_early:
        return Verdict.PARTIAL
    found = _read_back(evidence, reached)
    if found is not Verdict.ACCEPTED:
        return found
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
        each.account.device for each in judge_all(evidence.accounts, trace) if each.bearing is Bearing.PROVES
    }
    return bool(ended) and ended <= proven


def _of_maps(found: ReadBack) -> tuple[int, int] | None:
    """Bytes of sentinels that maps lost, and those that they still have; None where none can be believed."""
    told = [each for each in found.maps.values() if each.gone_bytes is not None]
    if not told:
        return None
    return sum(each.gone_bytes or 0 for each in told), sum(each.after_bytes or 0 for each in told)


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
    whys = [each for row in rows for each in row.reasons if each.cause.effect is not Effect.HARMLESS]
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
    # Turned into something else, or there was nothing to free.
    if any(each.cause.effect is Effect.HIDES and each.lost_bytes for each in below):
        return Verdict.UNKNOWN
    return Verdict.ACCEPTED


def still_counted(evidence: AuditEvidence, reached: int) -> str | None:
    """How the only drive's own count contradicts that it freed what it was told to; None when it does not. A
    count that is always the whole drive tells nothing."""
    leaves = evidence.before.leaves()
    found = evidence.read_back.count if evidence.read_back else None
    if found and found.ignores:
        return f"what the drive counts as in use: {found.words}"
    held = evidence.held.get(leaves[0].device) if len(leaves) == 1 else None
    if held is None or held.written is None or not _once(evidence):
        return None
    if held.before >= leaves[0].size_bytes:
        return None
    most = leaves[0].size_bytes - reached
    if held.after <= most + held.written:
        return None
    words = f"the drive counts {held.after} B as in use, and at most {most} B of it were not trimmed"
    return f"{words}, or {held.written} B written since" if held.written else words


# They may discard a byte twice in one FITRIM, or from a thread that serves others too.
_MORE_THAN_ONCE = ("btrfs", "f2fs", "bcachefs")


def _once(evidence: AuditEvidence) -> bool:
    """Whether what completed are as many different bytes: of a trim of our own, by a filesystem that discards
    each once. In a watch the same space may be trimmed again and again."""
    filesystem = evidence.before.filesystem
    return evidence.answer is not None and filesystem is not None and filesystem.kind not in _MORE_THAN_ONCE


def of_read_back(evidence: AuditEvidence, leaves: Sequence[Layer], reached: int) -> Iterator[Reason]:
    """Data that can still be read, or are still counted, although their discard completed."""
    found = evidence.read_back
    assert found
    kept = found.bytes.get(Seen.UNCHANGED, 0)
    counted = still_counted(evidence, reached)
    maps = _of_maps(found)
    if maps and maps[1]:
        seen = f"{maps[1]} B of sentinels are still in the map of what the drive holds"
    elif maps:
        return  # A drive may give old data for blocks that it has given up.
    elif kept:
        seen = f"{kept} B of sentinels still read as they were written"
    elif counted:
        seen = counted
    else:
        return
    yield from _held_back(leaves, seen)


def _held_back(leaves: Sequence[Layer], seen: str) -> Iterator[Reason]:
    """Discards that completed, and something shows that the data are still there."""
    for leaf in leaves:
        code = "host-may-drop" if leaf.facts_as(DiskFacts).virtual else "advisory"
        yield reason(code, leaf.device, seen, device=leaf.device)


def _read_back(evidence: AuditEvidence, reached: int) -> Verdict:
    """A clean trace, held against what was read back."""
    found = evidence.read_back
    if not found or found.reason:
        return Verdict.ACCEPTED
    gone = found.bytes.get(Seen.ZEROS, 0) + found.bytes.get(Seen.ONES, 0)
    kept = found.bytes.get(Seen.UNCHANGED, 0)
    maps = _of_maps(found)
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
