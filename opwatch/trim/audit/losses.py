"""Find the causes of bytes missing between two ledger lines. Pure."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from opwatch.trace.ops import STATUS_NAMES
from opwatch.trim.audit.audit import AuditEvidence
from opwatch.trim.audit.flow import Amount, Stage, Who, total
from opwatch.trim.check import rules
from opwatch.trim.check.filesystem_rules import refused, seeds
from opwatch.trim.stack.causes import Reason, reason
from opwatch.trim.stack.facts import PARITY, DiskFacts, LoopFacts, ThinFacts, ThinPoolFacts
from opwatch.trim.stack.layers import Kind, Layer
from opwatch.trim.stack.passage import RAID456, Kept, keeps, mirrors_of_one, without_discards

_MIRRORED = ("raid1", "raid10")
STAGES_OF_FILESYSTEMS = (
    Stage.FS_SMALL,
    Stage.FS_BUSY,
    Stage.FS_QUEUED,
    Stage.FS_GROUP,
    Stage.BIO_AGAIN,
    Stage.FS_PASSED,
)
# Values of sync_action while md writes to members.
WRITING = {"resync", "recover", "repair", "reshape"}
_NOT_SUPPORTED, _RESERVATION_CONFLICT = 1, 6


# --- the filesystem ---


def amounts(
    evidence: AuditEvidence, devs: Sequence[str], who: Sequence[Who], *, is_reached: bool
) -> dict[Stage, Amount]:
    """Sum the filesystem stages over devices and senders. Counts irrelevant to the trim are 0."""
    counted = {
        stage: total(evidence.trace.select(stage, devs=devs, who=who)) for stage in STAGES_OF_FILESYSTEMS
    }
    if not is_reached:
        counted[Stage.BIO_AGAIN] = Amount()
    # If only a range was requested, extents outside of the range are skipped correctly.
    if not (evidence.asked and evidence.asked.is_whole):
        counted[Stage.FS_PASSED] = Amount()
    return counted


def of_filesystem(
    evidence: AuditEvidence, out: int | None, amounts: Mapping[Stage, Amount]
) -> Iterator[Reason]:
    """Yield why the filesystem refused FITRIM, skipped free space or sent ranges again. `amounts` has an
    entry for each of STAGES_OF_FILESYSTEMS."""
    small, busy, queued, groups, again, passed = (amounts[stage] for stage in STAGES_OF_FILESYSTEMS)
    filesystem, answer = evidence.before.filesystem, evidence.answer
    assert filesystem
    point = filesystem.point
    if answer and answer.error:
        yield from _refused(evidence, answer.error)
    if answer and answer.interrupted:
        yield reason("interrupted", point, "a signal ended FITRIM before it was done")
    if small.bytes:
        # XFS scans each group's free extents from the longest and stops at the first that is too short.
        observed = f"{small.bytes} B at least: the longest of {small.count} groups that were too short"
        yield reason("below-minimum", point, observed, None, mount=point)
    if busy.bytes:
        observed = f"{busy.count} extents, {busy.bytes} B, were busy"
        yield reason("xfs-busy", point, observed, busy.bytes, mount=point)
    if passed.bytes:
        observed = f"{passed.count} free extents, {passed.bytes} B, were taken for outside of what was asked"
        yield reason("xfs-passes-over", point, observed, passed.bytes, mount=point)
    nothing = answer is not None and answer.claimed == 0 and not out
    if filesystem.kind == "ext4" and nothing:
        observed = f"{groups.count} block groups were looked through, no extent was given away"
        yield reason("ext4-already-trimmed", point, observed, mount=point)
    if queued.bytes > (out or 0):
        observed = f"{queued.count} ranges, {queued.bytes} B, were filed for later, {out or 0} B issued"
        yield reason("filesystem-trims-later", point, observed, mount=point)
    if filesystem.kind == "btrfs" and again.bytes:
        observed = f"up to {again.bytes} B of what it sent may have been sent before"
        yield reason("btrfs-discards-again", point, observed, mount=point)
    yield from seeds(filesystem)
    if filesystem.kind == "btrfs" and nothing:
        yield reason("filesystem-trims-later", point, "btrfs gave nothing away", mount=point)


def _refused(evidence: AuditEvidence, error: int) -> Iterator[Reason]:
    """Yield the causes of a FITRIM error, in a device or in the filesystem."""
    filesystem = evidence.before.filesystem
    assert filesystem
    point, said = filesystem.point, f"FITRIM: {errno.errorcode.get(error, error)}, {os.strerror(error)}"
    without = [layer for layer in evidence.before.layers if layer.limits.offered is False]
    if error in (errno.EOPNOTSUPP, errno.ENOTTY) and without:
        culprits = [_stopped(evidence, layer, said) for layer in without]
        yield from {why.where: why for why in culprits}.values()
    elif error in (errno.EOPNOTSUPP, errno.ENOTTY):
        refusal = refused(evidence.before) or reason("no-fitrim", point, "", mount=point)
        yield replace(refusal, observed="; ".join(filter(None, (said, refusal.observed))))
    elif error == errno.EINVAL and evidence.asked and evidence.asked.minlen:
        observed = f"{said}, with a minimum of {evidence.asked.minlen} B"
        yield reason("below-minimum", point, observed, mount=point)
    elif error in (errno.EROFS, errno.EPERM):
        refusing = [option for option in filesystem.options if option in _REFUSING]
        blanks = {"option": refusing[0]} if refusing else {}
        yield reason("filesystem-refuses", point, said, None, mount=point, **blanks)


_REFUSING = ("noload", "norecovery", "nologreplay")


def _stopped(evidence: AuditEvidence, layer: Layer, observed: str, lost: int | None = None) -> Reason:
    """Return why a layer accepts no discards, by its state after the trim. If lower layers have no discard
    support either, the reason names the lowest."""
    culprit = _later(evidence, layer)
    while lowers := without_discards(evidence.after, culprit):
        culprit = lowers[0]
    zero = rules.own_zero(evidence.after, culprit)
    return replace(zero, observed=f"{observed}; {zero.observed}", lost_bytes=lost)


def _later(evidence: AuditEvidence, layer: Layer) -> Layer:
    """Return the layer's state after the trim, or before the trim if the layer has disappeared."""
    return evidence.after.layer(layer.device) or layer


