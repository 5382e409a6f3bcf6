"""What OpenZFS counts of the discards of a pool. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from opwatch.trim.stack.facts import ZfsFacts

# Discards by `zpool trim`, those by autotrim, and of whole devices that are added or taken away.
_KINDS = ("trim", "autotrim", "simple_trim")
_LINE = r"([a-z_]{1,40}) +[0-9]{1,2} +([0-9]{1,20})"


def pool_of(source: str) -> str | None:
    """The pool of a dataset or snapshot; None for what is no name that a pool can have."""
    name = re.split("[/@]", source, maxsplit=1)[0]
    return None if name in ("", ".", "..") or "\0" in name else name


def counted(pool: str, lines: Iterable[str]) -> ZfsFacts:
    """The counters of a pool since its import, by the lines of its iostats; None each that is not among
    them."""
    counts = {match[1]: int(match[2]) for line in lines if (match := re.fullmatch(_LINE, line.strip()))}

    def total(what: str) -> int | None:
        values = [counts.get(f"{kind}_bytes_{what}") for kind in _KINDS]
        known = [value for value in values if value is not None]
        return sum(known) if known else None

    return ZfsFacts(
        pool=pool,
        trim_bytes_written=counts.get("trim_bytes_written"),
        autotrim_bytes_written=counts.get("autotrim_bytes_written"),
        trim_bytes_skipped=total("skipped"),
        trim_bytes_failed=total("failed"),
    )
