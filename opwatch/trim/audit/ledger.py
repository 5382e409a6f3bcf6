"""Build the ledger of a trim: bytes into and out of each layer, with the causes of every loss. Pure."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from opwatch.trace.ops import STATUS_NAMES
from opwatch.trim.audit import losses, verdicts
from opwatch.trim.audit.accounts import judge_all
from opwatch.trim.audit.audit import Audit, AuditEvidence, LeafProof, Row, RowKind, Verdict
from opwatch.trim.audit.claim_words import claim
from opwatch.trim.audit.claims import claims_of, total_claimed
from opwatch.trim.audit.commands import commands_of
from opwatch.trim.audit.flow import Amount, Origin, Stage, Who, total
from opwatch.trim.audit.others import beside, cut_off, others_of, share_of_ours
from opwatch.trim.audit.proof import proofs as prove
from opwatch.trim.stack.causes import Reason
from opwatch.trim.stack.layers import Kind, Layer, changes
from opwatch.trim.stack.passage import RAID456, copies, leaves_of, lower_of, op_below
from opwatch.trim.stack.threads import is_threaded

# These filesystems issue FITRIM's discards from their own kernel thread.
_THREADED_FILESYSTEMS = ("f2fs", "bcachefs")
# FITRIM returns these errors before scanning any block group.
_BEFORE_ANYTHING = (errno.ENOTTY, errno.EOPNOTSUPP, errno.EROFS, errno.EPERM, errno.EINVAL)
_SAYS_EXTENTS = {"ext4": "discard_ext4_extent", "xfs": "discard_xfs_extent", "f2fs": "discard_f2fs_extent"}


class Walker:
    """Walks an audit's stack from the top to the disks."""

    def __init__(self, evidence: AuditEvidence) -> None:
        self.evidence = evidence
        self.trace = evidence.trace
        self.stack = evidence.before
        self._followed = evidence.answer is not None
        self._senders = self._senders_by_layer()

    def audit(self, subject: str) -> Audit:
        """Return the audit result with the complete ledger."""
        tops = self.stack.tops()
        filesystem = self._filesystem_row(tops)
        rows = [filesystem] if filesystem else []
        given = filesystem.bytes_out if filesystem and len(tops) == 1 else None
        for layer in self.stack.layers:
            rows.append(self._layer_row(layer, given if layer in tops else None))
        rows += [row for leaf in self.leaves() for row in self._granule_rows(leaf)]
        reached = self.reached()
        sent = self._sent(filesystem, tops)
        proofs = prove(self.evidence, verdicts.still_counted(self.evidence, reached))
        unexplained = verdicts.unexplained_bytes(rows, sent, reached)
        verdict = verdicts.verdict(self.evidence, rows, sent, reached, unexplained, proofs)
        verdict, causes = verdicts.unless_the_stack_stops(verdict, self.stack)
        answer = self.evidence.answer
        others_claims = () if answer else claims_of(self.trace, self.stack)
        return Audit(
            subject=subject,
            verdict=verdict,
            claimed_bytes=answer.claimed if answer else total_claimed(others_claims),
            claim=claim(self.evidence, others_claims, sent),
            reached_bytes=reached,
            rows=tuple(rows),
            unexplained_bytes=unexplained,
            evidence=self.evidence,
            reasons=(*causes, *self._general(verdict, proofs), *beside(self.stack, self._others())),
            notes=tuple(self._notes()),
            changes=tuple(changes(self.evidence.before, self.evidence.after)),
            claims=others_claims,
            counters=judge_all(self.evidence.accounts, self.trace),
            proofs=proofs,
        )

    def _general(self, verdict: Verdict, proofs: Sequence[LeafProof]) -> tuple[Reason, ...]:
        ended = [leaf for leaf in self.leaves() if self._done(leaf, 0).bytes]
        return verdicts.general(self.evidence, verdict, ended, proofs)

    def _others(self) -> list[Origin]:
        """Return other senders' discards on this stack's devices. Empty in a watch, which counts all
        senders."""
        return others_of(self.trace, self.stack, self._senders) if self._followed else []

    def leaves(self) -> list[Layer]:
        return leaves_of(self.stack)

    def reached(self) -> int:
        """Return the freeable bytes on the disks: completed, in whole granules, not shared with other
        files."""
        return sum(self._done(leaf, 0).granule_bytes - self._shared(leaf) for leaf in self.leaves())

    def _shared(self, leaf: Layer) -> int:
        """Return the bytes unmapped from a loop device's file, but still allocated to other files."""
        file = self.evidence.files.get(leaf.device)
        return min(file.shared_bytes, self._done(leaf, 0).granule_bytes) if file else 0

    def _sent(self, filesystem: Row | None, tops: list[Layer]) -> int:
        """Return the bytes sent by the filesystem; for a bare device, the bytes sent to the device."""
        if filesystem and filesystem.bytes_out is not None:
            return filesystem.bytes_out
        return sum(self._arrived(top).bytes for top in tops)

    # --- senders ---

    def _senders_by_layer(self) -> dict[str, tuple[Who, ...]]:
        """Return the counted senders by device: our process, and kernel threads where a filesystem or layer
        issues discards from a thread."""
        ours: tuple[Who, ...] = (Who.OURS,) if self._followed else tuple(Who)
        kind = self.stack.filesystem.kind if self.stack.filesystem else ""
        if kind in _THREADED_FILESYSTEMS:
            ours = (*ours, Who.KERNEL)
        elif kind.startswith("fuse"):
            # The FUSE server issues the discards, and no other process uses its device.
            ours = tuple(Who)
        senders = {layer.device: ours for layer in self.stack.tops()}
        for layer in self.stack.layers:
            mine = senders.get(layer.device, ours)
            below = tuple(dict.fromkeys((*mine, Who.KERNEL))) if is_threaded(layer) else mine
            for name in layer.below:
                senders[name] = tuple(dict.fromkeys((*senders.get(name, ()), *below)))
        return senders

    def _who(self, layer: Layer) -> tuple[Who, ...]:
        return self._senders[layer.device]

    # --- counters of a layer ---

    def _devs(self, layer: Layer) -> set[str]:
        """Return the device numbers in the events of a layer's bios: the layer's number, and the numbers of
        its partitions in the stack."""
        over = [upper for upper in self.stack.layers if layer.device in upper.below]
        parts = {upper.dev for upper in over if upper.kind is Kind.PARTITION}
        return {layer.dev} | parts

    def _disk(self, layer: Layer) -> str:
        return layer.below[0] if layer.kind is Kind.PARTITION else layer.device

    def _select(
        self,
        layer: Layer,
        stage: Stage,
        op: str = "discard",
        status: int | None = None,
        who: Sequence[Who] | None = None,
    ) -> Amount:
        """Sum a stage's counters on a layer, over `who` or, by default, the layer's counted senders."""
        # A hidden NVMe path has no number of its own, and its requests carry the multipath head's number.
        hidden = layer.dev == "0:0"
        flows = self.trace.select(
            stage,
            disk=self._disk(layer)[:16],
            devs=None if hidden else self._devs(layer),
            op=op,
            who=self._who(layer) if who is None else who,
        )
        return total(flow for flow in flows if status is None or flow.status == status)

    def _arrived(self, layer: Layer, op: str = "discard") -> Amount:
        """Return the bios that arrived at a layer. An NVMe path gets the multipath head's bios by remapping,
        without a block_bio_queue event."""
        above = [upper for upper in self.stack.layers if layer.device in upper.below]
        if any(upper.kind is Kind.MULTIPATH for upper in above):
            return self._select(layer, Stage.REMAPPED, op)
        bios = self._select(layer, Stage.BIO, op)
        if not bios.count and any(upper.target == "multipath" for upper in above):
            # Request-based multipath clones requests, so no bio event precedes block_rq_issue.
            return self._issued(layer, op)
        return bios

    def _handed_on(self, layer: Layer, member: Layer) -> int:
        """Return the bytes passed from a layer to a lower layer. If several layers share the lower layer,
        only block_bio_remap events distinguish their shares; a layer without such events gets the
        remainder."""
        arrived = self._arrived(member, op=op_below(layer)).bytes
        uppers = [upper for upper in self.stack.layers if member in lower_of(self.stack, upper)]
        shares = {upper.device: self._remapped(upper, member) for upper in uppers}
        if len(uppers) == 1 or not any(shares.values()):
            return arrived
        return shares[layer.device] or max(0, arrived - sum(shares.values()))

    def _remapped(self, layer: Layer, member: Layer) -> int:
        """Return the discard bytes remapped from a layer to a lower layer, by block_bio_remap events."""
        flows = self.trace.select(
            Stage.HANDED, disk=self._disk(member)[:16], devs=[layer.dev], who=self._who(member)
        )
        return total(flows).bytes

    def _issued(self, layer: Layer, op: str = "discard") -> Amount:
        """Return the requests issued to the driver, less the requeued requests."""
        issued, back = (self._select(layer, stage, op) for stage in (Stage.ISSUED, Stage.REQUEUED))
        return replace(issued, count=issued.count - back.count, bytes=issued.bytes - back.bytes)

    def _done(self, layer: Layer, status: int) -> Amount:
        """Return a layer's completed discards with a given status."""
        requests = self._select(layer, Stage.DONE, status=status)
        bios = self._select(layer, Stage.BIO_DONE, status=status)
        if requests.count or self._select(layer, Stage.ISSUED).count:
            # Discards with an error before they become a request complete as bios.
            return requests.plus(bios) if status else requests
        # A bio-based driver gets each bio unchanged, so the granules counted at submission apply.
        sent = self._select(layer, Stage.BIO)
        whole = sent.granule_bytes if bios.bytes == sent.bytes else bios.bytes
        return replace(bios, granule_bytes=whole)

    def _sent_beside(self, layer: Layer) -> int:
        """Return the bytes sent to a layer by other senders."""
        others = [who for who in Who if who not in self._who(layer)]
        return self._select(layer, Stage.BIO, who=others).bytes

    def _errors(self, layer: Layer) -> dict[int, Amount]:
        """Return a layer's failed discards by status."""
        stages = (Stage.DONE, Stage.BIO_DONE)
        statuses = {
            flow.status for stage in stages for flow in self.trace.select(stage, disk=layer.device[:16])
        }
        amounts = {status: self._done(layer, status) for status in sorted(statuses - {0})}
        return {status: amount for status, amount in amounts.items() if amount.bytes}

    # --- rows ---

    def _filesystem_row(self, tops: list[Layer]) -> Row | None:
        """Return the filesystem's row: free space found and free space discarded. None for a bare device."""
        filesystem = self.stack.filesystem
        if filesystem is None:
            return None
        extents, unknown = self._extents(tops)
        devs = [filesystem.dev, *(top.dev for top in tops)]
        who = self._senders[tops[0].device] if tops else tuple(Who)
        amounts = losses.amounts(self.evidence, devs, who, is_reached=bool(self.reached()))
        out = extents.bytes if extents is not None else None
        left_out = amounts[Stage.FS_BUSY].bytes + amounts[Stage.FS_PASSED].bytes
        return Row(
            RowKind.FILESYSTEM,
            "filesystem",
            filesystem.point,
            None if out is None else out + left_out,
            out,
            requests=extents.count if extents else None,
            reasons=tuple(losses.of_filesystem(self.evidence, out, amounts)),
            unknown=unknown,
            note=f"{filesystem.kind}; requests are its extents",
        )

    def _extents(self, tops: list[Layer]) -> tuple[Amount | None, str | None]:
        """Return (extents passed to the block layer, None), or (None, the reason) if not traced."""
        filesystem, answer = self.stack.filesystem, self.evidence.answer
        assert filesystem
        if not tops or (answer and answer.error in _BEFORE_ANYTHING):
            return Amount(), None
        if filesystem.kind.startswith("fuse"):
            return None, "a program behind FUSE discards for it: only what reached the block layer is seen"
        if filesystem.kind == "xfs" and len(tops) > 1:
            return (
                None,
                "what XFS gives away of its realtime device makes events of others, not followed here",
            )
        program = _SAYS_EXTENTS.get(filesystem.kind)
        who = self._senders[tops[0].device]
        if program and program not in self.trace.absent:
            devs = [filesystem.dev, *(top.dev for top in tops)]
            extents = total(self.trace.select(Stage.FS_EXTENT, devs=devs, who=who))
            return self._without_repeats(extents, tops), None
        if "discard_asked" not in self.trace.absent:
            flows = self.trace.select(Stage.ASKED, devs=[top.dev for top in tops], who=who)
            return total(flows), None
        return None, (
            f"{filesystem.kind} has no events for its extents, and this kernel lets nobody attach to "
            "functions: what vanishes before the block layer's first event is not seen"
        )

    def _without_repeats(self, extents: Amount, tops: list[Layer]) -> Amount:
        """Return the extents with f2fs's repeats removed.

        f2fs issues eight requests of a range at a time and then reports the rest again as a new range. The
        sum is capped at the arrived bytes. The cap hides no loss, because devices with discard support get
        every bio."""
        filesystem = self.stack.filesystem
        states = [state for top in tops for state in (top, self.evidence.after.layer(top.device)) if state]
        if not filesystem or filesystem.kind != "f2fs" or not all(state.limits.offered for state in states):
            return extents
        sent = sum(self._arrived(top).bytes for top in tops)
        return replace(extents, bytes=min(extents.bytes, sent))

    def _layer_row(self, layer: Layer, given: int | None) -> Row:
        arrived = self._arrived(layer)
        came = arrived.bytes if given is None else given
        reasons: list[Reason] = []
        if came > arrived.bytes:
            vanished = came - arrived.bytes
            reasons += losses.vanished(self.evidence, layer, vanished, self._errors(layer))
        if layer in self.stack.tops() and layer.limits.offered is False and not arrived.bytes:
            reasons += losses.left_out(self.evidence, layer)
        if layer.below:
            return self._stacked_row(layer, came, arrived, reasons)
        return self._leaf_row(layer, came, arrived, reasons)

    def _stacked_row(self, layer: Layer, came: int, arrived: Amount, reasons: list[Reason]) -> Row:
        members = {member.device: self._handed_on(layer, member) for member in lower_of(self.stack, layer)}
        if layer.kind is Kind.PARTITION:
            members = {layer.below[0]: arrived.bytes}
        failed = self._errors(layer)
        for status, amount in failed.items():
            reasons += losses.failed(self.evidence, layer, status, amount)
        times = copies(layer, len(members))
        out = sum(members.values())
        sent_beside = self._sent_beside(layer)
        handed_on = losses.handed_on(self.evidence, layer, members)
        passed = share_of_ours(layer, arrived.bytes, sent_beside, handed_on)
        # A failing target may pass on a part before the whole discard fails, so failed bytes still count
        # here.
        on_purpose = any(kept.fails for kept in losses.kept_by(self.evidence, layer))
        lost = (arrived.bytes - (0 if on_purpose else _bytes(failed))) * times - passed
        lost = max(lost, cut_off(layer, arrived, sent_beside))
        if lost > 0:
            reasons += losses.inside(self.evidence, layer, arrived, members, lost)
        reasons += losses.rebuilding(self.evidence, layer)
        explained = sum(why.lost_bytes or 0 for why in reasons)
        return Row(
            kind=RowKind.LAYER,
            layer=layer.target or layer.kind.value,
            device=layer.device,
            bytes_in=came,
            bytes_out=out,
            bytes_ok=self._ended_well(layer),
            requests=arrived.count,
            errors=_by_name(failed),
            reasons=tuple(reasons),
            unexplained_bytes=max(0, came * times - passed - explained),
            note=_note(layer, times),
        )

    def _ended_well(self, layer: Layer) -> int | None:
        """Return the bytes completed without an error on a stacked layer; None without completion events."""
        for stage in (Stage.DONE, Stage.BIO_DONE):
            ended = self._select(layer, stage, status=0)
            if ended.count:
                return ended.bytes
        return None

    def _leaf_row(self, layer: Layer, came: int, arrived: Amount, reasons: list[Reason]) -> Row:
        by_request = self._select(layer, Stage.ISSUED).count > 0
        sent = self._issued(layer) if by_request else arrived
        ok, failed = self._done(layer, 0), self._errors(layer)
        for status, amount in failed.items():
            reasons += losses.failed(self.evidence, layer, status, amount)
        reasons += losses.cut(layer, self._select(layer, Stage.SPLIT))
        explained = sum(why.lost_bytes or 0 for why in reasons)
        if came > ok.bytes + explained and losses.is_gone(self.evidence, layer):
            reasons.append(losses.gone(layer, came - ok.bytes - explained))
        elif came > ok.bytes + explained:
            reasons += losses.lost_by_tracing(self.evidence, layer, came - ok.bytes - explained)
        explained = sum(why.lost_bytes or 0 for why in reasons)
        return Row(
            kind=RowKind.LAYER,
            layer=layer.kind.value,
            device=layer.device,
            bytes_in=came,
            bytes_out=sent.bytes,
            bytes_ok=ok.bytes,
            requests=sent.count,
            errors=_by_name(failed),
            reasons=tuple(reasons),
            unexplained_bytes=max(0, came - ok.bytes - explained),
            commands=tuple(commands_of(self.trace, layer.device[:16])),
        )

    def _granule_rows(self, leaf: Layer) -> Iterator[Row]:
        """Yield a row of the freeable part of the completed bytes: whole granules."""
        ok = self._done(leaf, 0)
        if not ok.bytes:
            return
        shared = self._shared(leaf)
        granule = leaf.granule
        yield Row(
            RowKind.GRANULES,
            "granules",
            leaf.device,
            ok.bytes,
            ok.granule_bytes - shared,
            requests=ok.ranges,
            reasons=tuple(losses.at_the_end(leaf, ok.bytes - ok.granule_bytes, shared)),
            note=f"whole granules of {granule[0]} B; requests are the ranges that the device was told"
            if granule
            else "the device tells no granularity: every byte counts",
        )

    def _notes(self) -> Iterator[str]:
        for other in self._others():
            yield (
                f"not counted: {other.bytes} B of {other.op} on {other.disk} ({other.dev}) by {other.comm}, "
                f"cgroup {other.cgroup}"
            )
        if unseen := verdicts.unseen_devices(self.evidence):
            yield unseen
        if not self.evidence.settled:
            yield "discards were still on their way when the wait for them ended"
        lost = {name: count for name, count in self.trace.loss._asdict().items() if count}
        if lost or self.trace.misses:
            parts = [f"{name} {count}" for name, count in lost.items()]
            if self.trace.misses:
                parts.append(f"skipped by the kernel {self.trace.misses}")
            yield "not counted: " + ", ".join(parts)


def _bytes(amounts: Mapping[int, Amount]) -> int:
    return sum(amount.bytes for amount in amounts.values())


def _by_name(failed: Mapping[int, Amount]) -> dict[str, int]:
    return {STATUS_NAMES.get(status, f"status {status}"): amount.bytes for status, amount in failed.items()}


def _note(layer: Layer, copies: int) -> str | None:
    if layer.kind is Kind.LOOP:
        return "out are writes of zeroes"
    if layer.level in RAID456:
        return "out is with parity"
    return f"{copies} copies" if copies > 1 else None


def audit(evidence: AuditEvidence, subject: str) -> Audit:
    """Return the audit result of a trim."""
    return Walker(evidence).audit(subject)


def contradicted(evidence: AuditEvidence) -> bool:
    """Return True if a drive's in-use count contradicts the completed discards."""
    return verdicts.still_counted(evidence, Walker(evidence).reached()) is not None
