"""C source for bcc: the bodies of bpf/ after tools/bcc/dialect.h, and its constants. Pure."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from opwatch.collectors.block.blk import Plan
from opwatch.trace import abi

# Installed with opwatch.tools. The bodies are links to bpf/.
FOLDER = Path(__file__).parents[2] / "tools" / "bcc"
_FILES = ("dialect.h", "hist.h", "op.h", "target.h", "inflight.h", "rq.h", "hooks.c")
_DISK_KEY = struct.Struct("=QQII")
# OW_MAX_SPREAD, and the operations except hot ones and OW_OTHER.
MAX_SPREAD = 16
RARE_OPS = len(abi.OPS) - abi.HOT_OPS - 1
_LOOKUP = re.compile(r"\bmap_(lookup|delete)\((\w+),\s*")
_UPDATE = re.compile(r"\bmap_update\((\w+),\s*")


def convert_to_bcc(text: str) -> str:
    """Convert a file of bpf/ to bcc syntax: table.lookup(key) instead of map_lookup(table, key)."""
    text = _LOOKUP.sub(r"\2.\1(", text)
    return _UPDATE.sub(r"\1.update(", text)


def _format_lookup(disk_keys: bytes) -> str:
    return " ".join(
        f"if (a == {a:#x}ULL && b == {b:#x}ULL) return {target};"
        for a, b, target, _ in _DISK_KEY.iter_unpack(disk_keys)
    )


def count_other_hists(cpus: int) -> int:
    """Return the number of OW_OTHER histograms, a power of two."""
    return min(MAX_SPREAD, 1 << (cpus - 1).bit_length())


def count_cold_hists(cpus: int) -> int:
    """Mirror ow_cold_hists_per_target(): a histogram for each cold operation, several for the last."""
    return RARE_OPS + count_other_hists(cpus)


def cold_hists(target: int, op: int, cpus: int) -> range:
    """Mirror ow_cold_index(): return the histograms of an operation."""
    first = target * count_cold_hists(cpus)
    if op == len(abi.OPS) - 1:
        return range(first + RARE_OPS, first + RARE_OPS + count_other_hists(cpus))
    return range(first + op - abi.HOT_OPS, first + op - abi.HOT_OPS + 1)


def queue_hists(target: int, op: int, cpus: int) -> range:
    """Mirror ow_queue_index(): return the queue time histograms of an operation."""
    first = target * (cpus * abi.HOT_OPS + count_cold_hists(cpus))
    if op < abi.HOT_OPS:
        return range(first + op, first + cpus * abi.HOT_OPS, abi.HOT_OPS)
    cold = cold_hists(0, op, cpus)
    first += cpus * abi.HOT_OPS
    return range(first + cold.start, first + cold.stop)


def make_constants(plan: Plan, cpus: int, *, queue_time: bool, own_queue_stamp: bool) -> dict[str, str | int]:
    """Return the constants for dialect.h. Unused tables get one entry, because bcc has no empty tables."""
    targets = len(plan.targets)
    cold = targets * count_cold_hists(cpus)
    # Only a hidden disk has a key with a second word and no dev_t.
    hidden = any(a >> 32 for a, _, _, _ in _DISK_KEY.iter_unpack(plan.disk_keys))
    whole = all((target.first_sector, target.last_sector) == abi.WHOLE_DISK for target in plan.targets)
    return {
        "OWB_CPUS": cpus,
        "OWB_SPREAD": count_other_hists(cpus),
        "OWB_ANY_HIDDEN": int(hidden),
        "OWB_ANY_PARTITION": int(not whole),
        "OWB_QUEUE_TIME": int(queue_time),
        "OWB_OWN_QUEUE_STAMP": int(own_queue_stamp),
        "OWB_ROWS": targets * cpus,
        "OWB_COLD_HISTS": cold,
        "OWB_QUEUE_HISTS": targets * cpus * abi.HOT_OPS + cold if queue_time else 1,
        "OWB_STATUSES": targets * len(abi.OPS),
        "OWB_STAMPS": max(plan.stamps, 1),
        "OWB_QUEUE_STAMPS": max(plan.stamps, 1) if own_queue_stamp else 1,
        "OWB_LOOK_UP": _format_lookup(plan.disk_keys),
    }


def build_source(known: dict[str, str | int], folder: Path = FOLDER) -> str:
    """Return the complete program text."""
    parts = [f"#define {name} {value}" for name, value in known.items()]
    for name in _FILES:
        text = convert_to_bcc((folder / name).read_text())
        if name == "dialect.h":
            text = text.replace('#include "opwatch_abi.h"', (folder / "opwatch_abi.h").read_text())
        parts.append(text)
    return "\n".join(parts)
