"""What a sweep has changed of a drive, as its journal keeps it until it is undone. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from opwatch.errors import BadInput

_TEXT = re.compile(r"partition 1: ([0-9]{1,20}) bytes from the begin", re.ASCII)


@dataclass(frozen=True, slots=True)
class PartitionUndo:
    """A partition that has to go: the first one, from the begin of the drive, of so many bytes."""

    length_bytes: int

    def __str__(self) -> str:
        return f"partition 1: {self.length_bytes} bytes from the begin"


def parse_undo(text: str) -> PartitionUndo:
    """What the text of an entry stands for; BadInput for what no opwatch up to this one has changed."""
    match = _TEXT.fullmatch(text)
    if not match:
        raise BadInput(f"the journal has a change that this opwatch cannot undo: {text!r:.100}")
    return PartitionUndo(int(match[1]))
