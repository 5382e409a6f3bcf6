"""Decide whether a trim reached the drive, and find the reasons for the trim as a whole. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from opwatch.trim.audit.audit import AuditEvidence, LeafProof, Row, RowKind, Standing, Verdict
from opwatch.trim.audit.flow import Stage, Who
from opwatch.trim.audit.proof import IN_MEMORY, weakest
from opwatch.trim.check.forecast import Outlook, forecast
from opwatch.trim.stack.causes import Effect, Reason, reason
from opwatch.trim.stack.facts import DiskFacts, LoopFacts
from opwatch.trim.stack.layers import Kind, Layer, Stack


def general(
    evidence: AuditEvidence, verdict: Verdict, leaves: Sequence[Layer], proofs: Sequence[LeafProof]
) -> tuple[Reason, ...]:
    """Return the open doubts about the disks with completed discards (`leaves`).

    A disk's proof settles only the doubts about the disk, not about storage below."""
    by_device = {proof.device: proof for proof in proofs}
    filesystem = evidence.before.filesystem
    mounted = {"mount": filesystem.point} if filesystem else {}
    advisory = "unproven" if evidence.read_back else "advisory"
    doubts: list[Reason] = []
    for leaf in leaves:
        proof = by_device.get(leaf.device)
        if proof and proof.standing is Standing.CONTRADICTED:
            code = "host-may-drop" if leaf.facts_as(DiskFacts).virtual else advisory
            doubts.append(reason(code, leaf.device, "; ".join(proof.by), **mounted))
            doubts += [why for why in _doubts(leaf) if why.code != code]
        elif verdict in _ARRIVED:
            proven = bool(proof and proof.standing is Standing.PROVEN)
            doubts += _doubts(leaf, None if proven else reason(advisory, leaf.device, _ADVICE, **mounted))
    return tuple(doubts)


_ARRIVED = (Verdict.ACCEPTED, Verdict.PARTIAL, Verdict.PROVEN, Verdict.PROVEN_PARTWAY)


# Applies to physical drives, which report no more than the completion.
_ADVICE = "a completed discard is advice that the drive may ignore or postpone"


def _doubts(leaf: Layer, advisory: Reason | None = None) -> Iterator[Reason]:
    """Yield what remains unknown about a disk with completed discards. `advisory` is the doubt about a
    physical drive, None if the drive is proven."""
    loop = leaf.facts_as(LoopFacts)
    if leaf.facts_as(DiskFacts).virtual:
        observed = "a virtual disk: its host decides, and a guest cannot see it"
        yield reason("host-may-drop", leaf.device, observed, device=leaf.device)
    elif leaf.kind is Kind.LOOP and not loop.simulated_drive:
        if loop.backing_filesystem not in (None, *IN_MEMORY):
            blanks = {"mount": loop.backing_mount or "/", "file": loop.backing_file or leaf.device}
            observed = f"its file lies on {loop.backing_filesystem}"
            yield reason("loop-frees-file", leaf.device, observed, None, **blanks)
    elif advisory:
        yield advisory


def verdict(
    evidence: AuditEvidence,
    rows: Sequence[Row],
    sent: int,
    reached: int,
    unexplained: int,
    proofs: Sequence[LeafProof],
) -> Verdict:
    """Return the verdict. If no loss was seen, the weakest disk's proof decides. `unexplained` is the result
    of unexplained_bytes()."""
    if not evidence.settled:
        return Verdict.UNKNOWN  # discards in flight may still complete or fail
    below = [why for row in rows if row.kind is not RowKind.FILESYSTEM for why in row.reasons]
    if any(why.code == "trace-lost" for why in below):
        return Verdict.UNKNOWN
    failures = any(row.errors for row in rows)
    lost = any(
        why.cause.effect in (Effect.STOPS, Effect.SKIPS, Effect.SHORTENS) and why.lost_bytes != 0
        for why in below
    )
    if not reached:
        return _nothing_reached(evidence, rows, below, sent, failures, lost or unexplained > 0)
    ended_early = bool(evidence.answer and evidence.answer.interrupted)
    if failures or lost or unexplained or ended_early:
        return Verdict.PARTIAL
    standing = weakest(proofs)
    if standing is Standing.CONTRADICTED:
        return Verdict.PARTIAL if any(proof.gone_bytes for proof in proofs) else Verdict.UNKNOWN
    return _BY_STANDING[Standing.ACCEPTED if unseen_devices(evidence) else standing]


