"""Python's layouts against the types in the built BPF object."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from opwatch.owners.cells import (
    CELL_BYTES,
    OwnedCounts,
    OwnedWaits,
    OwnerGrouping,
    OwnerKey,
    OwnerKind,
    ReadCells,
    decode_cells,
)
from opwatch.trace import abi
from opwatch.trace.slow import SLOW_BYTES, SlowRecord, Submitter, decode_slow

OBJECT = Path(__file__).parents[3] / "build" / "bpf" / "blk.bpf.o"


@pytest.fixture(scope="module")
def structs() -> dict[str, dict[str, Any]]:
    dump = subprocess.check_output(["bpftool", "--json", "btf", "dump", "file", str(OBJECT)])
    types = json.loads(dump)["types"]
    return {t["name"]: t for t in types if t["kind"] == "STRUCT" and t["name"].startswith("ow_")}


def list_members(struct: dict[str, Any]) -> list[str]:
    return [member["name"] for member in struct["members"]]


def test_counters_have_the_names_and_the_order_of_the_header(structs: dict[str, dict[str, Any]]) -> None:
    parts = (
        "ow_issue_counts",
        "ow_complete_counts",
        "ow_entry_counts",
        "ow_requeue_counts",
        "ow_wait_counts",
    )
    expected = [name for part in parts for name in list_members(structs[part])]
    fields = list(abi.OpSample._fields)
    assert fields == [
        "completed",
        "in_flight",
        "in_flight_ns",
        *expected,
        "latency",
        "queue",
        "sizes",
        "statuses",
    ]
    assert structs["ow_counts"]["size"] == 8 * len(expected)
    assert list_members(structs["ow_counts"]) == ["issue", "complete", "entry", "requeue", "wait"]
    assert structs["ow_row"]["size"] == structs["ow_cell"]["size"] * len(abi.OPS)
    assert structs["ow_full_row"]["size"] == structs["ow_row"]["size"] + structs["ow_hot_hists"]["size"]


def test_per_request_counters_fit_a_cache_line(
    structs: dict[str, dict[str, Any]],
) -> None:
    assert structs["ow_cell"]["size"] % 64 == structs["ow_full_row"]["size"] % 64 == 0
    offsets = {member["name"]: member["bits_offset"] // 8 for member in structs["ow_counts"]["members"]}
    assert offsets["issue"] == 0
    often = {
        member["name"]: member["bits_offset"] // 8 for member in structs["ow_complete_counts"]["members"]
    }
    assert structs["ow_issue_counts"]["size"] == offsets["complete"]
    assert (
        max(offsets["complete"] + often[name] for name in ("ends", "bytes", "sum_ns", "max_ns", "end_sum_ns"))
        < 64
    )


def test_histograms_have_the_lengths_of_the_header(structs: dict[str, dict[str, Any]]) -> None:
    assert structs["ow_latency"]["size"] == 8 * abi.LATENCY.slots
    assert structs["ow_sizes"]["size"] == 8 * abi.SIZE.slots
    assert list_members(structs["ow_hist"]) == ["latency", "sizes"]
    assert structs["ow_hot_hists"]["size"] == abi.HOT_OPS * structs["ow_hist"]["size"]


def test_disk_struct_fills_a_cache_line(structs: dict[str, dict[str, Any]]) -> None:
    assert structs["ow_disk"]["size"] == 64


def test_packed_target_and_disk_key_match_the_header_layout(structs: dict[str, dict[str, Any]]) -> None:
    target = structs["ow_target"]
    assert len(abi.Target(0, 1, 2, 3, 4).pack(0)) == target["size"]
    offsets = {member["name"]: member["bits_offset"] // 8 for member in target["members"]}
    packed = abi.Target(1, 2, 3, 4, 5, 6, True, True, 7).pack(8)
    for name, value in (
        ("first_sector", 1),
        ("last_sector", 2),
        ("stamps", 3),
        ("nr_queues", 4),
        ("depth", 5),
        ("next", 6),
        ("bio_based", 1),
        ("ends_twice", 1),
        ("stamp_mask", 7),
        ("index", 8),
    ):
        assert packed[offsets[name]] == value, name
    assert len(abi.pack_disk_key((8, 0), "sda", 0)) == structs["ow_disk_key"]["size"]


def test_operations_are_numbered_as_in_the_header(structs: dict[str, dict[str, Any]]) -> None:
    header = (OBJECT.parents[2] / "bpf/abi/block.h").read_text()
    body = header.split("enum ow_op {")[1].split("}")[0]
    names = [line.strip().rstrip(",") for line in body.strip().splitlines()]
    assert names == [f"OW_{op.upper()}" for op in abi.OPS] + ["OW_NR_OPS"]


def test_decoded_owner_matches_the_header_layout(structs: dict[str, dict[str, Any]]) -> None:
    names = ("ow_owner_key", "ow_owner", "ow_owner_counts", "ow_owner_waits")
    key, owner, counts, waits = (structs[name] for name in names)
    # struct ow_owner_sample holds the key, the name, the counters and the waits.
    assert key["size"] + (owner["size"] - 8) + counts["size"] + waits["size"] == CELL_BYTES
    assert list_members(counts) == ["requests", "bytes", "sum_ns", "pad"]
    assert list_members(waits) == [*OwnedWaits._fields, "pad"]
    raw = bytearray(CELL_BYTES)
    values = {"id": 7, "pid": 9, "target": 1, "op": 1, "kind": 1, "by": OwnerGrouping.PROCESS.number}
    for member in key["members"]:
        raw[member["bits_offset"] // 8] = values[member["name"]]
    raw[key["size"]] = ord("x")
    begin = key["size"] + owner["size"] - 8
    for number in range(3):
        raw[begin + 8 * number] = 3 + number
    for number in range(len(OwnedWaits._fields)):
        raw[begin + counts["size"] + 8 * number] = 6 + number
    process = OwnerKey(OwnerKind.PROCESS, 9, 7)
    expected = OwnedCounts(3, 4, 5, OwnedWaits(6, 7, 8, 9, 10, 11, 12))
    assert decode_cells(bytes(raw)) == ReadCells({(process, "write"): expected}, {process: "x"})


def test_decoded_slow_request_matches_the_header_layout(structs: dict[str, dict[str, Any]]) -> None:
    slow = structs["ow_slow"]
    assert slow["size"] == SLOW_BYTES
    raw = bytearray(SLOW_BYTES)
    values = {"end_ns": 3, "latency_ns": 4, "queue_ns": 5, "sector": 6, "cgroup": 7, "bytes": 8, "pid": 9}
    values |= {"target": 10, "op": 1, "kind": 1, "name": ord("x")}
    for member in slow["members"]:
        raw[member["bits_offset"] // 8] = values.get(member["name"], 0)
    assert decode_slow(bytes(raw)) == [SlowRecord(10, 3, "write", 6, 8, 4, 5, Submitter.PROCESS, 9, "x", 7)]
