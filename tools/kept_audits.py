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
from opwatch.foreign import parse_json, table_of
from opwatch.host.usage import Mount
from opwatch.recording.coding.audits import SeenAudit, audit_bytes, audit_of
from opwatch.recording.reading.files import bytes_of, kept_files
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.schema import AUDIT, NO_AUDIT, json_text, readable
from opwatch.recording.writing.recorder import Recorder
from opwatch.sinks.terminal import say
from opwatch.sinks.trim_audit import write_json, write_lines
from opwatch.tools.kept_run import header, made, notes_for, warn_of_own_disk
from opwatch.trim.audit import ledger
from opwatch.trim.audit.audit import Audit
from opwatch.trim.stack.layers import Stack


class KeptAudits(AbstractContextManager["KeptAudits"]):
    """Records audits of these mounts or stacks inside the context. `problem` is the reason why some are
    missing, or None."""

    def __init__(self, path: Path, audited: Iterable[Mount | Stack]) -> None:
        target = made(path, header(None), read_anchor())
        self._recorder = Recorder(target, say)
        self._taker = notes_for(target, self._recorder)
        self._count = 0
        reader = LayerReader()
        stacks = [one if isinstance(one, Stack) else reader.mount(one) for one in audited]
        warn_of_own_disk(self._recorder, path, (leaf.device for stack in stacks for leaf in stack.leaves()))

    @property
    def problem(self) -> str | None:
        return self._recorder.problem

    def keep(self, audit: Audit, blind: str | None) -> None:
        """Record an audit's evidence, and its verdict for readers other than opwatch."""
        self._count += 1
        name = f"audit/{self._count}.json"
        self._recorder.keep_file(name, audit_bytes(SeenAudit(audit.subject, audit.evidence, blind)))
        words = {"subject": readable(audit.subject), "verdict": audit.verdict.value, "file": name}
        self._recorder.event(AUDIT, json_text(words))

    def leave_out(self, why: str) -> None:
        """Record why one of several audits was not made."""
        self._recorder.event(NO_AUDIT, why)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._taker.close()
        self._recorder.finish(f"it was cut short: {kind.__name__}" if kind else "it was audited")


def is_of_audit(run: RecordedRun) -> bool:
    """Return whether `opwatch trim audit` made the recording, which then has audits and no disks."""
    return any(event.kind in (AUDIT, NO_AUDIT) for event in run.events)


def recorded_audits(run: RecordedRun) -> Iterator[SeenAudit | str]:
    """Yield each audit's evidence in order, or the reason why one was left out."""
    files = {file.name: file for file in kept_files(run)}
    for event in run.events:
        if event.kind == NO_AUDIT:
            yield event.words
        elif event.kind == AUDIT:
            where = f"{run.name}: table events, {AUDIT}"
            name = Fields(table_of(parse_json(event.words, where), where), where).text("file")
            if name not in files:
                raise BadInput(f"{where}: there is no file {name}")
            yield audit_of(bytes_of(run, files[name]), f"{run.name}: {name}")


def show_audits(run: RecordedRun, *, as_json: bool, quiet: bool) -> None:
    """Show recorded audits in their original form, judged again from the evidence."""
    blind, is_empty = None, True
    for audited in recorded_audits(run):
        is_empty = False
        if isinstance(audited, str):
            say(audited)
            continue
        audit, blind = ledger.audit(audited.evidence, audited.subject), audited.blind
        if as_json:
            write_json([audit], sys.stdout, blind)
        else:
            write_lines([audit], sys.stdout, quiet=quiet)
    if is_empty:
        raise NotEnoughData(f"{run.name}: no audit had ended yet when it ended")
    if blind and not quiet:
        say(blind)
