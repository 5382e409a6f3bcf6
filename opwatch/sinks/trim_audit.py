"""An audit as lines of at most 80 columns, and as a JSON document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

from opwatch import SCHEMA, units
from opwatch.sinks.terminal import Writer
from opwatch.sinks.wrapping import wrap_advice, wrap_text
from opwatch.trim.audit.accounts import CounterEvidence, JudgedAccount
from opwatch.trim.audit.audit import ALL, VERDICT_MEANINGS, Audit, ProofLevel, ReadBack, Row
from opwatch.trim.audit.flow import Origin, SenderKind, Trace
from opwatch.trim.audit.kernel_log import find_device_lines
from opwatch.trim.stack.causes import Effect, Reason

if TYPE_CHECKING:
    from opwatch.trim.space.lba_status import SentinelMap


_HEADER = f"  {'layer':<10} {'device':<11} {'in':>15} {'out':>15} {'completed':>15} {'number':>7}"


class _UnwrappedLine(str):
    """A line exempt from wrapping: short enough, or a command to copy."""


def _format_amount(n_bytes: int | None) -> str:
    if n_bytes is None:
        return "?"
    return f"{n_bytes:,}" if n_bytes < 10**12 else str(n_bytes)


def _format_count(number: int | None) -> str:
    return "?" if number is None else str(number) if number < 10**7 else units.format_rate(number)


def _format_row(row: Row) -> str:
    done = "" if row.bytes_ok is None else _format_amount(row.bytes_ok)
    return (
        f"  {units.shorten(row.layer, 10):<10} {units.shorten(row.device, 11):<11} "
        f"{_format_amount(row.bytes_in):>15} {_format_amount(row.bytes_out):>15} {done:>15} "
        f"{_format_count(row.requests):>7}"
    ).rstrip()


def _format_reason(reason: Reason, shown: set[str]) -> Iterator[str]:
    """Yield a reason as text. Advice that was printed before is not repeated."""
    lost = "" if reason.lost_bytes is None else f" ({reason.lost_bytes:,} B)"
    yield f"    {reason.code}{lost}: {reason.cause.title}"
    yield f"      seen: {units.replace_unprintable(reason.observed)}"
    if reason.cause.effect is not Effect.HARMLESS and reason.remedy not in shown:
        shown.add(reason.remedy)
        yield from map(_UnwrappedLine, wrap_advice(reason.advice, "      do: "))
        if reason.cause.caveat:
            yield f"      note: {reason.cause.caveat}"


def _format_messages(audit: Audit, device: str, shown: set[str]) -> Iterator[str]:
    """Yield kernel messages about a device during the audit, each once. The other messages follow at the
    end."""
    for line in find_device_lines(audit.evidence.log.lines, device):
        if line not in shown:
            shown.add(line)
            yield f"      kernel: {units.replace_unprintable(line)}"


def _format_rows(audit: Audit, shown: set[str]) -> Iterator[str]:
    yield _HEADER
    for row in audit.rows:
        yield _format_row(row)
        if row.errors:
            yield "    failed: " + ", ".join(f"{name} {count:,} B" for name, count in row.errors.items())
        if row.commands:
            yield "    commands: " + "; ".join(str(command) for command in row.commands)
        for reason in row.reasons:
            yield from _format_reason(reason, shown)
        if row.reasons or row.errors:
            yield from _format_messages(audit, row.device, shown)
        if row.unexplained_bytes:
            yield f"    UNEXPLAINED: {row.unexplained_bytes:,} B lost here for an unknown reason"
        if row.unknown:
            yield f"    unknown: {row.unknown}"


def _format_origins(audit: Audit) -> Iterator[str]:
    """Yield the senders of discards, most bytes first."""
    names = {layer.device[:16] for layer in audit.evidence.before.layers}
    origins = [origin for origin in audit.evidence.trace.origins if origin.disk in names]
    for sender in sorted(origins, key=lambda origin: -origin.bytes):
        yield (
            f"    by {units.replace_unprintable(sender.comm)} (cgroup {sender.cgroup}) on {sender.disk}: "
            f"{sender.count} x {sender.op}, {sender.bytes:,} B in pieces of {sender.min_bytes:,} to "
            f"{sender.max_bytes:,} B"
        )


def _format_drive_evidence(audit: Audit) -> Iterator[str]:
    """Yield evidence from the drive itself: sentinels read back, and its count of bytes in use."""
    answer = audit.evidence.read_back
    if answer:
        parts = [f"{count:,} B {name}" for name, count in answer.bytes.items() if count]
        yield "  read back: " + (", ".join(parts) or f"nothing: {answer.reason}")
        for note in answer.notes:
            yield f"    skipped: {units.replace_unprintable(note)}"
        for device, map_ in answer.maps.items():
            yield f"  sentinels in {device}'s map: {_format_map(map_)}"
    for device, in_use in audit.evidence.in_use.items():
        yield f"  in use, counted by {device}: {in_use.before:,} B before, {in_use.after:,} B after"
    for witness in audit.counters:
        account = witness.account
        silent = witness.bearing is CounterEvidence.SILENT
        bearing = "proves nothing" if silent else witness.bearing.value
        yield (f"  counted by {account.device}, {units.replace_unprintable(account.source)}: {bearing}")
        yield f"    {witness.words}"


def _format_proofs(audit: Audit) -> Iterator[str]:
    """Yield the proof for each disk and the layer down to which it holds."""
    for proof in audit.proofs:
        if proof.standing is ProofLevel.ACCEPTED and not proof.by:
            continue
        down_to = f", to {units.replace_unprintable(proof.down_to)}" if proof.down_to else ""
        yield f"  {proof.device}: {proof.standing.value}{down_to}"
        for witness in proof.by:
            yield f"    by: {units.replace_unprintable(witness)}"
        if proof.beyond:
            yield f"    limit: {units.replace_unprintable(proof.beyond)}"


def _format_map(blocks: SentinelMap) -> str:
    if blocks.reason:
        return f"proves nothing: {blocks.reason}"
    return f"{blocks.before_bytes:,} B before, {blocks.after_bytes:,} B after"


def format_audit(audit: Audit, *, quiet: bool = False) -> Iterator[str]:
    """Yield the audit as text lines."""
    yield (
        f"{units.replace_unprintable(audit.subject)}: {audit.verdict.value}, "
        f"{VERDICT_MEANINGS[audit.verdict]}"
    )
    if quiet:
        return
    asked = audit.evidence.asked
    if asked:
        length = "the whole filesystem" if asked.length == ALL else f"{asked.length:,} B at {asked.start:,}"
        minimum = f", minimum {asked.minlen:,} B" if asked.minlen else ""
        yield f"  requested: {length}{minimum}"
    yield f"  claimed (what fstrim prints): {units.replace_unprintable(audit.claim)}"
    yield f"  reached: {audit.reached_bytes:,} B completed in whole granules"
    yield from _format_proofs(audit)
    yield from _format_drive_evidence(audit)
    yield ""
    shown: set[str] = set()
    yield from _format_rows(audit, shown)
    yield ""
    if not asked:
        yield from _format_origins(audit)
    for reason in audit.reasons:
        yield from _format_reason(reason, shown)
    for change in audit.changes:
        if change.fact not in ("mapped_bytes", "used_chunks"):
            yield f"    changed: {change.device} {change.fact}: {change.before} -> {change.after}"
    for line in audit.evidence.log.lines:
        if line not in shown:
            yield f"    kernel: {units.replace_unprintable(line)}"
    if audit.evidence.log.unknown:
        yield f"    note: no kernel messages: {units.replace_unprintable(audit.evidence.log.unknown)}"
    for note in audit.notes:
        yield f"    note: {note}"


def write_lines(audits: Sequence[Audit], stream: TextIO, *, quiet: bool = False) -> None:
    """Write all audits in sequence."""
    writer = Writer(stream)
    for index, audit in enumerate(audits):
        if index and not quiet:
            writer.write_line()
        for line in format_audit(audit, quiet=quiet):
            indent = len(line) - len(line.lstrip())
            parts = (
                [line]
                if isinstance(line, _UnwrappedLine)
                else wrap_text(line.lstrip(), " " * indent, indent + 2)
            )
            for part in parts:
                writer.write_line(part)


def _build_row(row: Row) -> dict[str, Any]:
    return {
        "layer": row.layer,
        "device": row.device,
        "bytes_in": row.bytes_in,
        "bytes_out": row.bytes_out,
        "bytes_ok": row.bytes_ok,
        "requests": row.requests,
        "errors": dict(row.errors),
        "reasons": [reason.to_document() for reason in row.reasons],
        "unexplained_bytes": row.unexplained_bytes,
        "unknown": row.unknown,
        "note": row.note,
        "commands": [asdict(command) for command in row.commands],
    }


def _build_read_back(answer: ReadBack | None) -> dict[str, Any] | None:
    if answer is None:
        return None
    return {
        "bytes": dict(answer.bytes),
        "by_device": {name: dict(counts) for name, counts in answer.by_device.items()},
        "reason": answer.reason,
        "notes": list(answer.notes),
        "maps": {
            name: asdict(blocks) | {"reason": blocks.reason, "gone_bytes": blocks.gone_bytes}
            for name, blocks in answer.maps.items()
        },
    }


def _build_counter(witness: JudgedAccount) -> dict[str, Any]:
    account = witness.account
    return {
        "device": account.device,
        "source": account.source,
        "counts": account.counts.value,
        "unit_bytes": account.unit_bytes,
        "before": account.before,
        "after": account.after,
        "moved": account.amount_moved,
        "bearing": witness.bearing.value,
        "words": witness.words,
    }


def _build_origin(origin: Origin) -> dict[str, Any]:
    return {
        "comm": origin.comm,
        "cgroup": origin.cgroup,
        "device": origin.disk,
        "dev": origin.dev,
        "op": origin.op,
        "kernel_thread": origin.who is SenderKind.KERNEL,
        "count": origin.count,
        "bytes": origin.bytes,
        "min_bytes": origin.min_bytes,
        "max_bytes": origin.max_bytes,
        "below_granule": origin.below_granule,
    }


def _build_trace(trace: Trace) -> dict[str, Any]:
    return {
        "absent": sorted(trace.absent),
        "loss": trace.loss._asdict(),
        "skipped_by_kernel": trace.misses,
        "kernel_counted": {name: {"discards": n, "bytes": b} for name, (n, b) in trace.stats.items()},
    }


def _build_evidence(audit: Audit) -> dict[str, Any]:
    """Return the evidence behind the verdict."""
    evidence = audit.evidence
    disks = {layer.device[:16] for layer in evidence.before.layers}
    return {
        "settled": evidence.settled,
        "read_back": _build_read_back(evidence.read_back),
        "files": {name: asdict(file) for name, file in evidence.files.items()},
        "held_bytes": {name: asdict(in_use) for name, in_use in evidence.in_use.items()},
        "counters": [_build_counter(witness) for witness in audit.counters],
        "trace": _build_trace(evidence.trace),
        "origins": [_build_origin(origin) for origin in evidence.trace.origins if origin.disk in disks],
        "kernel_log": list(evidence.log.lines),
        "kernel_log_unknown": evidence.log.unknown,
    }


def build_audit_document(audit: Audit, blind: str | None = None) -> dict[str, Any]:
    """Return the audit as the object to print.

    `blind` names contexts where the kernel runs no BPF programs, so discards may be missing.
    """
    evidence = audit.evidence
    asked, filesystem = evidence.asked, evidence.before.filesystem
    return {
        "schema": SCHEMA,
        "type": "trim-audit",
        "subject": audit.subject,
        "filesystem": filesystem.kind if filesystem else None,
        "verdict": audit.verdict.value,
        "asked": {"start": asked.start, "length": asked.length, "minlen": asked.minlen} if asked else None,
        "claimed_bytes": audit.claimed_bytes,
        "claim": audit.claim,
        "claims": [asdict(claim) for claim in audit.claims],
        "reached_bytes": audit.reached_bytes,
        "proofs": [asdict(proof) for proof in audit.proofs],
        "ledger": [_build_row(row) for row in audit.rows],
        "reasons": [reason.to_document() for reason in audit.reasons],
        "unexplained_bytes": audit.unexplained_bytes,
        "changes": [
            {"device": change.device, "fact": change.fact, "before": change.before, "after": change.after}
            for change in audit.changes
        ],
        **_build_evidence(audit),
        "notes": list(audit.notes),
        "blind": blind,
    }


def write_json(audits: Sequence[Audit], stream: TextIO, blind: str | None = None) -> None:
    """Write one object per line."""
    writer = Writer(stream)
    for audit in audits:
        writer.write_json(build_audit_document(audit, blind))
