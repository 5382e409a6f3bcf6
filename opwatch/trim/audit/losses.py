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
from opwatch.trim.check.filesystem_rules import find_refusal
from opwatch.trim.filesystems.base import FilesystemTrim
from opwatch.trim.filesystems.kinds import find_filesystem
from opwatch.trim.layers import md
from opwatch.trim.layers.base import LayerTrim, RetentionCause
from opwatch.trim.layers.discard_path import find_retentions, find_unsupported_layers
from opwatch.trim.layers.kinds import find_granule, find_kind
from opwatch.trim.layers.loop import LoopFacts
from opwatch.trim.stack.causes import Reason, make_reason
from opwatch.trim.stack.layers import Layer

FILESYSTEM_STAGES = (
    Stage.FS_SMALL,
    Stage.FS_BUSY,
    Stage.FS_QUEUED,
    Stage.FS_GROUP,
    Stage.BIO_REPEATED,
    Stage.FS_OUTSIDE,
)


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
    entry for each of FILESYSTEM_STAGES."""
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
    if queued.bytes > (out or 0):
        observed = f"{queued.count} ranges, {queued.bytes} B, were queued for later, {out or 0} B issued"
        yield make_reason("filesystem-trims-later", point, observed, mount=point)
    trim = FilesystemTrim(nothing, groups.count, again.bytes)
    yield from find_filesystem(filesystem.kind).explain_trim(filesystem, trim)


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
    if not filesystem or len(filesystem.devices) < 2:
        return
    if why := find_filesystem(filesystem.kind).explain_skipped_device(filesystem, layer.device):
        yield why
    else:
        observed = f"one of {len(filesystem.devices)} {filesystem.kind} devices accepts no discards"
        yield _explain_zero_limit(evidence, layer, observed)


def explain_resync(evidence: AuditEvidence, layer: Layer) -> Iterator[Reason]:
    """Yield a reason if an array was resynchronizing before or after the trim and so wrote to its members."""
    yield from md.explain_resync(layer, _find_later_state(evidence, layer))


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


def describe_trim(
    evidence: AuditEvidence, layer: Layer, arrived: Amount, members: Mapping[str, int]
) -> LayerTrim:
    """Return a layer in this trim, for its kind."""
    before, after = evidence.before, evidence.after
    return LayerTrim(before, after, layer, arrived.bytes, arrived.granule_bytes, members)


def explain_layer(evidence: AuditEvidence, trim: LayerTrim, lost: int) -> Iterator[Reason]:
    """Yield why a layer did not pass on all accepted discards."""
    if kept := find_observed_retentions(evidence, trim.layer):
        yield kept[0].make_observed_reason(lost)
    else:
        yield from find_kind(trim.layer).explain_loss(trim, lost)


def find_observed_retentions(evidence: AuditEvidence, layer: Layer) -> list[RetentionCause]:
    """Return why a layer keeps discards, by its state before the trim or, if that shows nothing, after it."""
    return find_retentions(evidence.before, layer) or find_retentions(
        evidence.after, _find_later_state(evidence, layer)
    )


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
    kept = find_observed_retentions(evidence, layer)
    trim = describe_trim(evidence, layer, amount, {})
    yield from find_kind(layer).explain_failure(trim, status, observed, kept)


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
    granule = find_granule(layer)
    assert granule
    observed = f"{lost} B are outside whole granules of {granule[0]} B"
    if find_kind(layer).hides_granule(layer):
        return make_reason("nvme-granularity-hidden", layer.device, observed, lost, device=layer.device)
    return find_kind(layer).explain_rounding(layer, layer.device, observed, lost)
