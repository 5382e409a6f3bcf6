"""The request to FITRIM and its answer."""

from __future__ import annotations

from dataclasses import dataclass

ALL = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Asked:
    """The range of FITRIM, in bytes."""

    start: int = 0
    length: int = ALL
    minlen: int = 0

    @property
    def is_whole(self) -> bool:
        """True if the range is the whole filesystem."""
        return not self.start and self.length == ALL


@dataclass(frozen=True, slots=True)
class FitrimAnswer:
    """FITRIM's result. `claimed` is None if FITRIM failed or a signal ended it."""

    claimed: int | None
    error: int = 0
    interrupted: bool = False
