"""Python's layouts of the history programs' data against the types in the built object."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from opwatch.trim.history.changes import RECORD, ChangeKind, DiskChange, HistoryLoss

HEADER = Path(__file__).parents[3] / "bpf/abi/history.h"
OBJECT = Path(__file__).parents[3] / "build" / "bpf" / "history.bpf.o"


def read_types() -> dict[str, dict[str, Any]]:
    dump = subprocess.check_output(["bpftool", "--json", "btf", "dump", "file", str(OBJECT)])
    return {t["name"]: t for t in json.loads(dump)["types"] if t["kind"] == "STRUCT"}


def test_records_and_losses_have_the_fields_of_the_header() -> None:
    structs = read_types()
    change = structs["ow_change"]
    assert change["size"] == RECORD.size
    assert [member["name"] for member in change["members"]] == list(DiskChange._fields)
    assert [member["bits_offset"] // 8 for member in change["members"]] == [0, 8, 16, 24, 28, 29, 30]
    assert [member["name"] for member in structs["ow_history_loss"]["members"]] == list(HistoryLoss._fields)


def test_kind_numbers_match_the_header() -> None:
    """Compare with the header, because the object only has the numbers."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
    body = re.search(r"enum ow_change_kind {(.*?)}", text, re.S)
    assert body
    names = [member.strip().removeprefix("OW_CHANGE_") for member in body[1].split(",") if member.strip()]
    assert names == list(ChangeKind.__members__)
    assert [int(kind) for kind in ChangeKind] == list(range(len(ChangeKind)))
