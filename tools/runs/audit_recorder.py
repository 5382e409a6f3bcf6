"""Trim audits that are recorded and shown again: the recording of `opwatch trim audit`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

from opwatch.clock import read_anchor
from opwatch.collectors.stack.layers import LayerReader
from opwatch.errors import BadInput, NotEnoughData
from opwatch.fields import Fields
from opwatch.foreign import parse_json, require_table
from opwatch.host.usage import Mount
from opwatch.recording.coding.audits import SeenAudit, decode_audit, encode_audit
from opwatch.recording.reading.files import iterate_files, read_stored_file
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.schema import AUDIT, NO_AUDIT, format_json, replace_invalid
from opwatch.recording.writing.recorder import Recorder
from opwatch.sinks.terminal import print_message
from opwatch.sinks.trim_audit import write_json, write_lines
from opwatch.tools.runs.run_recorder import create_recording, make_header, make_note_taker, warn_of_own_disk
from opwatch.trim.audit import ledger
from opwatch.trim.audit.audit import Audit
from opwatch.trim.stack.layers import Stack


class AuditRecorder(AbstractContextManager["AuditRecorder"]):
    """Records audits of these mounts or stacks inside the context. `problem` is the reason why some are
    missing, or None."""

    def __init__(self, path: Path, audited: Iterable[Mount | Stack]) -> None:
        target = create_recording(path, make_header(None), read_anchor())
        self._recorder = Recorder(target, print_message)
        self._taker = make_note_taker(target, self._recorder)
        self._count = 0
        reader = LayerReader()
        stacks = [one if isinstance(one, Stack) else reader.read_mount(one) for one in audited]
        warn_of_own_disk(
            self._recorder, path, (leaf.device for stack in stacks for leaf in stack.find_leaves())
        )

    @property
    def problem(self) -> str | None:
        return self._recorder.problem

    def record_audit(self, audit: Audit, blind: str | None) -> None:
        """Record an audit's evidence, and its verdict for readers other than opwatch."""
        self._count += 1
        name = f"audit/{self._count}.json"
        self._recorder.add_file(name, encode_audit(SeenAudit(audit.subject, audit.evidence, blind)))
        words = {"subject": replace_invalid(audit.subject), "verdict": audit.verdict.value, "file": name}
        self._recorder.add_event(AUDIT, format_json(words))

    def record_skipped(self, why: str) -> None:
        """Record why one of several audits was not made."""
        self._recorder.add_event(NO_AUDIT, why)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._taker.close()
        self._recorder.finish_recording(f"interrupted: {kind.__name__}" if kind else "the audit has ended")


def is_audit_recording(run: RecordedRun) -> bool:
    """Return whether `opwatch trim audit` made the recording, which then has audits and no disks."""
    return any(event.kind in (AUDIT, NO_AUDIT) for event in run.events)


def read_audits(run: RecordedRun) -> Iterator[SeenAudit | str]:
    """Yield each audit's evidence in order, or the reason why one was left out."""
    files = {file.name: file for file in iterate_files(run)}
    for event in run.events:
        if event.kind == NO_AUDIT:
            yield event.words
        elif event.kind == AUDIT:
            where = f"{run.name}: table events, {AUDIT}"
            name = Fields(require_table(parse_json(event.words, where), where), where).read_text("file")
            if name not in files:
                raise BadInput(f"{where}: the recording has no file {name}")
            yield decode_audit(read_stored_file(run, files[name]), f"{run.name}: {name}")


def show_audits(run: RecordedRun, *, as_json: bool, quiet: bool) -> None:
    """Show recorded audits in their original form, judged again from the evidence."""
    blind, is_empty = None, True
    for audited in read_audits(run):
        is_empty = False
        if isinstance(audited, str):
            print_message(audited)
            continue
        audit, blind = ledger.build_audit(audited.evidence, audited.subject), audited.blind
        if as_json:
            write_json([audit], sys.stdout, blind)
        else:
            write_lines([audit], sys.stdout, quiet=quiet)
    if is_empty:
        raise NotEnoughData(f"{run.name}: it ended before the first audit did")
    if blind and not quiet:
        print_message(blind)
