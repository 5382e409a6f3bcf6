"""Build the ledger of a trim: bytes into and out of each layer, with the causes of every loss. Pure."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from opwatch.trace.ops import STATUS_NAMES
from opwatch.trim.audit import losses, verdicts
from opwatch.trim.audit.accounts import judge_accounts
from opwatch.trim.audit.audit import Audit, AuditEvidence, LeafProof, Row, RowKind, Verdict
from opwatch.trim.audit.claim_text import describe_claim
from opwatch.trim.audit.claims import find_claims, sum_claimed_bytes
from opwatch.trim.audit.commands import list_commands
from opwatch.trim.audit.flow import Amount, Origin, SenderKind, Stage, sum_flows
from opwatch.trim.audit.other_senders import (
    compute_our_share,
    count_rounded_bytes,
    explain_other_senders,
    find_other_origins,
)
from opwatch.trim.audit.proof import prove_disks as prove
from opwatch.trim.filesystems.kinds import find_filesystem
from opwatch.trim.layers.discard_path import find_receivers, find_target_disks
from opwatch.trim.layers.kinds import find_granule, find_kind
from opwatch.trim.stack.causes import Reason
from opwatch.trim.stack.layers import Layer, find_changes

# FITRIM returns these errors before scanning any block group.
_EARLY_ERRORS = (errno.ENOTTY, errno.EOPNOTSUPP, errno.EROFS, errno.EPERM, errno.EINVAL)


class LedgerBuilder:
    """Walks an audit's stack from the top to the disks."""

    def __init__(self, evidence: AuditEvidence) -> None:
        self.evidence = evidence
        self.trace = evidence.trace
        self.stack = evidence.before
        self._followed = evidence.answer is not None
        self._senders = self._find_senders()

    def build_result(self, subject: str) -> Audit:
        """Return the audit result with the complete ledger."""
        tops = self.stack.find_tops()
        filesystem = self._make_filesystem_row(tops)
        rows = [filesystem] if filesystem else []
        given = filesystem.bytes_out if filesystem and len(tops) == 1 else None
        for layer in self.stack.layers:
            rows.append(self._make_layer_row(layer, given if layer in tops else None))
        rows += [row for leaf in self.find_leaves() for row in self._make_granule_rows(leaf)]
        reached = self.sum_reached_bytes()
        sent = self._sum_sent(filesystem, tops)
        proofs = prove(self.evidence, verdicts.find_count_contradiction(self.evidence, reached))
        unexplained = verdicts.count_unexplained_bytes(rows, sent, reached)
        verdict = verdicts.decide_verdict(self.evidence, rows, sent, reached, unexplained, proofs)
        verdict, causes = verdicts.recheck_nothing_left(verdict, self.stack)
        answer = self.evidence.answer
        others_claims = () if answer else find_claims(self.trace, self.stack)
        return Audit(
            subject=subject,
            verdict=verdict,
            claimed_bytes=answer.claimed if answer else sum_claimed_bytes(others_claims),
            claim=describe_claim(self.evidence, others_claims, sent),
            reached_bytes=reached,
            rows=tuple(rows),
            unexplained_bytes=unexplained,
            evidence=self.evidence,
            reasons=(
                *causes,
                *self._find_doubts(verdict, proofs),
                *explain_other_senders(self.stack, self._find_other_senders()),
            ),
            notes=tuple(self._list_notes()),
            changes=tuple(find_changes(self.evidence.before, self.evidence.after)),
            claims=others_claims,
            counters=judge_accounts(self.evidence.accounts, self.trace),
            proofs=proofs,
        )

    def _find_doubts(self, verdict: Verdict, proofs: Sequence[LeafProof]) -> tuple[Reason, ...]:
        ended = [leaf for leaf in self.find_leaves() if self._sum_completed(leaf, 0).bytes]
        return verdicts.find_doubts(self.evidence, verdict, ended, proofs)

    def _find_other_senders(self) -> list[Origin]:
        """Return other senders' discards on this stack's devices. Empty in a watch, which counts all
        senders."""
        return find_other_origins(self.trace, self.stack, self._senders) if self._followed else []

    def find_leaves(self) -> list[Layer]:
        return find_target_disks(self.stack)

    def sum_reached_bytes(self) -> int:
        """Return the freeable bytes on the disks: completed, in whole granules, not shared with other
        files."""
        return sum(
            self._sum_completed(leaf, 0).granule_bytes - self._count_shared_bytes(leaf)
            for leaf in self.find_leaves()
        )

    def _count_shared_bytes(self, leaf: Layer) -> int:
        """Return the bytes unmapped from a loop device's file, but still allocated to other files."""
        file = self.evidence.files.get(leaf.device)
        return min(file.shared_bytes, self._sum_completed(leaf, 0).granule_bytes) if file else 0

    def _sum_sent(self, filesystem: Row | None, tops: list[Layer]) -> int:
        """Return the bytes sent by the filesystem; for a bare device, the bytes sent to the device."""
        if filesystem and filesystem.bytes_out is not None:
            return filesystem.bytes_out
        return sum(self._sum_arrived(top).bytes for top in tops)

    # --- senders ---

    def _find_senders(self) -> dict[str, tuple[SenderKind, ...]]:
        """Return the counted senders by device: our process, and kernel threads where a filesystem or layer
        issues discards from a thread."""
        ours: tuple[SenderKind, ...] = (SenderKind.FOLLOWED,) if self._followed else tuple(SenderKind)
        kind = find_filesystem(self.stack.filesystem.kind if self.stack.filesystem else "")
        if kind.is_threaded:
            ours = (*ours, SenderKind.KERNEL)
        elif kind.is_user_space:
            # The FUSE server issues the discards, and no other process uses its device.
            ours = tuple(SenderKind)
        senders = {layer.device: ours for layer in self.stack.find_tops()}
        for layer in self.stack.layers:
            mine = senders.get(layer.device, ours)
            is_threaded = find_kind(layer).is_threaded(layer)
            below = tuple(dict.fromkeys((*mine, SenderKind.KERNEL))) if is_threaded else mine
            for name in layer.below:
                senders[name] = tuple(dict.fromkeys((*senders.get(name, ()), *below)))
        return senders

    def _get_senders(self, layer: Layer) -> tuple[SenderKind, ...]:
        return self._senders[layer.device]

    # --- counters of a layer ---

    def _find_dev_numbers(self, layer: Layer) -> set[str]:
        """Return the device numbers in the events of a layer's bios: the layer's number, and the numbers of
        its partitions in the stack."""
        over = [upper for upper in self.stack.layers if layer.device in upper.below]
        parts = {upper.dev for upper in over if find_kind(upper).is_part_of_disk}
        return {layer.dev} | parts

    def _find_disk(self, layer: Layer) -> str:
        return layer.below[0] if find_kind(layer).is_part_of_disk else layer.device

    def _sum_stage(
        self,
        layer: Layer,
        stage: Stage,
        op: str = "discard",
        status: int | None = None,
        who: Sequence[SenderKind] | None = None,
    ) -> Amount:
        """Sum a stage's counters on a layer, over `who` or, by default, the layer's counted senders."""
        # A hidden NVMe path has no number of its own, and its requests carry the multipath head's number.
        hidden = layer.dev == "0:0"
        flows = self.trace.select(
            stage,
            disk=self._find_disk(layer)[:16],
            devs=None if hidden else self._find_dev_numbers(layer),
            op=op,
            who=self._get_senders(layer) if who is None else who,
        )
        return sum_flows(flow for flow in flows if status is None or flow.status == status)

    def _sum_arrived(self, layer: Layer, op: str = "discard") -> Amount:
        """Return the bios that arrived at a layer. An NVMe path gets the multipath head's bios by remapping,
        without a block_bio_queue event."""
        above = [find_kind(upper) for upper in self.stack.layers if layer.device in upper.below]
        if any(upper.has_hidden_paths for upper in above):
            return self._sum_stage(layer, Stage.REMAPPED, op)
        bios = self._sum_stage(layer, Stage.BIO, op)
        if not bios.count and any(upper.clones_requests for upper in above):
            # Request-based multipath clones requests, so no bio event precedes block_rq_issue.
            return self._sum_issued(layer, op)
        return bios

    def _sum_passed_bytes(self, layer: Layer, member: Layer) -> int:
        """Return the bytes passed from a layer to a lower layer. If several layers share the lower layer,
        only block_bio_remap events distinguish their shares; a layer without such events gets the
        remainder."""
        arrived = self._sum_arrived(member, op=find_kind(layer).lower_operation).bytes
        uppers = [upper for upper in self.stack.layers if member in find_receivers(self.stack, upper)]
        shares = {upper.device: self._sum_remapped_bytes(upper, member) for upper in uppers}
        if len(uppers) == 1 or not any(shares.values()):
            return arrived
        return shares[layer.device] or max(0, arrived - sum(shares.values()))

    def _sum_remapped_bytes(self, layer: Layer, member: Layer) -> int:
        """Return the discard bytes remapped from a layer to a lower layer, by block_bio_remap events."""
        flows = self.trace.select(
            Stage.REMAPPED_FROM,
            disk=self._find_disk(member)[:16],
            devs=[layer.dev],
            who=self._get_senders(member),
        )
        return sum_flows(flows).bytes

    def _sum_issued(self, layer: Layer, op: str = "discard") -> Amount:
        """Return the requests issued to the driver, less the requeued requests."""
        issued, back = (self._sum_stage(layer, stage, op) for stage in (Stage.ISSUED, Stage.REQUEUED))
        return replace(issued, count=issued.count - back.count, bytes=issued.bytes - back.bytes)

    def _sum_completed(self, layer: Layer, status: int) -> Amount:
        """Return a layer's completed discards with a given status."""
        requests = self._sum_stage(layer, Stage.DONE, status=status)
        bios = self._sum_stage(layer, Stage.BIO_DONE, status=status)
        if requests.count or self._sum_stage(layer, Stage.ISSUED).count:
            # Discards with an error before they become a request complete as bios.
            return requests.plus(bios) if status else requests
        # A bio-based driver gets each bio unchanged, so the granules counted at submission apply.
        sent = self._sum_stage(layer, Stage.BIO)
        whole = sent.granule_bytes if bios.bytes == sent.bytes else bios.bytes
        return replace(bios, granule_bytes=whole)

    def _sum_other_bytes(self, layer: Layer) -> int:
        """Return the bytes sent to a layer by other senders."""
        others = [who for who in SenderKind if who not in self._get_senders(layer)]
        return self._sum_stage(layer, Stage.BIO, who=others).bytes

    def _sum_errors(self, layer: Layer) -> dict[int, Amount]:
        """Return a layer's failed discards by status."""
        stages = (Stage.DONE, Stage.BIO_DONE)
        statuses = {
            flow.status for stage in stages for flow in self.trace.select(stage, disk=layer.device[:16])
        }
        amounts = {status: self._sum_completed(layer, status) for status in sorted(statuses - {0})}
        return {status: amount for status, amount in amounts.items() if amount.bytes}

    # --- rows ---

    def _make_filesystem_row(self, tops: list[Layer]) -> Row | None:
        """Return the filesystem's row: free space found and free space discarded. None for a bare device."""
        filesystem = self.stack.filesystem
        if filesystem is None:
            return None
        extents, unknown = self._find_extents(tops)
        devs = [filesystem.dev, *(top.dev for top in tops)]
        who = self._senders[tops[0].device] if tops else tuple(SenderKind)
        amounts = losses.sum_stages(self.evidence, devs, who, is_reached=bool(self.sum_reached_bytes()))
        out = extents.bytes if extents is not None else None
        left_out = amounts[Stage.FS_BUSY].bytes + amounts[Stage.FS_OUTSIDE].bytes
        return Row(
            RowKind.FILESYSTEM,
            "filesystem",
            filesystem.point,
            None if out is None else out + left_out,
            out,
            requests=extents.count if extents else None,
            reasons=tuple(losses.explain_filesystem(self.evidence, out, amounts)),
            unknown=unknown,
            note=f"{filesystem.kind}; the number counts its extents",
        )

    def _find_extents(self, tops: list[Layer]) -> tuple[Amount | None, str | None]:
        """Return (extents passed to the block layer, None), or (None, the reason) if not traced."""
        filesystem, answer = self.stack.filesystem, self.evidence.answer
        assert filesystem
        if not tops or (answer and answer.error in _EARLY_ERRORS):
            return Amount(), None
        kind = find_filesystem(filesystem.kind)
        if untraced := kind.explain_untraced(len(tops)):
            return None, untraced
        program = kind.extent_program
        who = self._senders[tops[0].device]
        if program and program not in self.trace.absent:
            devs = [filesystem.dev, *(top.dev for top in tops)]
            extents = sum_flows(self.trace.select(Stage.FS_EXTENT, devs=devs, who=who))
            return self._cap_repeats(extents, tops), None
        if "discard_asked" not in self.trace.absent:
            flows = self.trace.select(Stage.REQUESTED, devs=[top.dev for top in tops], who=who)
            return sum_flows(flows), None
        return None, (
            f"{filesystem.kind} has no tracepoints for its extents, and this kernel allows no function "
            "tracing: losses before the block layer's first event are not visible"
        )

    def _cap_repeats(self, extents: Amount, tops: list[Layer]) -> Amount:
        """Return the extents without those that the filesystem reports again: at most the arrived bytes. This
        hides no loss, because devices with discard support get every bio."""
        filesystem = self.stack.filesystem
        states = [
            state for top in tops for state in (top, self.evidence.after.find_layer(top.device)) if state
        ]
        if (
            not filesystem
            or not find_filesystem(filesystem.kind).repeats_extents
            or not all(state.limits.can_discard for state in states)
        ):
            return extents
        sent = sum(self._sum_arrived(top).bytes for top in tops)
        return replace(extents, bytes=min(extents.bytes, sent))

    def _make_layer_row(self, layer: Layer, given: int | None) -> Row:
        arrived = self._sum_arrived(layer)
        came = arrived.bytes if given is None else given
        reasons: list[Reason] = []
        if came > arrived.bytes:
            vanished = came - arrived.bytes
            reasons += losses.explain_vanished(self.evidence, layer, vanished, self._sum_errors(layer))
        if layer in self.stack.find_tops() and layer.limits.can_discard is False and not arrived.bytes:
            reasons += losses.explain_skipped_device(self.evidence, layer)
        if layer.below:
            return self._make_stacked_row(layer, came, arrived, reasons)
        return self._make_leaf_row(layer, came, arrived, reasons)

    def _make_stacked_row(self, layer: Layer, came: int, arrived: Amount, reasons: list[Reason]) -> Row:
        kind = find_kind(layer)
        members = {
            member.device: self._sum_passed_bytes(layer, member)
            for member in find_receivers(self.stack, layer)
        }
        if kind.is_part_of_disk:
            members = {layer.below[0]: arrived.bytes}
        failed = self._sum_errors(layer)
        for status, amount in failed.items():
            reasons += losses.explain_failures(self.evidence, layer, status, amount)
        times = kind.count_copies(layer, len(members))
        trim = losses.describe_trim(self.evidence, layer, arrived, members)
        out = sum(members.values())
        sent_beside = self._sum_other_bytes(layer)
        handed_on = kind.count_passed_bytes(trim)
        passed = compute_our_share(layer, arrived.bytes, sent_beside, handed_on)
        # A failing target may pass on a part before the whole discard fails, so failed bytes still count
        # here.
        on_purpose = any(kept.fails for kept in losses.find_observed_retentions(self.evidence, layer))
        lost = (arrived.bytes - (0 if on_purpose else _sum_bytes(failed))) * times - passed
        lost = max(lost, count_rounded_bytes(layer, arrived, sent_beside))
        if lost > 0:
            reasons += losses.explain_layer(self.evidence, trim, lost)
        reasons += losses.explain_resync(self.evidence, layer)
        explained = sum(why.lost_bytes or 0 for why in reasons)
        return Row(
            kind=RowKind.LAYER,
            layer=layer.target or layer.kind.value,
            device=layer.device,
            bytes_in=came,
            bytes_out=out,
            bytes_ok=self._sum_completed_bytes(layer),
            requests=arrived.count,
            errors=_name_errors(failed),
            reasons=tuple(reasons),
            unexplained_bytes=max(0, came * times - passed - explained),
            note=kind.describe_out(layer, times),
        )

    def _sum_completed_bytes(self, layer: Layer) -> int | None:
        """Return the bytes completed without an error on a stacked layer; None without completion events."""
        for stage in (Stage.DONE, Stage.BIO_DONE):
            ended = self._sum_stage(layer, stage, status=0)
            if ended.count:
                return ended.bytes
        return None

    def _make_leaf_row(self, layer: Layer, came: int, arrived: Amount, reasons: list[Reason]) -> Row:
        by_request = self._sum_stage(layer, Stage.ISSUED).count > 0
        sent = self._sum_issued(layer) if by_request else arrived
        ok, failed = self._sum_completed(layer, 0), self._sum_errors(layer)
        for status, amount in failed.items():
            reasons += losses.explain_failures(self.evidence, layer, status, amount)
        reasons += find_kind(layer).explain_splits(layer, self._sum_stage(layer, Stage.SPLIT).count)
        explained = sum(why.lost_bytes or 0 for why in reasons)
        if came > ok.bytes + explained and losses.is_gone(self.evidence, layer):
            reasons.append(losses.explain_gone_device(layer, came - ok.bytes - explained))
        elif came > ok.bytes + explained:
            reasons += losses.explain_trace_loss(self.evidence, layer, came - ok.bytes - explained)
        explained = sum(why.lost_bytes or 0 for why in reasons)
        return Row(
            kind=RowKind.LAYER,
            layer=layer.kind.value,
            device=layer.device,
            bytes_in=came,
            bytes_out=sent.bytes,
            bytes_ok=ok.bytes,
            requests=sent.count,
            errors=_name_errors(failed),
            reasons=tuple(reasons),
            unexplained_bytes=max(0, came - ok.bytes - explained),
            commands=tuple(list_commands(self.trace, layer.device[:16])),
        )

    def _make_granule_rows(self, leaf: Layer) -> Iterator[Row]:
        """Yield a row of the freeable part of the completed bytes: whole granules."""
        ok = self._sum_completed(leaf, 0)
        if not ok.bytes:
            return
        shared = self._count_shared_bytes(leaf)
        granule = find_granule(leaf)
        yield Row(
            RowKind.GRANULES,
            "granules",
            leaf.device,
            ok.bytes,
            ok.granule_bytes - shared,
            requests=ok.ranges,
            reasons=tuple(losses.explain_rounding(leaf, ok.bytes - ok.granule_bytes, shared)),
            note=f"whole granules of {granule[0]} B; the number counts ranges sent to the device"
            if granule
            else "the device reports no granularity: every byte counts",
        )

    def _list_notes(self) -> Iterator[str]:
        for other in self._find_other_senders():
            yield (
                f"not counted: {other.bytes} B of {other.op} on {other.disk} ({other.dev}) by {other.comm}, "
                f"cgroup {other.cgroup}"
            )
        if unseen := verdicts.describe_unproven_devices(self.evidence):
            yield unseen
        if not self.evidence.settled:
            yield "discards were still in flight at the end of the wait"
        lost = {name: count for name, count in self.trace.loss._asdict().items() if count}
        if lost or self.trace.misses:
            parts = [f"{name} {count}" for name, count in lost.items()]
            if self.trace.misses:
                parts.append(f"program runs skipped by the kernel {self.trace.misses}")
            yield "not counted: " + ", ".join(parts)


def _sum_bytes(amounts: Mapping[int, Amount]) -> int:
    return sum(amount.bytes for amount in amounts.values())


def _name_errors(failed: Mapping[int, Amount]) -> dict[str, int]:
    return {STATUS_NAMES.get(status, f"status {status}"): amount.bytes for status, amount in failed.items()}


def build_audit(evidence: AuditEvidence, subject: str) -> Audit:
    """Return the audit result of a trim."""
    return LedgerBuilder(evidence).build_result(subject)


def is_contradicted(evidence: AuditEvidence) -> bool:
    """Return True if a drive's in-use count contradicts the completed discards."""
    return (
        verdicts.find_count_contradiction(evidence, LedgerBuilder(evidence).sum_reached_bytes()) is not None
    )
