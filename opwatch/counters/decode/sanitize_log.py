"""The Sanitize Status log page (81h): how far a sanitize is, how the last one ended, how long one takes."""

from __future__ import annotations

from enum import StrEnum

from opwatch.counters.decode.pages import BadPage, number, whole
from opwatch.frozen import frozen

LID, LENGTH = 0x81, 512


class SanitizeState(StrEnum):
    NEVER = "never"  # none was begun since the drive was made
    DONE = "done"
    UNDER_WAY = "under way"
    FAILED = "failed"  # reads and writes are refused until one succeeds
    DONE_DEALLOCATED = "done, and deallocated although that was not asked for"


# SSTAT bits 2:0. A later specification may know more, of which nothing is known here.
_STATES = dict(enumerate(SanitizeState))


@frozen
class SanitizeLog:
    """The page. `progress_ratio` is None while nothing is under way; `action` is the kind of the last
    sanitize (SANACT) or 0; `seconds` is how long each kind takes by the drive's own estimate, where it has
    one, when all is deallocated behind it."""

    state: SanitizeState
    progress_ratio: float | None
    action: int
    seconds: dict[int, int]


# The kinds of a sanitize, and where the page has how long they take.
OVERWRITE, BLOCK_ERASE, CRYPTO_ERASE = 3, 2, 4
_ESTIMATES = {OVERWRITE: 8, BLOCK_ERASE: 12, CRYPTO_ERASE: 16}


def decode_sanitize_log(raw: bytes) -> SanitizeLog:
    """The page; BadPage where it is too short or empty, or has a state that is not known."""
    page = whole(raw, LENGTH, "the Sanitize Status log")
    code = page[2] & 7
    if code not in _STATES:
        raise BadPage(f"the Sanitize Status log has state {code}, which is not known")
    state = _STATES[code]
    estimates = {action: number(page, offset, 4) for action, offset in _ESTIMATES.items()}
    return SanitizeLog(
        state=state,
        # Of 65536, whatever stands there otherwise.
        progress_ratio=int.from_bytes(page[:2], "little") / 65536
        if state is SanitizeState.UNDER_WAY
        else None,
        action=page[4] & 7,
        seconds={action: seconds for action, seconds in estimates.items() if seconds is not None},
    )
