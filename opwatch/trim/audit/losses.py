"""Find the causes of bytes missing between two ledger lines. Pure."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from opwatch.trace.ops import STATUS_NAMES
from opwatch.trim.audit.audit import AuditEvidence
from opwatch.trim.audit.flow import Amount, SenderKind, Stage, sum_flows
from opwatch.trim.check import rules
from opwatch.trim.check.filesystem_rules import find_refusal, find_seeds
from opwatch.trim.stack.causes import Reason, make_reason
from opwatch.trim.stack.discard_path import (
    RAID456,
    RetentionCause,
    count_mirrors,
    find_retentions,
    find_unsupported_layers,
)
from opwatch.trim.stack.facts import PARITY, DiskFacts, LoopFacts, ThinFacts, ThinPoolFacts
from opwatch.trim.stack.layers import Kind, Layer

_MIRRORED = ("raid1", "raid10")
FILESYSTEM_STAGES = (
    Stage.FS_SMALL,
    Stage.FS_BUSY,
    Stage.FS_QUEUED,
    Stage.FS_GROUP,
    Stage.BIO_REPEATED,
    Stage.FS_OUTSIDE,
)
# Values of sync_action while md writes to members.
WRITING_SYNC_ACTIONS = {"resync", "recover", "repair", "reshape"}
_NOT_SUPPORTED, _RESERVATION_CONFLICT = 1, 6


# --- the filesystem ---


def sum_stages(
    evidence: AuditEvidence, devs: Sequence[str], who: Sequence[SenderKind], *, is_reached: bool
) -> dict[Stage, Amount]:
    """Sum the filesystem stages over devices and senders. Counts irrelevant to the trim are 0."""
    counted = {
        stage: sum_flows(evidence.trace.select(stage, devs=devs, who=who)) for stage in FILESYSTEM_STAGES
    }
    if not is_reached:
        counted[Stage.BIO_REPEATED] = Amount()
    # If only a range was requested, extents outside of the range are skipped correctly.
    if not (evidence.asked and evidence.asked.is_whole):
        counted[Stage.FS_OUTSIDE] = Amount()
    return counted


def explain_filesystem(
    evidence: AuditEvidence, out: int | None, amounts: Mapping[Stage, Amount]
) -> Iterator[Reason]:
    """Yield why the filesystem refused FITRIM, skipped free space or sent ranges again. `amounts` has an
    entry for each of STAGES_OF_FILESYSTEMS."""
    small, busy, queued, groups, again, passed = (amounts[stage] for stage in FILESYSTEM_STAGES)
    filesystem, answer = evidence.before.filesystem, evidence.answer
    assert filesystem
    point = filesystem.point
    if answer and answer.error:
        yield from _explain_refusal(evidence, answer.error)
    if answer and answer.interrupted:
        yield make_reason("interrupted", point, "a signal ended FITRIM before it finished")
    if small.bytes:
        # XFS scans each group's free extents from the longest and stops at the first that is too short.
        observed = f"at least {small.bytes} B: the longest such extent of each of {small.count} groups"
        yield make_reason("below-minimum", point, observed, None, mount=point)
    if busy.bytes:
        observed = f"{busy.count} extents, {busy.bytes} B, were busy"
        yield make_reason("xfs-busy", point, observed, busy.bytes, mount=point)
    if passed.bytes:
        observed = (
            f"{passed.count} free extents, {passed.bytes} B, were treated as outside the requested range"
        )
        yield make_reason("xfs-passes-over", point, observed, passed.bytes, mount=point)
    nothing = answer is not None and answer.claimed == 0 and not out
    if filesystem.kind == "ext4" and nothing:
        observed = f"{groups.count} block groups were searched, no extent was discarded"
        yield make_reason("ext4-already-trimmed", point, observed, mount=point)
    if queued.bytes > (out or 0):
        observed = f"{queued.count} ranges, {queued.bytes} B, were queued for later, {out or 0} B issued"
        yield make_reason("filesystem-trims-later", point, observed, mount=point)
    if filesystem.kind == "btrfs" and again.bytes:
        observed = f"up to {again.bytes} B of the sent bytes may have been sent before"
        yield make_reason("btrfs-discards-again", point, observed, mount=point)
    yield from find_seeds(filesystem)
    if filesystem.kind == "btrfs" and nothing:
        yield make_reason("filesystem-trims-later", point, "btrfs discarded nothing", mount=point)


def _explain_refusal(evidence: AuditEvidence, error: int) -> Iterator[Reason]:
    """Yield the causes of a FITRIM error, in a device or in the filesystem."""
    filesystem = evidence.before.filesystem
    assert filesystem
    point, said = filesystem.point, f"FITRIM: {errno.errorcode.get(error, error)}, {os.strerror(error)}"
    without = [layer for layer in evidence.before.layers if layer.limits.can_discard is False]
    if error in (errno.EOPNOTSUPP, errno.ENOTTY) and without:
        culprits = [_explain_zero_limit(evidence, layer, said) for layer in without]
        yield from {why.where: why for why in culprits}.values()
    elif error in (errno.EOPNOTSUPP, errno.ENOTTY):
        refusal = find_refusal(evidence.before) or make_reason("no-fitrim", point, "", mount=point)
        yield replace(refusal, observed="; ".join(filter(None, (said, refusal.observed))))
    elif error == errno.EINVAL and evidence.asked and evidence.asked.minlen:
        observed = f"{said}, with a minimum of {evidence.asked.minlen} B"
        yield make_reason("below-minimum", point, observed, mount=point)
    elif error in (errno.EROFS, errno.EPERM):
        refusing = [option for option in filesystem.options if option in _REFUSING_OPTIONS]
        blanks = {"option": refusing[0]} if refusing else {}
        yield make_reason("filesystem-refuses", point, said, None, mount=point, **blanks)


_REFUSING_OPTIONS = ("noload", "norecovery", "nologreplay")


def _explain_zero_limit(
    evidence: AuditEvidence, layer: Layer, observed: str, lost: int | None = None
) -> Reason:
    """Return why a layer accepts no discards, by its state after the trim. If lower layers have no discard
    support either, the reason names the lowest."""
    culprit = _find_later_state(evidence, layer)
    while lowers := find_unsupported_layers(evidence.after, culprit):
        culprit = lowers[0]
    zero = rules.explain_zero_limit(evidence.after, culprit)
    return replace(zero, observed=f"{observed}; {zero.observed}", lost_bytes=lost)


def _find_later_state(evidence: AuditEvidence, layer: Layer) -> Layer:
    """Return the layer's state after the trim, or before the trim if the layer has disappeared."""
    return evidence.after.find_layer(layer.device) or layer


