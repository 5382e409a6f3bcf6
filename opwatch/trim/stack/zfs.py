"""Read OpenZFS's discard counters for a pool. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from opwatch.trim.stack.facts import ZfsFacts

# Discards by `zpool trim`, by autotrim, and of whole devices when added or removed.
_KINDS = ("trim", "autotrim", "simple_trim")
_LINE = r"([a-z_]{1,40}) +[0-9]{1,2} +([0-9]{1,20})"


def parse_pool_name(source: str) -> str | None:
    """Return the pool of a dataset or snapshot; None if the name cannot belong to a pool."""
    name = re.split("[/@]", source, maxsplit=1)[0]
    return None if name in ("", ".", "..") or "\0" in name else name


def parse_counters(pool: str, lines: Iterable[str]) -> ZfsFacts:
    """Return a pool's counters since import, from the lines of its iostats; None for each missing counter."""
    counts = {match[1]: int(match[2]) for line in lines if (match := re.fullmatch(_LINE, line.strip()))}

    def sum_counts(what: str) -> int | None:
        values = [counts.get(f"{kind}_bytes_{what}") for kind in _KINDS]
        known = [value for value in values if value is not None]
        return sum(known) if known else None

    return ZfsFacts(
        pool=pool,
        trim_bytes_written=counts.get("trim_bytes_written"),
        autotrim_bytes_written=counts.get("autotrim_bytes_written"),
        trim_bytes_skipped=sum_counts("skipped"),
        trim_bytes_failed=sum_counts("failed"),
    )
