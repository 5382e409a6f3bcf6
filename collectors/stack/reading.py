"""What is read about a layer."""

from __future__ import annotations

from opwatch.trim.stack.dmtable import DmTarget
from opwatch.trim.stack.facts import LayerFacts, Unread
from opwatch.trim.stack.layers import Kind


class LayerReading:
    """Facts about one layer during reading, and the reasons for unknown facts."""

    def __init__(
        self,
        kind: Kind,
        below: tuple[str, ...],
        facts: LayerFacts | None = None,
        unknown: dict[Unread, str] | None = None,
    ) -> None:
        self.kind, self.below = kind, below
        self.facts = facts or LayerFacts()
        self.target: str | None = None
        self.table: list[DmTarget] = []
        self.unknown = unknown or {}