# --- between two layers ---


def explain_vanished(
    evidence: AuditEvidence, layer: Layer, lost: int, errors: Mapping[int, Amount]
) -> Iterator[Reason]:
    """Yield why the filesystem's discards appeared in no block event."""
    now = _find_later_state(evidence, layer)
    if now.limits.max_bytes == 0:
        observed = f"{lost} B caused no block event"
        if layer.limits.max_bytes:
            observed += f"; discard_max_bytes was {layer.limits.max_bytes} before"
        yield _explain_zero_limit(evidence, layer, observed, lost)
        return
    yield from explain_trace_loss(evidence, layer, lost)


def explain_skipped_device(evidence: AuditEvidence, layer: Layer) -> Iterator[Reason]:
    """Yield a reason for a device without discard support in a multi-device filesystem."""
    filesystem = evidence.before.filesystem
    if filesystem and filesystem.kind == "btrfs" and len(filesystem.devices) > 1:
        observed = f"{layer.device} accepts no discards, so btrfs silently skips it"
        yield make_reason("btrfs-device-no-discards", layer.device, observed, disk=layer.device)
    elif filesystem and len(filesystem.devices) > 1:
        observed = f"one of {len(filesystem.devices)} {filesystem.kind} devices accepts no discards"
        yield _explain_zero_limit(evidence, layer, observed)


def explain_resync(evidence: AuditEvidence, layer: Layer) -> Iterator[Reason]:
    """Yield a reason if an array was resynchronizing before or after the trim and so wrote to its members."""
    arrays = [state.array for state in (layer, _find_later_state(evidence, layer))]
    doing = {array.sync_action for array in arrays if array} & WRITING_SYNC_ACTIONS
    if doing:
        observed = f"sync_action of {layer.device} is {' and '.join(sorted(filter(None, doing)))}"
        yield make_reason("array-writes", layer.device, observed, None, device=layer.device)


