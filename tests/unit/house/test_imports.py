"""What a start imports: each of these takes as long as all that it is imported for. Counted, not timed. And
what is imported later for that reason, which is no other's to do."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.unit.house.imports import parsed
from tests.unit.house.test_architecture import package

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
# A check runs no tool on most machines, and compiles nothing.
CHECK = (
    *("ctypes", "dataclasses", "datetime", "difflib", "inspect", "shutil", "subprocess", "tomllib"),
    *("threading", "typing", "opwatch.trim.space.btrfs", "opwatch.trim.space.f2fs"),
)
# An audit of most stacks asks no drive for pages, waits for no command, and traces no request of others.
AUDIT = (
    *("ctypes", "dataclasses", "datetime", "difflib", "inspect", "shutil", "subprocess", "tomllib", "typing"),
    *("opwatch.collectors.firmware.transports", "opwatch.counters", "opwatch.tools.waiting"),
    *("opwatch.trace.abi", "opwatch.trim.space.btrfs", "opwatch.trim.space.lba_status"),
    # The pool that reads blocks brings the whole of logging; most who open a disk ask it one thing.
    *("concurrent", "logging", "mmap"),
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
        ("import opwatch.tools.commands.trim.check", CHECK),
        (
            "import opwatch.tools.commands.trim.audit, opwatch.collectors.audit.trimming; "
            "import opwatch.sinks.trim_audit, opwatch.trim.audit.ledger",
            AUDIT,
        ),
        (
            "import opwatch.tools.dashboard.showing",
            ("textual", "opwatch.recording.reading.reader", "opwatch.tools.kept_run"),
        ),
    ],
    ids=["version", "watch", "check", "audit", "dashboard"],
)
def test_a_start_imports_no_more_than_it_needs(program: str, spared: tuple[str, ...]) -> None:
    # An interpreter imports some on its own, as a .pth file wants it.
    floor = _imported("0")
    assert [name for name in spared if name in _imported(program) - floor] == []


def test_no_garbage_is_looked_for_at_the_end() -> None:
    program = "import gc, sys; sys.argv[1:] = ['devices', '-h']; from opwatch.__main__ import main"
    counted = "print(len(gc.get_objects()), gc.get_freeze_count(), file=sys.stderr)"
    argv = [sys.executable, "-c", f"{program}\ntry: main()\nexcept SystemExit: {counted}"]
    left, frozen = subprocess.run(argv, capture_output=True, text=True, check=True).stderr.split()
    assert int(left) < 100 < int(frozen)


# Who imports what in a function, so that it is not imported at a start, and why. The extension, which may be
# built without its tracer, is an optional part and not counted.
LATE = {
    # What a trim is judged by takes as long to import as a small trim: it is imported during one.
    "opwatch.collectors.audit.accounts": 10,
    "opwatch.collectors.audit.trimming": 3,
    "opwatch.tools.commands.trim.audit": 14,
    # What asks NVMe and simulated drives is a sixth of what a check imports, and few stacks have one.
    "opwatch.collectors.firmware.simulated": 3,
    "opwatch.collectors.stack.disks": 2,
    "opwatch.collectors.stale.readback": 2,
    # What reads a btrfs or an f2fs is for such a filesystem alone, and dates are for a timer.
    "opwatch.collectors.stack.filesystem": 2,
    "opwatch.trim.check.schedule": 1,
    # What only an audit with sentinels calls, and ctypes for it; what reads a btrfs or an f2fs.
    "opwatch.collectors.space.free_space": 3,
    # A check or an audit of most stacks runs no tool, and most command lines have no word that is misspelt.
    "opwatch.host.process": 4,
    "opwatch.tools.arguments": 1,
    # The programs are loaded in a thread as early as can be; this is for what goes wrong.
    "opwatch.collectors.audit.discard_programs": 1,
    # Drives are asked in a thread, and a run that never asks one does without.
    "opwatch.collectors.firmware.counting": 2,
    "opwatch.collectors.firmware.live": 3,
    "opwatch.samples.story": 2,
    # One of several, by an option.
    "opwatch.tools.backends": 2,
    "opwatch.tools.commands.counters": 4,
    # The dashboard has textual, which is much, and need not be there.
    "opwatch.tools.commands.replay": 1,
    "opwatch.tools.commands.watch": 2,
    # Textual is half of what a first screen takes, and is imported while programs are loaded; what keeps the
    # last hour would take nearly as long, and is imported once an interval is shown.
    "opwatch.tools.dashboard.showing": 2,
}


def late_imports(source: str) -> int:
    """Imports inside of functions, but for those of the extension."""
    functions = (
        node for node in ast.walk(parsed(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    late = {
        node: ast.unparse(node)
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    return sum("_native" not in text for text in late.values())


def test_a_late_import_is_found() -> None:
    assert late_imports("import a\ndef f():\n    import b\n    def g():\n        from c import d") == 2
    assert late_imports("def f():\n    from opwatch._native import Tracer") == 0


def test_imports_stand_at_the_top() -> None:
    """But for those whose time at a start was measured; with a comment there, and a row here."""
    assert {name: late for name, source in package().items() if (late := late_imports(source))} == LATE
