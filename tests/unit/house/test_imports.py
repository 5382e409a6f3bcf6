"""What a start imports: each of these takes as long as all that it is imported for. Counted, not timed."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Of the standard library, and ours that bring many others with them.
HEAVY = (
    *("importlib.metadata", "tomllib", "email.message", "zipfile", "asyncio", "multiprocessing"),
    *(
        "opwatch.counters.catalogue.families",
        "opwatch.waf.measure",
        "opwatch.trim.stack.layers",
        "opwatch.collectors.firmware.transports",
    ),
)
WATCH = (
    "opwatch.tools.commands.watch",
    "opwatch.collectors.block.blk",
    "dataclasses",
    "subprocess",
    "inspect",
)
# Each of ours that is imported takes its time from what is told.
NOTHING = (*HEAVY, *WATCH, "opwatch.tools.cli", "opwatch.sinks.terminal", "argparse", "json", "typing")


def _imported(program: str) -> set[str]:
    argv = [sys.executable, "-c", f"import sys; {program}; print(*sys.modules, file=sys.stderr)"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize(
    ("program", "spared"),
    [
        ("sys.argv[1:] = ['--version']; from opwatch.__main__ import main; main()", NOTHING),
        ("import opwatch.tools.commands.watch", HEAVY),
    ],
    ids=["version", "watch"],
)
def test_a_start_imports_no_more_than_it_needs(program: str, spared: tuple[str, ...]) -> None:
    # An interpreter imports some on its own, as a .pth file wants it.
    floor = _imported("0")
    assert [name for name in spared if name in _imported(program) - floor] == []
