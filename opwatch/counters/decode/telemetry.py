"""Decode the header of log pages 07h and 08h: whether and why a drive has saved its state for its vendor.

The saved data are vendor specific. Reading the pages may make a drive collect data, so opwatch never requests
them and decodes only files written by other tools.
"""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.counters.decode.pages import BadPage, read_unsigned, require_page

HOST_LID, CONTROLLER_LID, LENGTH = 0x07, 0x08, 512
BLOCK_BYTES = 512
_REASON = slice(384, 512)


@dataclass(frozen=True, slots=True)
class TelemetryHeader:
    """Header of either page.

    `blocks` is the size of the largest area. Generations count modulo 256; only page 07h has the host's.
    `has_saved` and `generation` describe data that the controller saved by itself.
    """

    lid: int
    blocks: int
    host_generation: int | None
    has_saved: bool
    generation: int
    reason: str | None


def is_telemetry(raw: bytes) -> bool:
    """Return whether the bytes start with a telemetry header. Its reserved fields must be zero."""
    if len(raw) < LENGTH or raw[0] not in (HOST_LID, CONTROLLER_LID):
        return False
    return not any(raw[1:5]) and not any(raw[14:16]) and not any(raw[20:380]) and raw[382] <= 1


def _decode_reason(raw: bytes) -> str | None:
    """Return the vendor's text, or hexadecimal digits for other data, or None if empty."""
    kept = raw.rstrip(b"\0")
    if not kept:
        return None
    text = kept.split(b"\0")[0]
    if len(text) >= 4 and all(32 <= byte < 127 for byte in text):
        return " ".join(text.decode("ascii").split()) or None
    return kept[:16].hex()


def decode_telemetry(raw: bytes) -> TelemetryHeader:
    """Decode log page 07h or 08h, or raise BadPage if a reserved field is not zero."""
    page = require_page(raw, LENGTH, "the telemetry header")
    if not is_telemetry(page):
        raise BadPage("this is not a header of log page 07h or 08h")
    areas = [
        read_unsigned(page, 8, 2),
        read_unsigned(page, 10, 2),
        read_unsigned(page, 12, 2),
        read_unsigned(page, 16, 4),
    ]
    return TelemetryHeader(
        lid=page[0],
        blocks=max(areas),
        host_generation=page[381] if page[0] == HOST_LID else None,
        has_saved=page[382] == 1,
        generation=page[383],
        reason=_decode_reason(page[_REASON]),
    )
