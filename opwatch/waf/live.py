"""Write amplification of a watched drive at one moment. What it is made from is read when there is one."""

from __future__ import annotations

from opwatch.frozen import frozen


@frozen
class Live:
    """The figure of a drive as it is now. `waf` and `nand_bytes_per_s` are None with a reason. `mono_ns` is
    when it was looked at last."""

    waf: float | None
    waf_error: float | None
    reason: str | None
    window_s: float
    nand_bytes_per_s: float | None
    nand_error_bytes_per_s: float | None
    source: str | None
    mono_ns: int


def failed(reason: str, mono_ns: int, window_s: float = 0.0) -> Live:
    """No figure, for a reason."""
    return Live(
        waf=None,
        waf_error=None,
        reason=reason,
        window_s=window_s,
        nand_bytes_per_s=None,
        nand_error_bytes_per_s=None,
        source=None,
        mono_ns=mono_ns,
    )