def unless_the_stack_stops(verdict: Verdict, stack: Stack) -> tuple[Verdict, tuple[Reason, ...]]:
    """Replace NOTHING_LEFT by NOT_SENT if the stack passes no discards.

    Return (verdict, causes). With NOTHING_LEFT, the causes come from a check of the stack, because the
    earlier trims may have been lost."""
    if verdict is not Verdict.NOTHING_LEFT:
        return verdict, ()
    expected = forecast(stack)
    losing = (Effect.STOPS, Effect.SHORTENS)
    causes = tuple(
        why for why in expected.reasons if why.cause.effect in losing and why.cause.layer != "filesystem"
    )
    return (Verdict.NOT_SENT if expected.outlook is Outlook.NOTHING else verdict), causes


def unexplained_bytes(rows: Sequence[Row], sent: int, reached: int) -> int:
    """Return the bytes lost without a known cause: the rows' sum or the shortfall from `sent` to `reached`,
    whichever is larger. Copies and parity only increase `reached`, so a shortfall is always a loss."""
    explained = sum(
        why.lost_bytes or 0 for row in rows if row.kind is not RowKind.FILESYSTEM for why in row.reasons
    )
    return max(sum(row.unexplained_bytes for row in rows), sent - reached - explained)


def unseen_devices(evidence: AuditEvidence) -> str | None:
    """Describe devices of the filesystem outside of the audit's proof, because they are unknown or got no
    discards; None without such devices."""
    filesystem = evidence.before.filesystem
    if filesystem is None:
        return None
    if why := filesystem.unknown.get("devices"):
        return f"whether the {filesystem.kind} lies on other devices as well is not known: {why}"
    realtime = evidence.before.tops()[1:] if filesystem.kind == "xfs" else []
    for top in realtime:
        if not any(evidence.trace.select(Stage.BIO, devs=[top.dev])):
            return f"XFS sent nothing to its realtime device {top.device}: before Linux 6.11 it trims none"
    return None


_BY_STANDING = {
    Standing.ACCEPTED: Verdict.ACCEPTED,
    Standing.PARTWAY: Verdict.PROVEN_PARTWAY,
    Standing.PROVEN: Verdict.PROVEN,
}


def _nothing_left(evidence: AuditEvidence, rows: Sequence[Row]) -> bool:
    """Return True if FITRIM succeeded with 0 bytes because nothing was left to trim. Space below a requested
    minimum length is not "nothing left"; ranges that ext4 remembers as trimmed are."""
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
    # HIDES: a layer replaced the discards, for example by write zeroes. Otherwise nothing could be freed.
    if any(why.cause.effect is Effect.HIDES and why.lost_bytes for why in below):
        return Verdict.UNKNOWN
    return Verdict.ACCEPTED


def still_counted(evidence: AuditEvidence, reached: int) -> str | None:
    """Describe how the only drive's in-use count (NUSE) contradicts the completed discards; None without a
    contradiction. A count equal to the drive's size is ignored, because many drives hard-wire this value."""
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


# These may discard a byte twice in one FITRIM, or from a thread shared with other callers.
_MORE_THAN_ONCE = ("btrfs", "f2fs", "bcachefs")


def _once(evidence: AuditEvidence) -> bool:
    """Return True if every completed byte was discarded once: our own FITRIM on a filesystem without repeats.
    In a watch, other processes may trim the same space repeatedly."""
    filesystem = evidence.before.filesystem
    return evidence.answer is not None and filesystem is not None and filesystem.kind not in _MORE_THAN_ONCE


def foreign(evidence: AuditEvidence) -> int:
    """Return the bytes discarded by other processes on the stack's disks."""
    names = {layer.device[:16] for layer in evidence.before.leaves()}
    return sum(
        flow.amount.bytes
        for flow in evidence.trace.flows
        if flow.stage is Stage.BIO and flow.disk in names and flow.who is Who.OTHER
    )


def exit_status(all_verdicts: Iterable[Verdict]) -> int:
    """Return the exit status, as fstrim(8): 0 all reached or nothing was left, 32 none, 64 some. 6 if every
    verdict is UNKNOWN."""
    kinds = set(all_verdicts)
    good = {Verdict.PROVEN, Verdict.PROVEN_PARTWAY, Verdict.ACCEPTED, Verdict.NOTHING_LEFT}
    if kinds <= good:
        return 0
    if kinds <= {Verdict.REJECTED, Verdict.NOT_SENT}:
        return 32
    return 6 if kinds == {Verdict.UNKNOWN} else 64
