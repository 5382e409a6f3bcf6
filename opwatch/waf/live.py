"""Current write amplification of a watched drive. Light to import; the measuring code is loaded on demand."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CurrentWaf:
    """The current write amplification of a drive.

    `waf` and `nand_bytes_per_s` are None with a `reason`. `mono_ns` is the time of the last reading.
    """

    waf: float | None
    waf_error: float | None
    reason: str | None
    window_s: float
    nand_bytes_per_s: float | None
    nand_error_bytes_per_s: float | None
    source: str | None
    mono_ns: int


def make_failed(reason: str, mono_ns: int, window_s: float = 0.0) -> CurrentWaf:
    """Return a CurrentWaf without a value, with the reason."""
    return CurrentWaf(
        waf=None,
        waf_error=None,
        reason=reason,
        window_s=window_s,
        nand_bytes_per_s=None,
        nand_error_bytes_per_s=None,
        source=None,
        mono_ns=mono_ns,
    )
