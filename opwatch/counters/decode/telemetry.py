"""The header of log pages 07h and 08h: whether a drive has saved its state for its maker, and why.

What it has saved is the maker's own. Reading the pages may make a drive collect it, so none is asked for: the
header is read from files that other tools wrote.
"""

from __future__ import annotations

from opwatch.counters.decode.pages import BadPage, unsigned, whole
from opwatch.frozen import frozen

HOST_LID, CONTROLLER_LID, LENGTH = 0x07, 0x08, 512
BLOCK_BYTES = 512
_REASON = slice(384, 512)


@frozen
class TelemetryHeader:
    """Either header. `blocks` are those of the largest area; generations count modulo 256, the host's in its
    own page alone. `has_saved` and `generation` are of what the controller saved by itself."""

    lid: int
    blocks: int
    host_generation: int | None
    has_saved: bool
    generation: int
    reason: str | None


def is_telemetry(raw: bytes) -> bool:
    """Whether bytes of any length begin with such a header: what is reserved in it is zero."""
    if len(raw) < LENGTH or raw[0] not in (HOST_LID, CONTROLLER_LID):
        return False
    return not any(raw[1:5]) and not any(raw[14:16]) and not any(raw[20:380]) and raw[382] <= 1


def _reason(raw: bytes) -> str | None:
    """Text where the maker wrote one, hexadecimal digits where not; None where there is nothing."""
    kept = raw.rstrip(b"\0")
    if not kept:
        return None
    text = kept.split(b"\0")[0]
    if len(text) >= 4 and all(32 <= byte < 127 for byte in text):
        return " ".join(text.decode("ascii").split()) or None
    return kept[:16].hex()


def decode_telemetry(raw: bytes) -> TelemetryHeader:
    """Log page 07h or 08h; BadPage when what is reserved is not zero."""
    page = whole(raw, LENGTH, "the telemetry header")
    if not is_telemetry(page):
        raise BadPage("this is no header of log page 07h or 08h")
    areas = [unsigned(page, 8, 2), unsigned(page, 10, 2), unsigned(page, 12, 2), unsigned(page, 16, 4)]
    return TelemetryHeader(
        lid=page[0],
        blocks=max(areas),
        host_generation=page[381] if page[0] == HOST_LID else None,
        has_saved=page[382] == 1,
        generation=page[383],
        reason=_reason(page[_REASON]),
    )
