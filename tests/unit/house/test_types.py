"""The kernel types that the user side keeps for libbpf are the types that the programs name."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
# libbpf looks up another kernel's variant of a type by the name before the three underscores.
_TYPE = re.compile(r"^(?:struct|enum) (\w+?)(?:___\w+)? \{", re.MULTILINE)
_RELOCATED = re.compile(r"preserve_access_index.*?#pragma clang attribute pop", re.DOTALL)


def _find_program_types() -> set[str]:
    names: set[str] = set()
    for path in (ROOT / "bpf").rglob("*.[ch]"):
        text = path.read_text()
        names |= {name for part in _RELOCATED.findall(text) for name in _TYPE.findall(part)}
        # Enums are read through macros for their values.
        names |= set(re.findall(r"bpf_core_enum_value(?:_exists)?\(enum (\w+)", text))
    return names


def _read_table(file: str, name: str) -> str:
    text = (ROOT / "opwatch/_native/common" / file).read_text()
    start = text.index(f"{name}[] = {{")
    return text[start : text.index("};", start)]


def _list_kept_types() -> list[str]:
    return re.findall(r'"(\w+)"', _read_table("selection.c", "wanted_names"))


def test_every_type_that_a_program_names_is_kept() -> None:
    names = _find_program_types()
    assert {"request", "bio", "req_opf"} <= names
    assert names <= set(_list_kept_types())


def test_names_are_sorted_for_the_lookup() -> None:
    assert _list_kept_types() == sorted(set(_list_kept_types()))


def test_attach_targets_of_typed_programs_are_listed() -> None:
    kinds = {"tp_btf": "AT_EVENT", "fentry": "AT_ENTRY", "fexit": "AT_EXIT"}
    known = set(re.findall(r'\b(AT_\w+)\("(\w+)"\)', _read_table("types.c", "targets")))
    sections = {
        (kinds[kind], name)
        for path in (ROOT / "bpf").rglob("*.[ch]")
        for kind, name in re.findall(r'SEC\("(tp_btf|fentry|fexit)/(\w+)"\)', path.read_text())
    }
    assert sections == known
