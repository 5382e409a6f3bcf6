"""Decide whether a trim reached the drive, and find the reasons for the trim as a whole. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from opwatch.trim.audit.audit import AuditEvidence, LeafProof, ProofLevel, Row, RowKind, Verdict
from opwatch.trim.audit.flow import Stage
from opwatch.trim.audit.proof import find_weakest_level
from opwatch.trim.check.prediction import Outlook, predict_trim
from opwatch.trim.filesystems.kinds import find_filesystem
from opwatch.trim.layers.kinds import find_kind
from opwatch.trim.stack.causes import Effect, Reason, make_reason
from opwatch.trim.stack.layers import Layer, Stack


def find_doubts(
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
        if proof and proof.standing is ProofLevel.CONTRADICTED:
            below = find_kind(leaf).explain_storage_below(leaf) or []
            code = next((why.code for why in below if why.code == "host-may-drop"), advisory)
            doubts.append(make_reason(code, leaf.device, "; ".join(proof.by), **mounted))
            doubts += [why for why in _find_disk_doubts(leaf) if why.code != code]
        elif verdict in _ARRIVED:
            proven = bool(proof and proof.standing is ProofLevel.PROVEN)
            doubts += _find_disk_doubts(
                leaf, None if proven else make_reason(advisory, leaf.device, _ADVICE, **mounted)
            )
    return tuple(doubts)


_ARRIVED = (Verdict.ACCEPTED, Verdict.PARTIAL, Verdict.PROVEN, Verdict.PROVEN_PARTWAY)


# Applies to physical drives, which report no more than the completion.
_ADVICE = "a completed discard is a hint that the drive may ignore or postpone"


def _find_disk_doubts(leaf: Layer, advisory: Reason | None = None) -> Iterator[Reason]:
    """Yield what remains unknown about a disk with completed discards. `advisory` is the doubt about a
    physical drive, None if the drive is proven."""
    below = find_kind(leaf).explain_storage_below(leaf)
    if below is not None:
        yield from below
    elif advisory:
        yield advisory


def decide_verdict(
    evidence: AuditEvidence,
    rows: Sequence[Row],
    sent: int,
    reached: int,
    unexplained: int,
    proofs: Sequence[LeafProof],
) -> Verdict:
    """Return the verdict. If no loss was seen, the weakest disk's proof decides. `unexplained` is the result
    of count_unexplained_bytes()."""
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
        return _decide_unreached(evidence, rows, below, sent, failures, lost or unexplained > 0)
    ended_early = bool(evidence.answer and evidence.answer.interrupted)
    if failures or lost or unexplained or ended_early:
        return Verdict.PARTIAL
    standing = find_weakest_level(proofs)
    if standing is ProofLevel.CONTRADICTED:
        return Verdict.PARTIAL if any(proof.gone_bytes for proof in proofs) else Verdict.UNKNOWN
    return _VERDICT_BY_LEVEL[ProofLevel.ACCEPTED if describe_unproven_devices(evidence) else standing]


def recheck_nothing_left(verdict: Verdict, stack: Stack) -> tuple[Verdict, tuple[Reason, ...]]:
    """Replace NOTHING_LEFT by NOT_SENT if the stack passes no discards.

    Return (verdict, causes). With NOTHING_LEFT, the causes come from a check of the stack, because the
    earlier trims may have been lost."""
    if verdict is not Verdict.NOTHING_LEFT:
        return verdict, ()
    expected = predict_trim(stack)
    losing = (Effect.STOPS, Effect.SHORTENS)
    causes = tuple(
        why for why in expected.reasons if why.cause.effect in losing and why.cause.layer != "filesystem"
    )
    return (Verdict.NOT_SENT if expected.outlook is Outlook.NOTHING else verdict), causes


def count_unexplained_bytes(rows: Sequence[Row], sent: int, reached: int) -> int:
    """Return the bytes lost without a known cause: the rows' sum or the shortfall from `sent` to `reached`,
    whichever is larger. Copies and parity only increase `reached`, so a shortfall is always a loss."""
    explained = sum(
        why.lost_bytes or 0 for row in rows if row.kind is not RowKind.FILESYSTEM for why in row.reasons
    )
    return max(sum(row.unexplained_bytes for row in rows), sent - reached - explained)


def describe_unproven_devices(evidence: AuditEvidence) -> str | None:
    """Describe devices of the filesystem outside of the audit's proof, because they are unknown or got no
    discards; None without such devices."""
    filesystem = evidence.before.filesystem
    if filesystem is None:
        return None
    if why := filesystem.unknown.get("devices"):
        return f"unknown whether the {filesystem.kind} is also on other devices: {why}"
    for top in evidence.before.find_tops()[1:]:
        words = find_filesystem(filesystem.kind).describe_untrimmed(top.device)
        if words and not any(evidence.trace.select(Stage.BIO, devs=[top.dev])):
            return words
    return None


_VERDICT_BY_LEVEL = {
    ProofLevel.ACCEPTED: Verdict.ACCEPTED,
    ProofLevel.PARTWAY: Verdict.PROVEN_PARTWAY,
    ProofLevel.PROVEN: Verdict.PROVEN,
}


def _is_nothing_left(evidence: AuditEvidence, rows: Sequence[Row]) -> bool:
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


def _decide_unreached(
    evidence: AuditEvidence,
    rows: Sequence[Row],
    below: Sequence[Reason],
    sent: int,
    failures: bool,
    lost: bool,
) -> Verdict:
    if failures:
        return Verdict.REJECTED
    if _is_nothing_left(evidence, rows) and not sent and not lost:
        return Verdict.NOTHING_LEFT
    if not sent or lost:
        return Verdict.NOT_SENT
    # HIDES: a layer replaced the discards, for example by write zeroes. Otherwise nothing could be freed.
    if any(why.cause.effect is Effect.HIDES and why.lost_bytes for why in below):
        return Verdict.UNKNOWN
    return Verdict.ACCEPTED


def find_count_contradiction(evidence: AuditEvidence, reached: int) -> str | None:
    """Describe how the only drive's in-use count (NUSE) contradicts the completed discards; None without a
    contradiction. A count equal to the drive's size is ignored, because many drives hard-wire this value."""
    leaves = evidence.before.find_leaves()
    count = evidence.read_back.count if evidence.read_back else None
    if count and count.has_ignored_trim:
        return f"the drive's count of bytes in use (NUSE): {count.response_text}"
    in_use = evidence.in_use.get(leaves[0].device) if len(leaves) == 1 else None
    if in_use is None or in_use.written is None or not _is_discarded_once(evidence):
        return None
    if in_use.before >= leaves[0].size_bytes:
        return None
    most = leaves[0].size_bytes - reached
    if in_use.after <= most + in_use.written:
        return None
    words = f"the drive counts {in_use.after} B as in use, but at most {most} B of it were not trimmed"
    return f"{words}, or {in_use.written} B written since" if in_use.written else words


def _is_discarded_once(evidence: AuditEvidence) -> bool:
    """Return True if every completed byte was discarded once: our own FITRIM on a filesystem without repeats.
    In a watch, other processes may trim the same space repeatedly."""
    filesystem = evidence.before.filesystem
    return (
        evidence.answer is not None
        and filesystem is not None
        and not find_filesystem(filesystem.kind).repeats_bytes
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
