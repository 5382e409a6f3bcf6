"""The state of a sweep, derived from its journal: the finished levels and the changes to undo. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from opwatch.codec import decode
from opwatch.errors import BadInput
from opwatch.fields import Fields
from opwatch.foreign import parse_json, require_table
from opwatch.guard.budget import Budget, Health
from opwatch.guard.identity import DiskIdentity
from opwatch.journal.request import SweepRequest
from opwatch.journal.results import LevelRecord
from opwatch.pts.record import PtsRecord
from opwatch.sweep.outcome import LevelOutcome

SCHEMA = "opwatch-sweep/1"
_MAX_ENTRIES = 1 << 17


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
    def disk_identity(self) -> DiskIdentity:
        """Return the identity of the drive's current disk. A recreated namespace has other names."""
        return self.disk or self.request.identity

    @property
    def remaining_levels(self) -> tuple[int, ...]:
        """Return the indices of the levels to go.

        An interrupted level starts over because the drive's activity during the interruption is unknown.
        """
        done = self.records.keys() | self.parts.keys()
        return tuple(place for place in range(len(self.request.levels)) if place not in done)

    def list_outcomes(self) -> list[LevelOutcome]:
        """Return the outcomes of the finished levels, in order."""
        return [
            self.records[place].make_outcome(self.request.levels[place]) for place in sorted(self.records)
        ]

    def find_health_baseline(self, now: Health) -> Health:
        """Return the baseline for the drive's health.

        Life used is counted from the sweep's first start, however often it was resumed. The kernel's error
        count and all other values are taken from `now`.
        """
        return now if self.begin_used is None else replace(now, percentage_used=self.begin_used)

    def find_remaining_budget(
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
        left = self.request.bound_planned_bytes(self.remaining_levels)
        return replace(budget, write_bytes=self.announced_bytes + left)


def parse_journal(raw: bytes, where: str) -> SweepState:
    """Parse a journal.

    A last line without a newline was truncated by a crash and is ignored. Raises BadInput for any other
    damage.
    """
    (first, *others), cut_bytes = parse_entries(raw, where)
    if first.read_text("entry") != "request" or first.read_text("schema") != SCHEMA:
        raise first.make_error(f"it is not a sweep journal that this version of opwatch can read ({SCHEMA})")
    state = SweepState(decode(SweepRequest, first.table, first.where))
    for fields in others:
        _apply_entry(state, fields)
    state.cut_bytes = cut_bytes
    return state


def parse_entries(raw: bytes, where: str) -> tuple[list[Fields], int]:
    """Return (the entries, at least one; the bytes of a last entry truncated by a crash)."""
    lines = raw.split(b"\n")
    cut = lines.pop()
    if len(lines) > _MAX_ENTRIES:
        raise BadInput(f"{where} has more than {_MAX_ENTRIES} entries: it is not a sweep journal")
    if not lines:
        raise BadInput(f"{where} has no first entry: the sweep did not start, and the file may be removed")
    return [_parse_fields(line, f"{where}: line {number}") for number, line in enumerate(lines, 1)], len(cut)


def _parse_fields(line: bytes, where: str) -> Fields:
    return Fields(require_table(parse_json(line, where), where), where)


def _apply_entry(state: SweepState, fields: Fields) -> None:
    """Apply an entry to the state. Entries of unknown kinds come from a later version and are skipped."""
    kind = fields.read_text("entry")
    change = _CHANGES.get(kind)
    if change:
        change(state, fields)


def _apply_step(state: SweepState, fields: Fields) -> None:
    state.announced_bytes += fields.read_count("write_bytes")
    state.is_begun = True


def _apply_outcome(state: SweepState, fields: Fields) -> None:
    record = decode(LevelRecord, fields.table, fields.where)
    if record.place >= len(state.request.levels):
        raise fields.make_error(f"level {record.place} does not exist")
    state.records[record.place] = record


def _apply_part(state: SweepState, fields: Fields) -> None:
    record = decode(PtsRecord, fields.table, fields.where)
    if not state.request.test or record.place >= len(state.request.test.parts):
        raise fields.make_error(f"part {record.place} of the test does not exist")
    state.parts[record.place] = record


def _apply_unwritten(state: SweepState, fields: Fields) -> None:
    state.announced_bytes = max(state.announced_bytes - fields.read_count("bytes"), 0)


def _apply_changed(state: SweepState, fields: Fields) -> None:
    state.undo.append(fields.read_text("undo"))


def _apply_restored(state: SweepState, fields: Fields) -> None:
    undone = fields.read_text("undo")
    state.undo = [undo for undo in state.undo if undo != undone]
    if fields.table.get("disk") is not None:
        state.disk = decode(DiskIdentity, fields.table["disk"], f"{fields.where}: disk")


def _apply_health(state: SweepState, fields: Fields) -> None:
    if state.begin_used is None:
        state.begin_used = fields.read_optional("percentage_used", fields.read_count)


def _apply_stopped(state: SweepState, fields: Fields) -> None:
    state.stops.append(fields.read_text("reason"))


def _apply_ended(state: SweepState, _: Fields) -> None:
    state.is_ended = True


_CHANGES: dict[str, Callable[[SweepState, Fields], None]] = {
    "step": _apply_step,
    "outcome": _apply_outcome,
    "part": _apply_part,
    "unwritten": _apply_unwritten,
    "changed": _apply_changed,
    "restored": _apply_restored,
    "health": _apply_health,
    "stopped": _apply_stopped,
    "end": _apply_ended,
}
