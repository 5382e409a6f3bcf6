"""The state of a sweep, derived from its journal: the finished levels and the changes to undo. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from opwatch.errors import BadInput
from opwatch.fields import Fields
from opwatch.foreign import parse_json, table_of
from opwatch.guard.budget import Budget, Health
from opwatch.guard.identity import DiskIdentity, identity_of
from opwatch.pts.record import PtsRecord, record_of_part
from opwatch.sweep.journal.request import SweepRequest, request_of
from opwatch.sweep.journal.results import LevelRecord, record_of
from opwatch.sweep.outcome import LevelOutcome

SCHEMA = "opwatch-sweep/1"
_MOST_ENTRIES = 1 << 17


@dataclass(slots=True)
class SweepState:
    """The state of a sweep.

    `records` are the finished levels by index, and `parts` the finished parts of a PTS test.
    `announced_bytes` is the planned write volume of all steps started, an upper bound of the bytes written.
    `undo` lists the changes not yet undone; `stops` are the reasons for which the sweep was interrupted.
    `disk` is the drive's disk since its namespace was last recreated, or None if never recreated.
    `begin_used` is the percentage of the drive's rated life used when the sweep first started, or None if the
    drive reports no percentage.
    """

    request: SweepRequest
    records: dict[int, LevelRecord] = field(default_factory=dict)
    parts: dict[int, PtsRecord] = field(default_factory=dict)
    announced_bytes: int = 0
    undo: list[str] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)
    is_begun: bool = False
    is_ended: bool = False
    cut_bytes: int = 0
    begin_used: int | None = None
    disk: DiskIdentity | None = None

    @property
    def identity(self) -> DiskIdentity:
        """Return the identity of the drive's current disk. A recreated namespace has other names."""
        return self.disk or self.request.identity

    @property
    def left(self) -> tuple[int, ...]:
        """Return the indices of the levels to go.

        An interrupted level starts over because the drive's activity during the interruption is unknown.
        """
        done = self.records.keys() | self.parts.keys()
        return tuple(place for place in range(len(self.request.levels)) if place not in done)

    def outcomes(self) -> list[LevelOutcome]:
        """Return the outcomes of the finished levels, in order."""
        return [self.records[place].outcome(self.request.levels[place]) for place in sorted(self.records)]

    def since_begin(self, now: Health) -> Health:
        """Return the baseline for the drive's health.

        Life used is counted from the sweep's first start, however often it was resumed. The kernel's error
        count and all other values are taken from `now`.
        """
        return now if self.begin_used is None else replace(now, percentage_used=self.begin_used)

    def allowed(
        self, write_bytes: int | None, life_percent: int | None = None, celsius: int | None = None
    ) -> Budget:
        """Return the budget for resuming: the budget given now or earlier, or else the rest of the plan.

        The rest of the plan counts an interrupted level in full.
        """
        budget = self.request.budget
        if life_percent is not None:
            budget = replace(budget, life_percent=life_percent)
        if celsius is not None:
            budget = replace(budget, celsius=celsius)
        if write_bytes is not None:
            return replace(budget, write_bytes=write_bytes, is_of_plan=False)
        if not budget.is_of_plan:
            return budget
        left = self.request.planned_bytes(self.left)
        return replace(budget, write_bytes=self.announced_bytes + left)


def parse_journal(raw: bytes, where: str) -> SweepState:
    """Parse a journal.

    A last line without a newline was truncated by a crash and is ignored. Raises BadInput for any other
    damage.
    """
    (first, *others), cut_bytes = entries_of(raw, where)
    if first.text("entry") != "request" or first.text("schema") != SCHEMA:
        raise first.bad(f"it is no journal of a sweep that this opwatch knows ({SCHEMA})")
    state = SweepState(request_of(first))
    for fields in others:
        _apply(state, fields)
    state.cut_bytes = cut_bytes
    return state


def entries_of(raw: bytes, where: str) -> tuple[list[Fields], int]:
    """Return (the entries, at least one; the bytes of a last entry truncated by a crash)."""
    lines = raw.split(b"\n")
    cut = lines.pop()
    if len(lines) > _MOST_ENTRIES:
        raise BadInput(f"{where} has more than {_MOST_ENTRIES} entries: it is no journal of a sweep")
    if not lines:
        raise BadInput(f"{where} has no first entry: nothing was begun, and it may be removed")
    return [_fields(line, f"{where}: line {number}") for number, line in enumerate(lines, 1)], len(cut)


def _fields(line: bytes, where: str) -> Fields:
    return Fields(table_of(parse_json(line, where), where), where)


def _apply(state: SweepState, fields: Fields) -> None:
    """Apply an entry to the state. Entries of unknown kinds come from a later version and are skipped."""
    kind = fields.text("entry")
    change = _CHANGES.get(kind)
    if change:
        change(state, fields)


def _step(state: SweepState, fields: Fields) -> None:
    state.announced_bytes += fields.count("write_bytes")
    state.is_begun = True


def _outcome(state: SweepState, fields: Fields) -> None:
    record = record_of(fields)
    if record.place >= len(state.request.levels):
        raise fields.bad(f"there is no level {record.place}")
    state.records[record.place] = record


def _part(state: SweepState, fields: Fields) -> None:
    record = record_of_part(fields)
    if not state.request.test or record.place >= len(state.request.test.parts):
        raise fields.bad(f"there is no part {record.place} of a test")
    state.parts[record.place] = record


def _unwritten(state: SweepState, fields: Fields) -> None:
    state.announced_bytes = max(state.announced_bytes - fields.count("bytes"), 0)


def _changed(state: SweepState, fields: Fields) -> None:
    state.undo.append(fields.text("undo"))


def _restored(state: SweepState, fields: Fields) -> None:
    undone = fields.text("undo")
    state.undo = [undo for undo in state.undo if undo != undone]
    if fields.table.get("disk") is not None:
        state.disk = identity_of(fields.sub("disk"))


def _health(state: SweepState, fields: Fields) -> None:
    if state.begin_used is None:
        state.begin_used = fields.optional("percentage_used", fields.count)


def _stopped(state: SweepState, fields: Fields) -> None:
    state.stops.append(fields.text("reason"))


def _ended(state: SweepState, _: Fields) -> None:
    state.is_ended = True


_CHANGES: dict[str, Callable[[SweepState, Fields], None]] = {
    "step": _step,
    "outcome": _outcome,
    "part": _part,
    "unwritten": _unwritten,
    "changed": _changed,
    "restored": _restored,
    "health": _health,
    "stopped": _stopped,
    "end": _ended,
}