# --- between two layers ---


def vanished(
    evidence: AuditEvidence, layer: Layer, lost: int, errors: Mapping[int, Amount]
) -> Iterator[Reason]:
    """Yield why the filesystem's discards appeared in no block event."""
    now = _later(evidence, layer)
    if now.limits.max_bytes == 0:
        observed = f"{lost} B made no block event"
        if layer.limits.max_bytes:
            observed += f"; discard_max_bytes was {layer.limits.max_bytes} before"
        yield _stopped(evidence, layer, observed, lost)
        return
    yield from lost_by_tracing(evidence, layer, lost)


def left_out(evidence: AuditEvidence, layer: Layer) -> Iterator[Reason]:
    """Yield a reason for a device without discard support in a multi-device filesystem."""
    filesystem = evidence.before.filesystem
    if filesystem and filesystem.kind == "btrfs" and len(filesystem.devices) > 1:
        observed = f"{layer.device} takes no discards, and btrfs passes it over without a word"
        yield reason("btrfs-device-no-discards", layer.device, observed, disk=layer.device)
    elif filesystem and len(filesystem.devices) > 1:
        observed = (
            f"it is one of {len(filesystem.devices)} devices of the {filesystem.kind}, and takes no discards"
        )
        yield _stopped(evidence, layer, observed)


def rebuilding(evidence: AuditEvidence, layer: Layer) -> Iterator[Reason]:
    """Yield a reason if an array was resynchronizing before or after the trim and so wrote to its members."""
    arrays = [state.array for state in (layer, _later(evidence, layer))]
    doing = {array.sync_action for array in arrays if array} & WRITING
    if doing:
        observed = f"sync_action of {layer.device} is {' and '.join(sorted(filter(None, doing)))}"
        yield reason("array-writes", layer.device, observed, None, device=layer.device)


