"""The kernel's types that the user side keeps for libbpf are those that the programs name."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
# A type as another kernel had it is looked for by the name before the three underscores.
_TYPE = re.compile(r"^(?:struct|enum) (\w+?)(?:___\w+)? \{", re.MULTILINE)
_RELOCATED = re.compile(r"preserve_access_index.*?#pragma clang attribute pop", re.DOTALL)


def _types_of_programs() -> set[str]:
    names: set[str] = set()
    for path in (ROOT / "bpf").rglob("*.[ch]"):
        text = path.read_text()
        names |= {name for part in _RELOCATED.findall(text) for name in _TYPE.findall(part)}
        # Of enums the value is asked for by macros.
        names |= set(re.findall(r"bpf_core_enum_value(?:_exists)?\(enum (\w+)", text))
    return names


def _kept() -> set[str]:
    text = (ROOT / "opwatch/_native/common/types.c").read_text()
    start = text.index("named[] = {")
    return set(re.findall(r'"(\w+)"', text[start : text.index("};", start)]))


def test_every_type_that_a_program_names_is_kept() -> None:
    names = _types_of_programs()
    assert {"request", "bio", "req_opf"} <= names
    assert names <= _kept()


def test_a_tracepoint_of_a_typed_program_is_known_by_its_number() -> None:
    text = (ROOT / "opwatch/_native/common/types.c").read_text()
    start = text.index("tracepoints[] = {")
    known = set(re.findall(r'"(\w+)"', text[start : text.index("};", start)]))
    sections = {
        name
        for path in (ROOT / "bpf").rglob("*.[ch]")
        for name in re.findall(r'SEC\("tp_btf/(\w+)"\)', path.read_text())
    }
    assert sections == known
