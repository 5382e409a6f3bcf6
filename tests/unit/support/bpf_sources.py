"""The BPF programs of an object, found in its sources."""

from __future__ import annotations

import re
from pathlib import Path

BPF = Path(__file__).parents[3] / "bpf"
_PROGRAM = re.compile(r'^SEC\("([a-z_]+/\w+)"\)\nint (\w+)\(', re.MULTILINE)


def read_sections(*files: str) -> dict[str, str]:
    """Return program name -> section, for all source files of an object."""
    return {name: section for file in files for section, name in _PROGRAM.findall((BPF / file).read_text())}
