"""Python's layouts of the discard programs' data against the types in the built object."""

from __future__ import annotations

import enum
import json
import re
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from opwatch.collectors.audit.discard_programs import pack_granule
from opwatch.trim.audit import flow

HEADER = Path(__file__).parents[3] / "bpf/abi/discard.h"
OBJECT = Path(__file__).parents[3] / "build" / "bpf" / "discard.bpf.o"


@pytest.fixture(scope="module")
def types() -> dict[str, dict[str, Any]]:
    dump = subprocess.check_output(["bpftool", "--json", "btf", "dump", "file", str(OBJECT)])
    document = json.loads(dump)["types"]
    return {t["name"]: t for t in document if t["kind"] == "STRUCT"}


def list_members(one: dict[str, Any]) -> list[str]:
    return [member["name"] for member in one["members"]]


def test_amounts_have_the_names_of_the_header(types: dict[str, dict[str, Any]]) -> None:
    assert list_members(types["ow_flow"]) == list(flow.Amount.__dataclass_fields__)
    assert list_members(types["ow_discard_loss"]) == list(flow.DiscardLoss._fields)


def test_pairs_have_the_length_of_the_header(types: dict[str, dict[str, Any]]) -> None:
    assert len(pack_granule("sda", 512, 0)) == 16 + types["granule"]["size"]
    for key, value, decode in (
        ("ow_flow_key", "ow_flow", flow.decode_flows),
        ("ow_origin_key", "ow_origin", flow.decode_origins),
    ):
        assert len(decode(bytes(types[key]["size"] + types[value]["size"]))) == 1


def test_key_layout_matches_the_header(types: dict[str, dict[str, Any]]) -> None:
    key = types["ow_flow_key"]
    raw = bytearray(key["size"] + types["ow_flow"]["size"])
    for member, value in (("stage", 14), ("op", 3), ("sender", 2), ("status", 10)):
        at = next(m["bits_offset"] // 8 for m in key["members"] if m["name"] == member)
        raw[at] = value
    at = next(m["bits_offset"] // 8 for m in key["members"] if m["name"] == "dev")
    raw[at : at + 4] = struct.pack("=I", 8 << 20 | 1)
    [decoded] = flow.decode_flows(bytes(raw))
    assert (decoded.stage, decoded.op, decoded.who) == (flow.Stage.DONE, "discard", flow.SenderKind.OTHER)
    assert (decoded.status, decoded.dev) == (10, "8:1")


@pytest.mark.parametrize(
    ("name", "prefix", "mirror"),
    [("ow_stage", "OW_", flow.Stage), ("ow_sender", "OW_SENDER_", flow.SenderKind)],
)
def test_enum_values_match_the_header(name: str, prefix: str, mirror: type[enum.IntEnum]) -> None:
    """Compare with the header, because the object only has the numbers."""
    body = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
    names = re.search(rf"enum {name} {{(.*?)}}", body, re.S)
    assert names
    listed = [member.strip().removeprefix(prefix) for member in names[1].split(",") if member.strip()]
    assert [member for member in listed if member != "NR_STAGES"] == list(mirror.__members__)
    assert [int(member) for member in mirror] == list(range(len(mirror)))
