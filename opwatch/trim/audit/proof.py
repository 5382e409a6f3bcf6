"""How far down a trim is proven: of each disk by evidence of its own, and the weakest disk decides. Pure.

A disk without evidence is never proven: what a layer above it gives for its blocks shows how far the trim
came, and no further.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from opwatch.frozen import replace
from opwatch.trim.audit import losses
from opwatch.trim.audit.accounts import Bearing, judge_all
from opwatch.trim.audit.audit import AuditEvidence, LeafProof, Standing
from opwatch.trim.audit.flow import Stage
from opwatch.trim.stack.facts import DiskFacts, LoopFacts
from opwatch.trim.stack.layers import Kind, Layer, Stack
from opwatch.trim.stack.passage import leaves_of
from opwatch.trim.stale.sentinel import ReadsAs

IN_MEMORY = ("tmpfs", "ramfs")
# Drivers whose disks may be logical drives: several disks behind one.
_LOGICAL = ("megaraid_sas", "smartpqi", "hpsa", "aacraid", "arcmsr", "3w-sas")
_IN_MAP = ("left the map of what it holds", "are still in the map of what it holds")
# Transports whose other end is another machine's.
_REMOTE = ("iscsi", "fc", "network")


def proofs(evidence: AuditEvidence, counted: str | None) -> tuple[LeafProof, ...]:
    """What is proven of each disk that completed discards. `counted`: how the only drive's own count
    contradicts them."""
    trace = evidence.trace
    ended = (
        leaf
        for leaf in leaves_of(evidence.before)
        if any(
            flow.amount.bytes and not flow.status
            for stage in (Stage.DONE, Stage.BIO_DONE)
            for flow in trace.select(stage, disk=leaf.device[:16])
        )
    )
    return tuple(_proof(evidence, leaf, counted) for leaf in ended)


def weakest(leaves: Sequence[LeafProof]) -> Standing:
    """The standing of all of them; ACCEPTED when there is none."""
    order = list(Standing)
    return min((leaf.standing for leaf in leaves), key=order.index, default=Standing.ACCEPTED)


def _proof(evidence: AuditEvidence, leaf: Layer, counted: str | None) -> LeafProof:
    own = _own_witness(evidence, leaf)
    for array in _above(evidence.before, leaf):
        if own.by and not own.kept_bytes and list(losses.rebuilding(evidence, array)):
            # Zeros may be what it wrote since.
            beyond = f"{array.device} writes its members, what was trimmed with the rest"
            return replace(own, beyond=beyond)
    above = _witness_above(evidence, leaf)
    if counted and not own.kept_bytes:
        return replace(own, standing=Standing.CONTRADICTED, by=(counted,), gone_bytes=0)
    if own.kept_bytes:
        return replace(own, standing=Standing.CONTRADICTED)
    if above.kept_bytes:
        return replace(above, standing=Standing.CONTRADICTED, by=(*own.by, *above.by))
    if not own.by:
        return above
    return _ended_at(evidence, leaf, own)


def _own_witness(evidence: AuditEvidence, leaf: Layer) -> LeafProof:
    """What the disk itself gives for its blocks, and counts; without a standing of its own yet."""
    answer = evidence.read_back
    mapped = answer.maps.get(leaf.device) if answer else None
    gone = kept = 0
    words = []
    if mapped and mapped.gone_bytes is not None:
        # Its word on these very blocks outweighs how they read.
        gone, kept = mapped.gone_bytes, mapped.after_bytes or 0
        words.append(_words(gone, kept, *_IN_MAP))
    else:
        gone, kept = _amounts(_readings(evidence, leaf))
        words.append(_words(gone, kept, "read as gone on it", "still read as they were written"))
    for opinion in judge_all(evidence.accounts, evidence.trace):
        if opinion.bearing is Bearing.PROVES and opinion.account.device == leaf.device:
            words.append(f"{opinion.account.source}: {opinion.words}")
    by = tuple(word for word in words if word)
    return LeafProof(leaf.device, Standing.ACCEPTED, by, gone_bytes=gone, kept_bytes=kept)


def _words(gone: int, kept: int, left: str, stayed: str) -> str:
    parts = [f"{gone} B of sentinels {left}"] if gone else []
    parts += [f"{kept} B of sentinels {stayed}"] if kept else []
    return ", ".join(parts)


def _amounts(read: Mapping[ReadsAs, int]) -> tuple[int, int]:
    """(gone, kept) bytes of what was read."""
    return read.get(ReadsAs.ZEROS, 0) + read.get(ReadsAs.ONES, 0), read.get(ReadsAs.UNCHANGED, 0)


def _readings(evidence: AuditEvidence, leaf: Layer) -> Mapping[ReadsAs, int]:
    """How sentinels read on a disk: several paths to one are the disk itself."""
    answer = evidence.read_back
    if not answer or answer.reason:
        return {}
    readings = Counter(answer.by_device.get(leaf.device, {}))
    for upper in _above(evidence.before, leaf):
        if _same_drive(upper):
            readings.update(answer.by_device.get(upper.device, {}))
    return readings


def _same_drive(layer: Layer) -> bool:
    return layer.kind is Kind.MULTIPATH or layer.target == "multipath"


def _above(stack: Stack, leaf: Layer) -> Iterator[Layer]:
    """Every layer that stands on this one, the nearest first."""
    names = {leaf.device}
    for layer in reversed(stack.layers):
        if names & set(layer.below):
            names.add(layer.device)
            yield layer


def _witness_above(evidence: AuditEvidence, leaf: Layer) -> LeafProof:
    """How far the trim came towards a disk that shows nothing itself."""
    answer, stack = evidence.read_back, evidence.before
    silent = LeafProof(leaf.device, Standing.ACCEPTED, beyond="nothing was asked of it but to complete")
    if not answer or answer.reason:
        return silent
    witnesses = [
        (upper, *_amounts(answer.by_device.get(upper.device, {})))
        for upper in _above(stack, leaf)
        if not _same_drive(upper)
    ]
    # What can still be read anywhere above is not gone.
    for upper, gone, kept in sorted(witnesses, key=lambda witness: not witness[2]):
        if not gone + kept:
            continue
        by = (
            _words(gone, kept, f"read as gone on {upper.device}", f"still read as written on {upper.device}"),
        )
        if kept:
            return LeafProof(leaf.device, Standing.ACCEPTED, by, gone_bytes=gone, kept_bytes=kept)
        if upper.is_array:
            # One of its mirrors answered, or parity did.
            return replace(silent, by=by, beyond=f"any member of {upper.device} may have answered")
        name = f"{upper.target or upper.kind.value} {upper.device}"
        beyond = f"what lies below {upper.device} was not looked at: {leaf.device} may hold it"
        return LeafProof(leaf.device, Standing.PARTWAY, by, down_to=name, beyond=beyond)
    return silent


def _ended_at(evidence: AuditEvidence, leaf: Layer, own: LeafProof) -> LeafProof:
    """A disk that shows itself that it freed what it was told to: whether anything stands below it."""
    disk, loop = leaf.facts_as(DiskFacts), leaf.facts_as(LoopFacts)
    standing, beyond, down_to = Standing.PARTWAY, "", leaf.device
    if leaf.kind is Kind.LOOP and not loop.simulated_drive:
        mapped = evidence.read_back.maps.get(leaf.device) if evidence.read_back else None
        if not mapped or mapped.gone_bytes is None or not loop.backing_filesystem:
            down_to, beyond = f"loop device {leaf.device}", "its file cannot be seen from here"
        elif loop.backing_filesystem in IN_MEMORY:
            down_to, standing = f"the file {loop.backing_file} in memory", Standing.PROVEN
        else:
            down_to = f"the file {loop.backing_file}"
            beyond = f"what lies below learns of it when {loop.backing_mount or 'its filesystem'} is trimmed"
    elif disk.virtual:
        down_to, beyond = f"the virtual disk {leaf.device}", "what its host frees cannot be seen from here"
    elif set(disk.drivers or ()) & set(_LOGICAL):
        down_to, beyond = f"{leaf.device} of a RAID controller", "its disks cannot be seen from here"
    elif disk.transport in _REMOTE or (disk.transport or "").startswith("nvme-"):
        down_to, beyond = f"the logical unit {leaf.device}", "what its target frees cannot be seen from here"
    else:
        down_to, standing = f"the drive {leaf.device}", Standing.PROVEN
    return replace(own, standing=standing, down_to=down_to, beyond=beyond or None)
