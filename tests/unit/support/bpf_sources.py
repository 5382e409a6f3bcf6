"""The programs of an object, read off its sources."""

from __future__ import annotations

import re
from pathlib import Path

BPF = Path(__file__).parents[3] / "bpf"
_PROGRAM = re.compile(r'^SEC\("([a-z_]+/\w+)"\)\nint (\w+)\(', re.MULTILINE)


def section_of(*files: str) -> dict[str, str]:
    """The name of each program -> its section, of all files that make an object."""
    return {name: section for file in files for section, name in _PROGRAM.findall((BPF / file).read_text())}