def lost_by_tracing(evidence: AuditEvidence, layer: Layer, lost: int) -> Iterator[Reason]:
    """Yield trace-lost if the kernel counted more completed discards than we saw, or if bios lost their
    sender because the tracer's bio map was full."""
    trace = evidence.trace
    counted = trace.stats.get(layer.device)
    ended = total(trace.select(Stage.DONE, disk=layer.device[:16])).bytes
    if counted and counted[1] > ended:
        unseen = min(lost, counted[1] - ended)
        observed = f"the kernel counts {counted[1]} B of discards, we saw {ended} B end"
        yield reason("trace-lost", layer.device, observed, unseen)
        return
    others = total(trace.select(Stage.DONE, disk=layer.device[:16], who=(Who.KERNEL, Who.OTHER))).bytes
    if trace.loss.bios_full and others:
        observed = f"no room for {trace.loss.bios_full} bios, and {others} B of senders not known ended"
        yield reason("trace-lost", layer.device, observed, min(lost, others))


def handed_on(evidence: AuditEvidence, layer: Layer, members: Mapping[str, int]) -> int:
    """Return the bytes of a layer's own data passed to lower layers, without parity."""
    if layer.level in RAID456:
        stripes = _whole_stripes(evidence, layer, members)
        kept = _kept_of_stripes(evidence, layer, members, stripes)
        return stripes - kept - _missed_of_stripes(evidence, layer, members, stripes)
    # A loop device on a block device turns discards into write zeroes, so that no discards arrive below.
    return 0 if layer.kind is Kind.LOOP else sum(members.values())


def _whole_stripes(evidence: AuditEvidence, layer: Layer, members: Mapping[str, int]) -> int:
    """Return the data bytes of the whole stripes discarded on the members of a RAID 4, 5 or 6. Return 0 if
    the members got different amounts, which whole stripes cannot explain."""
    array = layer.array
    disks = (array and array.raid_disks) or 0
    parity = PARITY[layer.level or ""]
    # Spares, failed members and members without discard support get nothing.
    absent = (array.degraded or 0 if array else 0) + len(_without_discards(evidence, members))
    most = max(members.values(), default=0)
    alike = sum(got == most for got in members.values() if got)
    if not disks - absent - _fewer_by(evidence, layer) <= alike <= disks - absent:
        return 0
    return most * (disks - parity)


def _fewer_by(evidence: AuditEvidence, layer: Layer) -> int:
    """Return the number of members that failed during the trim. Such members got only the earlier
    discards."""
    missing = [state.array.degraded or 0 for state in (layer, _later(evidence, layer)) if state.array]
    return max(0, missing[-1] - missing[0]) if missing else 0


def _kept_of_stripes(evidence: AuditEvidence, layer: Layer, members: Mapping[str, int], stripes: int) -> int:
    """Return the data bytes on members without discard support. Every member holds an equal share, because
    parity rotates over the members."""
    disks = layer.array.raid_disks if layer.array else None
    return stripes * len(_without_discards(evidence, members)) // disks if disks else 0


def _missed_of_stripes(
    evidence: AuditEvidence, layer: Layer, members: Mapping[str, int], stripes: int
) -> int:
    """Return the data bytes not sent to members after they failed during the trim."""
    disks = layer.array.raid_disks if layer.array else None
    if not disks or not stripes or not _fewer_by(evidence, layer):
        return 0
    most, without = max(members.values()), _without_discards(evidence, members)
    missed = sum(most - got for name, got in members.items() if name not in without)
    return stripes * missed // (disks * most)


def _without_discards(evidence: AuditEvidence, members: Mapping[str, int]) -> list[str]:
    """Return the members without discard support, which got nothing."""
    known = {name: evidence.before.layer(name) for name, got in members.items() if not got}
    return [name for name, member in known.items() if member and member.limits.offered is False]


def inside(
    evidence: AuditEvidence, layer: Layer, arrived: Amount, members: Mapping[str, int], lost: int
) -> Iterator[Reason]:
    """Yield why a layer did not pass on all accepted discards."""
    kept = kept_by(evidence, layer)
    if kept:
        yield kept[0].took(lost)
    elif layer.is_array:
        yield from _in_array(evidence, layer, arrived, members, lost)
    elif layer.kind is Kind.THIN:
        yield from _in_thin(evidence, layer, arrived, lost)


def kept_by(evidence: AuditEvidence, layer: Layer) -> list[Kept]:
    """Return why a layer keeps discards, by its state before the trim or, if that shows nothing, after it."""
    return keeps(evidence.before, layer) or keeps(evidence.after, _later(evidence, layer))