def explain_trace_loss(evidence: AuditEvidence, layer: Layer, lost: int) -> Iterator[Reason]:
    """Yield trace-lost if the kernel counted more completed discards than we saw, or if bios lost their
    sender because the tracer's bio map was full."""
    trace = evidence.trace
    counted = trace.stats.get(layer.device)
    ended = sum_flows(trace.select(Stage.DONE, disk=layer.device[:16])).bytes
    if counted and counted[1] > ended:
        unseen = min(lost, counted[1] - ended)
        observed = f"the kernel counted {counted[1]} B of discards, opwatch {ended} B"
        yield make_reason("trace-lost", layer.device, observed, unseen)
        return
    others = sum_flows(
        trace.select(Stage.DONE, disk=layer.device[:16], who=(SenderKind.KERNEL, SenderKind.OTHER))
    ).bytes
    if trace.loss.bios_full and others:
        observed = f"no room for {trace.loss.bios_full} bios; {others} B completed from unknown senders"
        yield make_reason("trace-lost", layer.device, observed, min(lost, others))


def count_passed_bytes(evidence: AuditEvidence, layer: Layer, members: Mapping[str, int]) -> int:
    """Return the bytes of a layer's own data passed to lower layers, without parity."""
    if layer.level in RAID456:
        stripes = _count_stripe_bytes(evidence, layer, members)
        kept = _count_kept_bytes(evidence, layer, members, stripes)
        return stripes - kept - _count_missed_bytes(evidence, layer, members, stripes)
    # A loop device on a block device turns discards into write zeroes, so that no discards arrive below.
    return 0 if layer.kind is Kind.LOOP else sum(members.values())


def _count_stripe_bytes(evidence: AuditEvidence, layer: Layer, members: Mapping[str, int]) -> int:
    """Return the data bytes of the whole stripes discarded on the members of a RAID 4, 5 or 6. Return 0 if
    the members got different amounts, which whole stripes cannot explain."""
    array = layer.array
    disks = (array and array.raid_disks) or 0
    parity = PARITY[layer.level or ""]
    # Spares, failed members and members without discard support get nothing.
    absent = (array.degraded or 0 if array else 0) + len(_find_unsupported_members(evidence, members))
    most = max(members.values(), default=0)
    alike = sum(got == most for got in members.values() if got)
    if not disks - absent - _count_failed_members(evidence, layer) <= alike <= disks - absent:
        return 0
    return most * (disks - parity)


def _count_failed_members(evidence: AuditEvidence, layer: Layer) -> int:
    """Return the number of members that failed during the trim. Such members got only the earlier
    discards."""
    missing = [
        state.array.degraded or 0 for state in (layer, _find_later_state(evidence, layer)) if state.array
    ]
    return max(0, missing[-1] - missing[0]) if missing else 0


def _count_kept_bytes(evidence: AuditEvidence, layer: Layer, members: Mapping[str, int], stripes: int) -> int:
    """Return the data bytes on members without discard support. Every member holds an equal share, because
    parity rotates over the members."""
    disks = layer.array.raid_disks if layer.array else None
    return stripes * len(_find_unsupported_members(evidence, members)) // disks if disks else 0


def _count_missed_bytes(
    evidence: AuditEvidence, layer: Layer, members: Mapping[str, int], stripes: int
) -> int:
    """Return the data bytes not sent to members after they failed during the trim."""
    disks = layer.array.raid_disks if layer.array else None
    if not disks or not stripes or not _count_failed_members(evidence, layer):
        return 0
    most, without = max(members.values()), _find_unsupported_members(evidence, members)
    missed = sum(most - got for name, got in members.items() if name not in without)
    return stripes * missed // (disks * most)


def _find_unsupported_members(evidence: AuditEvidence, members: Mapping[str, int]) -> list[str]:
    """Return the members without discard support, which got nothing."""
    known = {name: evidence.before.find_layer(name) for name, got in members.items() if not got}
    return [name for name, member in known.items() if member and member.limits.can_discard is False]


def explain_layer(
    evidence: AuditEvidence, layer: Layer, arrived: Amount, members: Mapping[str, int], lost: int
) -> Iterator[Reason]:
    """Yield why a layer did not pass on all accepted discards."""
    kept = find_observed_retentions(evidence, layer)
    if kept:
        yield kept[0].make_observed_reason(lost)
    elif layer.is_array:
        yield from _explain_array(evidence, layer, arrived, members, lost)
    elif layer.kind is Kind.THIN:
        yield from _explain_thin(evidence, layer, arrived, lost)


def find_observed_retentions(evidence: AuditEvidence, layer: Layer) -> list[RetentionCause]:
    """Return why a layer keeps discards, by its state before the trim or, if that shows nothing, after it."""
    return find_retentions(evidence.before, layer) or find_retentions(
        evidence.after, _find_later_state(evidence, layer)
    )


