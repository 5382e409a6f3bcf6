"""Decode the Sanitize Status log page (81h): progress, result of the last sanitize, estimated times."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from opwatch.counters.decode.pages import BadPage, read_field, require_page

LID, LENGTH = 0x81, 512


class SanitizeState(StrEnum):
    NEVER = "never"  # No sanitize was ever started
    DONE = "done"
    UNDER_WAY = "under way"
    FAILED = "failed"  # Reads and writes are refused until a sanitize succeeds
    DONE_DEALLOCATED = "done, and deallocated although not requested"


# SSTAT bits 2:0. Later specifications may define more states.
_STATES = dict(enumerate(SanitizeState))


@dataclass(frozen=True, slots=True)
class SanitizeLog:
    """Sanitize Status.

    `progress_ratio` is None unless a sanitize is under way. `action` is the kind of the last sanitize
    (SANACT), or 0. `seconds` is the drive's own estimate for each kind, where it has one, with deallocation
    after the sanitize.
    """

    state: SanitizeState
    progress_ratio: float | None
    action: int
    seconds: dict[int, int]


# Kinds of sanitize, and the page offset of the time estimate for each.
OVERWRITE, BLOCK_ERASE, CRYPTO_ERASE = 3, 2, 4
_ESTIMATES = {OVERWRITE: 8, BLOCK_ERASE: 12, CRYPTO_ERASE: 16}


def decode_sanitize_log(raw: bytes) -> SanitizeLog:
    """Decode the page, or raise BadPage if too short, empty, or in an unknown state."""
    page = require_page(raw, LENGTH, "the Sanitize Status log")
    code = page[2] & 7
    if code not in _STATES:
        raise BadPage(f"the Sanitize Status log has the unknown state {code}")
    state = _STATES[code]
    estimates = {action: read_field(page, offset, 4) for action, offset in _ESTIMATES.items()}
    return SanitizeLog(
        state=state,
        # In units of 1/65536. Undefined unless a sanitize is under way.
        progress_ratio=int.from_bytes(page[:2], "little") / 65536
        if state is SanitizeState.UNDER_WAY
        else None,
        action=page[4] & 7,
        seconds={action: seconds for action, seconds in estimates.items() if seconds is not None},
    )