def _in_array(
    evidence: AuditEvidence, layer: Layer, arrived: Amount, members: Mapping[str, int], lost: int
) -> Iterator[Reason]:
    level = layer.level or ""
    if level in RAID456:
        yield from _in_stripes(evidence, layer, arrived, members, lost)
        return
    for name in _without_discards(evidence, members):
        share = min(arrived.bytes if level == "raid1" else lost, lost)
        yield _took_none(name, arrived, share)
        lost -= share
    # A member may have failed during the trim, for example by another process's write.
    array = _later(evidence, layer).array or layer.array
    missing = array.degraded if array and level in _MIRRORED else 0
    if array and missing and lost:
        # A missing member holds at most the bytes sent to the array (RAID 1), or the bytes on its mirrors.
        most = arrived.bytes if level == "raid1" else max(members.values(), default=0) * mirrors_of_one(layer)
        yield _missing(evidence, layer, min(lost, missing * most))


def _in_stripes(
    evidence: AuditEvidence, layer: Layer, arrived: Amount, members: Mapping[str, int], lost: int
) -> Iterator[Reason]:
    """Yield why the members of a parity array got fewer bytes than the array."""
    stripes = _whole_stripes(evidence, layer, members)
    if not stripes and any(members.values()):
        return
    without = _without_discards(evidence, members) if stripes else []
    kept = _kept_of_stripes(evidence, layer, members, stripes)
    for place, name in enumerate(without):
        yield _took_none(name, arrived, kept * (place + 1) // len(without) - kept * place // len(without))
    missed = _missed_of_stripes(evidence, layer, members, stripes)
    if missed:
        yield _missing(evidence, layer, missed)
    if rest := lost - kept - missed:
        yield reason("raid456-partial-stripe", layer.device, f"{rest} B lie in no whole stripe", rest)


def _missing(evidence: AuditEvidence, layer: Layer, share: int) -> Reason:
    """Return the reason for missing or failed members, with their share of the loss."""
    array = _later(evidence, layer).array or layer.array
    filesystem = evidence.before.filesystem
    blanks = {"mount": filesystem.point} if filesystem else {}
    observed = f"{array.degraded} of {array.raid_disks} members are missing" if array else ""
    return reason("member-missing", layer.device, observed, share, **blanks)


def _took_none(name: str, arrived: Amount, share: int) -> Reason:
    """Return the reason for a member without discard support, with its share of the loss."""
    observed = f"{name} takes no discards and got 0 B of {arrived.bytes} B"
    return reason("member-no-discards", name, observed, share, disk=name)


def _pool_of(evidence: AuditEvidence, layer: Layer) -> Layer | None:
    """Return a thin volume's pool."""
    pools = [lower for lower in evidence.before.below(layer) if lower.kind is Kind.THIN_POOL]
    return pools[0] if pools else None


def _in_thin(evidence: AuditEvidence, layer: Layer, arrived: Amount, lost: int) -> Iterator[Reason]:
    """Yield why a thin volume passed on less: only whole, unshared chunks are passed on."""
    pool = _pool_of(evidence, layer)
    partial = min(lost, arrived.bytes - arrived.granule_bytes)
    if partial:
        observed = f"{partial} B of the ends of ranges are no whole chunk"
        yield reason("thin-partial-chunk", layer.device, observed, partial)
    rest = lost - partial
    freed = _freed(evidence, layer, pool)
    if rest and freed is not None:
        passed = arrived.bytes - lost
        shared = max(0, min(rest, freed - passed))
        if shared:
            observed = f"{freed} B were unmapped, {passed} B passed on"
            yield reason("thin-shared", layer.device, observed, shared, label=layer.label or layer.device)
        if rest > shared:
            observed = f"{rest - shared} B of whole chunks had nothing mapped; the device gave back {freed} B"
            yield reason("thin-not-mapped", layer.device, observed, rest - shared)


def _freed(evidence: AuditEvidence, layer: Layer, pool: Layer | None) -> int | None:
    """Return the bytes unmapped in a thin volume, by its own or the pool's count; None if unknown."""
    then, now = (one.facts_as(ThinFacts).mapped_bytes for one in (layer, _later(evidence, layer)))
    if then is not None and now is not None:
        return then - now
    if pool:
        then, now = (one.facts_as(ThinPoolFacts).used_chunks for one in (pool, _later(evidence, pool)))
        chunk = pool.facts_as(ThinPoolFacts).chunk_bytes
        if then is not None and now is not None and chunk:
            return (then - now) * chunk
    return None


# --- the disk ---


def is_gone(evidence: AuditEvidence, layer: Layer) -> bool:
    """Return True if the device disappeared during the trim."""
    return evidence.after.layer(layer.device) is None


def gone(layer: Layer, lost: int) -> Reason:
    """Return the reason for discards that did not complete because the device disappeared."""
    observed = f"{layer.device} was there before the trim and is not there after it"
    return reason("device-gone", layer.device, observed, lost, device=layer.device)


def failed(evidence: AuditEvidence, layer: Layer, status: int, amount: Amount) -> Iterator[Reason]:
    """Yield why discards completed with an error."""
    if is_gone(evidence, layer):
        yield gone(layer, amount.bytes)
        return
    observed = f"{amount.count} requests, {amount.bytes} B, failed: {STATUS_NAMES.get(status, status)}"
    device, lost = layer.device, amount.bytes
    if layer.kind is Kind.LOOP:
        file = {"file": layer.facts_as(LoopFacts).backing_file or device}
        code = "loop-no-punch" if status == _NOT_SUPPORTED else "loop-file-sealed"
        yield reason(code, device, observed, lost, **file)
    elif layer.kind is Kind.THIN:
        kept = [one for one in kept_by(evidence, layer) if one.code == "thin-pool-read-only"]
        yield from (replace(one.took(lost), observed=f"{observed}; {one.words}") for one in kept)
    elif device.startswith("nvme"):
        yield reason(_nvme_code(layer, status), device, observed, lost, device=device)
    elif mode := _later(evidence, layer).facts_as(DiskFacts).provisioning_mode:
        code = "scsi-disabled" if mode == "disabled" else "scsi-refused"
        yield reason(code, device, f"{observed}; provisioning_mode {mode}", lost, device=device)


def _nvme_code(layer: Layer, status: int) -> str:
    """Return the cause of a failed NVMe discard. nvme_error_status() in the kernel has one status for all
    errors of its default case, write protection and sanitize included."""
    if status == _NOT_SUPPORTED:
        return "nvme-refused"
    return "nvme-locked" if status == _RESERVATION_CONFLICT or layer.read_only else "nvme-failed"


# libata's limit per command: 64 ranges of 65,535 sectors.
_ATA_LIMIT = 64 * 65_535 * 512


def cut(layer: Layer, splits: Amount) -> Iterator[Reason]:
    """Yield a harmless reason if discards were split at the limit of an ATA command."""
    if splits.count and layer.facts_as(DiskFacts).ata_trim and layer.limits.max_bytes == _ATA_LIMIT:
        yield reason("ata-splits", layer.device, f"{splits.count} pieces were cut off longer discards")


def at_the_end(layer: Layer, lost: int, shared: int) -> Iterator[Reason]:
    """Yield why a device cannot free all completed bytes: shared blocks and partial granules."""
    if shared:
        loop = layer.facts_as(LoopFacts)
        observed = f"its file gave up {shared} B that other files on {loop.backing_filesystem} have still"
        blanks = {"file": loop.backing_file or layer.device}
        yield reason("loop-file-shared", layer.device, observed, shared, **blanks)
    if lost:
        yield _rounded(layer, lost)


def _rounded(layer: Layer, lost: int) -> Reason:
    """Return the reason for bytes outside the device's whole granules."""
    granule = layer.granule
    assert granule
    observed = f"{lost} B lie in no whole granule of {granule[0]} B"
    loop = layer.facts_as(LoopFacts)
    if layer.kind is Kind.LOOP and not loop.simulated_drive:
        file = loop.backing_file or "its file"
        return reason("loop-partial-block", layer.device, observed, lost, file=file)
    hidden = (layer.facts_as(DiskFacts).deallocate_bytes or 0) > (layer.limits.granularity or 0)
    code = "nvme-granularity-hidden" if hidden else "device-rounds"
    return reason(code, layer.device, observed, lost, device=layer.device)