def _explain_array(
    evidence: AuditEvidence, layer: Layer, arrived: Amount, members: Mapping[str, int], lost: int
) -> Iterator[Reason]:
    level = layer.level or ""
    if level in RAID456:
        yield from _explain_stripes(evidence, layer, arrived, members, lost)
        return
    for name in _find_unsupported_members(evidence, members):
        share = min(arrived.bytes if level == "raid1" else lost, lost)
        yield _explain_unsupported_member(name, arrived, share)
        lost -= share
    # A member may have failed during the trim, for example by another process's write.
    array = _find_later_state(evidence, layer).array or layer.array
    missing = array.degraded if array and level in _MIRRORED else 0
    if array and missing and lost:
        # A missing member holds at most the bytes sent to the array (RAID 1), or the bytes on its mirrors.
        most = arrived.bytes if level == "raid1" else max(members.values(), default=0) * count_mirrors(layer)
        yield _explain_missing_member(evidence, layer, min(lost, missing * most))


def _explain_stripes(
    evidence: AuditEvidence, layer: Layer, arrived: Amount, members: Mapping[str, int], lost: int
) -> Iterator[Reason]:
    """Yield why the members of a parity array got fewer bytes than the array."""
    stripes = _count_stripe_bytes(evidence, layer, members)
    if not stripes and any(members.values()):
        return
    without = _find_unsupported_members(evidence, members) if stripes else []
    kept = _count_kept_bytes(evidence, layer, members, stripes)
    for place, name in enumerate(without):
        yield _explain_unsupported_member(
            name, arrived, kept * (place + 1) // len(without) - kept * place // len(without)
        )
    missed = _count_missed_bytes(evidence, layer, members, stripes)
    if missed:
        yield _explain_missing_member(evidence, layer, missed)
    if rest := lost - kept - missed:
        yield make_reason("raid456-partial-stripe", layer.device, f"{rest} B are outside whole stripes", rest)


def _explain_missing_member(evidence: AuditEvidence, layer: Layer, share: int) -> Reason:
    """Return the reason for missing or failed members, with their share of the loss."""
    array = _find_later_state(evidence, layer).array or layer.array
    filesystem = evidence.before.filesystem
    blanks = {"mount": filesystem.point} if filesystem else {}
    observed = f"{array.degraded} of {array.raid_disks} members are missing" if array else ""
    return make_reason("member-missing", layer.device, observed, share, **blanks)


def _explain_unsupported_member(name: str, arrived: Amount, share: int) -> Reason:
    """Return the reason for a member without discard support, with its share of the loss."""
    observed = f"{name} accepts no discards and received 0 B of {arrived.bytes} B"
    return make_reason("member-no-discards", name, observed, share, disk=name)


def _find_pool(evidence: AuditEvidence, layer: Layer) -> Layer | None:
    """Return a thin volume's pool."""
    pools = [lower for lower in evidence.before.find_lower_layers(layer) if lower.kind is Kind.THIN_POOL]
    return pools[0] if pools else None


def _explain_thin(evidence: AuditEvidence, layer: Layer, arrived: Amount, lost: int) -> Iterator[Reason]:
    """Yield why a thin volume passed on less: only whole, unshared chunks are passed on."""
    pool = _find_pool(evidence, layer)
    partial = min(lost, arrived.bytes - arrived.granule_bytes)
    if partial:
        observed = f"{partial} B at the ends of ranges are outside whole chunks"
        yield make_reason("thin-partial-chunk", layer.device, observed, partial)
    rest = lost - partial
    freed = _count_unmapped_bytes(evidence, layer, pool)
    if rest and freed is not None:
        passed = arrived.bytes - lost
        shared = max(0, min(rest, freed - passed))
        if shared:
            observed = f"{freed} B were freed, {passed} B passed on"
            yield make_reason(
                "thin-shared", layer.device, observed, shared, label=layer.label or layer.device
            )
        if rest > shared:
            observed = f"{rest - shared} B of whole chunks were not mapped; the device freed {freed} B"
            yield make_reason("thin-not-mapped", layer.device, observed, rest - shared)


