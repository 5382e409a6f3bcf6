"""ZFS, and OpenZFS's discard counters for a pool. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from opwatch.trim.filesystems.base import FilesystemKind
from opwatch.trim.stack.causes import Reason, make_reason
from opwatch.trim.stack.facts import FilesystemFacts
from opwatch.trim.stack.layers import Filesystem

# Discards by `zpool trim`, by autotrim, and of whole devices when added or removed.
_KINDS = ("trim", "autotrim", "simple_trim")
_LINE = r"([a-z_]{1,40}) +[0-9]{1,2} +([0-9]{1,20})"


@dataclass(frozen=True, slots=True)
class ZfsFacts(FilesystemFacts):
    """Facts of ZFS: the pool's discard counters since import. Skipped extents are below ZFS's size limit."""

    pool: str | None = None
    trim_bytes_written: int | None = None
    autotrim_bytes_written: int | None = None
    trim_bytes_skipped: int | None = None
    trim_bytes_failed: int | None = None


class Zfs(FilesystemKind):
    """ZFS, which trims by its own commands."""

    names = ("zfs",)
    facts = ZfsFacts
    no_map_reason = "ZFS reports its free space only to zdb"

    def find_refusal(self, filesystem: Filesystem) -> Reason | None:
        pool = parse_pool_name(filesystem.source) or filesystem.source
        observed = _describe_pool(filesystem, pool)
        return make_reason("zfs-trims-itself", filesystem.point, observed, pool=pool)


def _describe_pool(filesystem: Filesystem, pool: str) -> str:
    """Return ZFS's own trim counters as text."""
    observed, facts = f"filesystem type zfs, pool {pool}", filesystem.facts
    if not isinstance(facts, ZfsFacts):
        return observed
    counts = {
        "by zpool trim": facts.trim_bytes_written,
        "by autotrim": facts.autotrim_bytes_written,
        "too small": facts.trim_bytes_skipped,
        "failed": facts.trim_bytes_failed,
    }
    amounts = ", ".join(f"{count} B {words}" for words, count in counts.items() if count is not None)
    return f"{observed}; since its import: {amounts}" if amounts else observed


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
