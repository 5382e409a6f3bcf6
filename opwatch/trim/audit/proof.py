"""Determine how far down a trim is proven, separately for each disk. The weakest disk decides. Pure.

A disk is proven only by its own evidence. Reads through a higher layer prove the trim down to the higher
layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from opwatch.trim.audit import losses
from opwatch.trim.audit.accounts import CounterEvidence, judge_accounts
from opwatch.trim.audit.audit import AuditEvidence, LeafProof, ProofLevel
from opwatch.trim.audit.flow import Stage
from opwatch.trim.layers.arrays import is_array
from opwatch.trim.layers.discard_path import find_target_disks
from opwatch.trim.layers.kinds import find_kind
from opwatch.trim.stack.layers import Layer, Stack
from opwatch.trim.stale.sentinel import ReadsAs

_MAP_TEXTS = ("removed from its map", "still in its map")


def prove_disks(evidence: AuditEvidence, counted: str | None) -> tuple[LeafProof, ...]:
    """Return the proof for each disk with completed discards. `counted` describes how the only drive's in-use
    count contradicts the completions, or is None."""
    trace = evidence.trace
    ended = (
        leaf
        for leaf in find_target_disks(evidence.before)
        if any(
            flow.amount.bytes and not flow.status
            for stage in (Stage.DONE, Stage.BIO_DONE)
            for flow in trace.select(stage, disk=leaf.device[:16])
        )
    )
    return tuple(_prove_disk(evidence, leaf, counted) for leaf in ended)


def find_weakest_level(leaves: Sequence[LeafProof]) -> ProofLevel:
    """Return the weakest standing; ACCEPTED if there are no proofs."""
    order = list(ProofLevel)
    return min((leaf.standing for leaf in leaves), key=order.index, default=ProofLevel.ACCEPTED)


def _prove_disk(evidence: AuditEvidence, leaf: Layer, counted: str | None) -> LeafProof:
    own = _find_own_evidence(evidence, leaf)
    for array in _find_layers_above(evidence.before, leaf):
        if own.by and not own.kept_bytes and list(losses.explain_resync(evidence, array)):
            # The array may have written the zeros during its resync.
            beyond = f"{array.device} rewrites its members, including the trimmed range"
            return replace(own, beyond=beyond)
    above = _find_evidence_above(evidence, leaf)
    if counted and not own.kept_bytes:
        return replace(own, standing=ProofLevel.CONTRADICTED, by=(counted,), gone_bytes=0)
    if own.kept_bytes:
        return replace(own, standing=ProofLevel.CONTRADICTED)
    if above.kept_bytes:
        return replace(above, standing=ProofLevel.CONTRADICTED, by=(*own.by, *above.by))
    if not own.by:
        return above
    return _complete_proof(evidence, leaf, own)


def _find_own_evidence(evidence: AuditEvidence, leaf: Layer) -> LeafProof:
    """Return the disk's own evidence: LBA map or reads, and counters. The standing is preliminary
    (ACCEPTED)."""
    answer = evidence.read_back
    mapped = answer.maps.get(leaf.device) if answer else None
    gone = kept = 0
    words = []
    if mapped and mapped.gone_bytes is not None:
        # The drive's own map is stronger evidence than reads.
        gone, kept = mapped.gone_bytes, mapped.after_bytes or 0
        words.append(_describe_sentinels(gone, kept, *_MAP_TEXTS))
    else:
        gone, kept = _count_gone_and_kept(_merge_readings(evidence, leaf))
        words.append(_describe_sentinels(gone, kept, "read as freed", "still read as written"))
    for opinion in judge_accounts(evidence.accounts, evidence.trace):
        if opinion.bearing is CounterEvidence.PROVES and opinion.account.device == leaf.device:
            words.append(f"{opinion.account.source}: {opinion.words}")
    by = tuple(word for word in words if word)
    return LeafProof(leaf.device, ProofLevel.ACCEPTED, by, gone_bytes=gone, kept_bytes=kept)


def _describe_sentinels(gone: int, kept: int, left: str, stayed: str) -> str:
    parts = [f"{gone} B of sentinels {left}"] if gone else []
    parts += [f"{kept} B of sentinels {stayed}"] if kept else []
    return ", ".join(parts)


def _count_gone_and_kept(read: Mapping[ReadsAs, int]) -> tuple[int, int]:
    """Return the (gone, kept) bytes; other readings count as neither."""
    return read.get(ReadsAs.ZEROS, 0) + read.get(ReadsAs.ONES, 0), read.get(ReadsAs.UNCHANGED, 0)


def _merge_readings(evidence: AuditEvidence, leaf: Layer) -> Mapping[ReadsAs, int]:
    """Return how the sentinels read on a disk, including reads through a multipath device."""
    answer = evidence.read_back
    if not answer or answer.reason:
        return {}
    readings = Counter(answer.by_device.get(leaf.device, {}))
    for upper in _find_layers_above(evidence.before, leaf):
        if _is_multipath(upper):
            readings.update(answer.by_device.get(upper.device, {}))
    return readings


def _is_multipath(layer: Layer) -> bool:
    kind = find_kind(layer)
    return kind.has_hidden_paths or kind.clones_requests


def _find_layers_above(stack: Stack, leaf: Layer) -> Iterator[Layer]:
    """Yield every layer above a leaf, nearest first."""
    names = {leaf.device}
    for layer in reversed(stack.layers):
        if names & set(layer.below):
            names.add(layer.device)
            yield layer


def _find_evidence_above(evidence: AuditEvidence, leaf: Layer) -> LeafProof:
    """Return the proof for a disk from reads through the layers above it."""
    answer, stack = evidence.read_back, evidence.before
    silent = LeafProof(leaf.device, ProofLevel.ACCEPTED, beyond="no evidence beyond the completions")
    if not answer or answer.reason:
        return silent
    witnesses = [
        (upper, *_count_gone_and_kept(answer.by_device.get(upper.device, {})))
        for upper in _find_layers_above(stack, leaf)
        if not _is_multipath(upper)
    ]
    # Layers with readable old data come first: old data readable anywhere above is not gone.
    for upper, gone, kept in sorted(witnesses, key=lambda witness: not witness[2]):
        if not gone + kept:
            continue
        by = (
            _describe_sentinels(
                gone, kept, f"read as freed on {upper.device}", f"still read as written on {upper.device}"
            ),
        )
        if kept:
            return LeafProof(leaf.device, ProofLevel.ACCEPTED, by, gone_bytes=gone, kept_bytes=kept)
        if is_array(upper):
            # A single mirror may have served the read, or parity rebuilt it.
            return replace(silent, by=by, beyond=f"any member of {upper.device} may have served the read")
        name = f"{upper.target or upper.kind.value} {upper.device}"
        beyond = f"opwatch did not read below {upper.device}: {leaf.device} may still hold the data"
        return LeafProof(leaf.device, ProofLevel.PARTWAY, by, down_to=name, beyond=beyond)
    return silent


def _complete_proof(evidence: AuditEvidence, leaf: Layer, own: LeafProof) -> LeafProof:
    """Complete a disk's own proof: PROVEN for a drive or a file in memory, PARTWAY if storage below the disk
    cannot be seen."""
    mapped = evidence.read_back.maps.get(leaf.device) if evidence.read_back else None
    has_map = mapped is not None and mapped.gone_bytes is not None
    is_proven, down_to, beyond = find_kind(leaf).judge_proof(leaf, has_map=has_map)
    standing = ProofLevel.PROVEN if is_proven else ProofLevel.PARTWAY
    return replace(own, standing=standing, down_to=down_to, beyond=beyond)
