"""Python's layouts of the writes programs' data against the types in the built object."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from opwatch.writes.classes import (
    COUNTS,
    END_FUNCTIONS,
    GROUP,
    MAX_TARGETS,
    TARGET,
    WriteClass,
    WriteRule,
)
from opwatch.writes.processes import PROCESS

ROOT = Path(__file__).parents[3]
HEADER = ROOT / "bpf/abi/writes.h"
OBJECT = ROOT / "build/bpf/writes.bpf.o"


def read_types() -> dict[str, dict[str, Any]]:
    dump = subprocess.check_output(["bpftool", "--json", "btf", "dump", "file", str(OBJECT)])
    return {t["name"]: t for t in json.loads(dump)["types"] if t["kind"] == "STRUCT"}


def read_enumerators(name: str, prefix: str) -> list[str]:
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
    body = re.search(rf"enum {name} {{(.*?)}}", text, re.S)
    assert body
    return [
        member.split("=")[0].strip().removeprefix(prefix) for member in body[1].split(",") if member.strip()
    ]


def test_structures_have_the_sizes_of_the_header() -> None:
    structs = read_types()
    assert structs["ow_write_target"]["size"] == TARGET.size
    assert structs["ow_target_writes"]["size"] == COUNTS.size
    assert structs["ow_write_group"]["size"] + structs["ow_write_count"]["size"] == GROUP.size
    assert structs["ow_write_process"]["size"] + structs["ow_process_writes"]["size"] == PROCESS.size
    members = [member["name"] for member in structs["ow_write_target"]["members"]]
    assert members == ["first_sector", "end_sector", "disk", "dev", "has_filesystem", "pad"]


def test_class_and_rule_numbers_match_the_header() -> None:
    classes = read_enumerators("ow_write_class", "OW_CLASS_")
    assert classes[:-1] == list(WriteClass.__members__)
    assert [int(kind) for kind in WriteClass] == list(range(len(WriteClass)))
    rules = read_enumerators("ow_write_rule", "OW_RULE_")
    assert rules[:-1] == list(WriteRule.__members__)
    assert [int(rule) for rule in WriteRule] == list(range(len(WriteClass), len(WriteClass) + len(WriteRule)))


def test_limits_match_the_header() -> None:
    limits = dict(re.findall(r"#define (OW_MAX_\w+)\s+(\d+)", HEADER.read_text()))
    assert int(limits["OW_MAX_WRITE_TARGETS"]) == MAX_TARGETS
    assert len(END_FUNCTIONS) * 2 <= int(limits["OW_MAX_END_FUNCTIONS"]) + 2