def _count_unmapped_bytes(evidence: AuditEvidence, layer: Layer, pool: Layer | None) -> int | None:
    """Return the bytes unmapped in a thin volume, by its own or the pool's count; None if unknown."""
    then, now = (one.facts_as(ThinFacts).mapped_bytes for one in (layer, _find_later_state(evidence, layer)))
    if then is not None and now is not None:
        return then - now
    if pool:
        then, now = (
            one.facts_as(ThinPoolFacts).used_chunks for one in (pool, _find_later_state(evidence, pool))
        )
        chunk = pool.facts_as(ThinPoolFacts).chunk_bytes
        if then is not None and now is not None and chunk:
            return (then - now) * chunk
    return None


# --- the disk ---


def is_gone(evidence: AuditEvidence, layer: Layer) -> bool:
    """Return True if the device disappeared during the trim."""
    return evidence.after.find_layer(layer.device) is None


def explain_gone_device(layer: Layer, lost: int) -> Reason:
    """Return the reason for discards that did not complete because the device disappeared."""
    observed = f"{layer.device} was present before the trim, but not after it"
    return make_reason("device-gone", layer.device, observed, lost, device=layer.device)


def explain_failures(evidence: AuditEvidence, layer: Layer, status: int, amount: Amount) -> Iterator[Reason]:
    """Yield why discards completed with an error."""
    if is_gone(evidence, layer):
        yield explain_gone_device(layer, amount.bytes)
        return
    observed = f"{amount.count} requests, {amount.bytes} B, failed: {STATUS_NAMES.get(status, status)}"
    device, lost = layer.device, amount.bytes
    if layer.kind is Kind.LOOP:
        file = {"file": layer.facts_as(LoopFacts).backing_file or device}
        code = "loop-no-punch" if status == _NOT_SUPPORTED else "loop-file-sealed"
        yield make_reason(code, device, observed, lost, **file)
    elif layer.kind is Kind.THIN:
        kept = [one for one in find_observed_retentions(evidence, layer) if one.code == "thin-pool-read-only"]
        yield from (
            replace(one.make_observed_reason(lost), observed=f"{observed}; {one.words}") for one in kept
        )
    elif device.startswith("nvme"):
        yield make_reason(_nvme_code(layer, status), device, observed, lost, device=device)
    elif mode := _find_later_state(evidence, layer).facts_as(DiskFacts).provisioning_mode:
        code = "scsi-disabled" if mode == "disabled" else "scsi-refused"
        yield make_reason(code, device, f"{observed}; provisioning_mode {mode}", lost, device=device)


def _nvme_code(layer: Layer, status: int) -> str:
    """Return the cause of a failed NVMe discard. nvme_error_status() in the kernel has one status for all
    errors of its default case, write protection and sanitize included."""
    if status == _NOT_SUPPORTED:
        return "nvme-refused"
    return "nvme-locked" if status == _RESERVATION_CONFLICT or layer.read_only else "nvme-failed"


# libata's limit per command: 64 ranges of 65,535 sectors.
_ATA_LIMIT = 64 * 65_535 * 512


def explain_splits(layer: Layer, splits: Amount) -> Iterator[Reason]:
    """Yield a harmless reason if discards were split at the limit of an ATA command."""
    if splits.count and layer.facts_as(DiskFacts).ata_trim and layer.limits.max_bytes == _ATA_LIMIT:
        yield make_reason("ata-splits", layer.device, f"longer discards were split {splits.count} times")


def explain_rounding(layer: Layer, lost: int, shared: int) -> Iterator[Reason]:
    """Yield why a device cannot free all completed bytes: shared blocks and partial granules."""
    if shared:
        loop = layer.facts_as(LoopFacts)
        observed = f"its file lost {shared} B that other files on {loop.backing_filesystem} still use"
        blanks = {"file": loop.backing_file or layer.device}
        yield make_reason("loop-file-shared", layer.device, observed, shared, **blanks)
    if lost:
        yield _explain_partial_granules(layer, lost)


def _explain_partial_granules(layer: Layer, lost: int) -> Reason:
    """Return the reason for bytes outside the device's whole granules."""
    granule = layer.discard_granule
    assert granule
    observed = f"{lost} B are outside whole granules of {granule[0]} B"
    loop = layer.facts_as(LoopFacts)
    if layer.kind is Kind.LOOP and not loop.simulated_drive:
        file = loop.backing_file or "its file"
        return make_reason("loop-partial-block", layer.device, observed, lost, file=file)
    hidden = (layer.facts_as(DiskFacts).deallocate_bytes or 0) > (layer.limits.granularity or 0)
    code = "nvme-granularity-hidden" if hidden else "device-rounds"
    return make_reason(code, layer.device, observed, lost, device=layer.device)
