"""Modules imported at a start: each costs start-up time, so the number is limited without timing. Also lists
the imports inside functions that exist for this reason."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.unit.house.imports import parse_source
from tests.unit.house.test_architecture import read_package

# Modules of the standard library, and our modules that import many others.
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
    "subprocess",
)
# On most machines a check runs no tool and compiles no program.
CHECK = (
    *("ctypes", "datetime", "difflib", "shutil", "subprocess", "tomllib"),
    *("threading", "opwatch.trim.space.btrfs", "opwatch.trim.space.f2fs"),
)
# On most stacks an audit reads no drive pages, waits for no command, and traces no other requests.
AUDIT = (
    *("ctypes", "datetime", "difflib", "shutil", "subprocess", "tomllib"),
    *("opwatch.collectors.firmware.transports", "opwatch.counters", "opwatch.tools.runs.waiting"),
    *("opwatch.trace.abi", "opwatch.trim.space.btrfs", "opwatch.trim.space.lba_status"),
    # The thread pool for reading blocks imports all of logging; most callers that open a disk send a single
    # command.
    *("concurrent", "logging", "mmap"),
)
# Each takes 0.2 to 5 MB of an exporter's memory for as long as it runs.
EXPORTER = (
    "argparse",
    "decimal",
    "encodings.idna",
    "http.client",
    "ssl",
    "opwatch.drive.spec",
    "opwatch.sinks",
)
# Our modules cost time in every command.
ALL_HEAVY = (
    *HEAVY,
    *WATCH,
    "opwatch.tools.cli",
    "opwatch.sinks.terminal",
    "argparse",
    "dataclasses",
    "json",
)


def _list_imported(program: str) -> set[str]:
    argv = [sys.executable, "-c", f"import sys; {program}; print(*sys.modules, file=sys.stderr)"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize(
    ("program", "spared"),
    [
        ("sys.argv[1:] = ['--version']; from opwatch.__main__ import main; main()", ALL_HEAVY),
        ("import opwatch.tools.commands.watch", HEAVY),
        ("import opwatch.tools.commands.trim.check", CHECK),
        (
            "import opwatch.tools.commands.trim.audit, opwatch.tools.runs.trimming; "
            "import opwatch.sinks.trim_audit, opwatch.trim.audit.ledger",
            AUDIT,
        ),
        (
            "import opwatch.tools.dashboard.showing",
            ("textual", "opwatch.recording.reading.reader", "opwatch.tools.runs.run_recorder"),
        ),
        (
            "import opwatch.tools.exporter.lean; from opwatch.tools.exporter import listening; "
            "listening.open_listeners(['127.0.0.1:0'])",
            EXPORTER,
        ),
        ("import opwatch.drive.place, opwatch.drive.process", ("decimal", "fractions")),
    ],
    ids=["version", "watch", "check", "audit", "dashboard", "exporter", "drive"],
)
def test_start_imports_only_needed_modules(program: str, spared: tuple[str, ...]) -> None:
    # An interpreter imports some modules itself, for example for a .pth file.
    floor = _list_imported("0")
    assert [name for name in spared if name in _list_imported(program) - floor] == []


def test_garbage_collection_is_skipped_at_exit() -> None:
    program = "import gc, sys; sys.argv[1:] = ['devices', '-h']; from opwatch.__main__ import main"
    counted = "print(len(gc.get_objects()), gc.get_freeze_count(), file=sys.stderr)"
    argv = [sys.executable, "-c", f"{program}\ntry: main()\nexcept SystemExit: {counted}"]
    left, frozen = subprocess.run(argv, capture_output=True, text=True, check=True).stderr.split()
    assert int(left) < 100 < int(frozen)


# Modules with imports inside functions, to keep them out of a start, and the reasons. The extension does not
# count, because it is optional and may be built without its tracer.
LATE_IMPORTS = {
    # Importing the judging modules takes as long as a small trim, so the import happens during the trim.
    "opwatch.collectors.audit.accounts": 10,
    "opwatch.tools.runs.trimming": 3,
    "opwatch.tools.commands.trim.audit": 14,
    # The modules for NVMe and simulated drives are a sixth of a check's imports, and few stacks need them.
    "opwatch.collectors.firmware.simulated": 3,
    "opwatch.collectors.stack.disks": 2,
    "opwatch.collectors.stale.readback": 2,
    # btrfs and f2fs readers are for those filesystems only, and dates are for a timer.
    "opwatch.collectors.stack.filesystem": 2,
    "opwatch.trim.check.schedule": 1,
    # Needed only by an audit with sentinels, which also needs ctypes; and the btrfs and f2fs readers.
    "opwatch.collectors.space.free_space": 3,
    # A check or an audit of most stacks runs no tool, and most command lines have no misspelt word.
    "opwatch.host.process": 4,
    "opwatch.tools.arguments": 1,
    "opwatch.tools.cli": 1,
    # Programs are loaded in a thread as early as possible; this import is for failures.
    "opwatch.collectors.audit.discard_programs": 1,
    # Drives are polled in a thread, and a run without polls does not need the module.
    "opwatch.collectors.firmware.counting": 2,
    "opwatch.collectors.firmware.live": 3,
    "opwatch.samples.presenter": 2,
    "opwatch.tools.commands.completion": 2,
    "opwatch.tools.commands.dump": 2,
    # One of several, selected by an option.
    "opwatch.tools.runs.backends": 2,
    "opwatch.tools.commands.counters": 4,
    # The dashboard needs textual, which is large and optional.
    "opwatch.tools.commands.replay": 1,
    "opwatch.tools.commands.watch": 1,
    "opwatch.tools.runs.live_watch": 1,
    "opwatch.tools.config_file": 2,
    # textual takes half of the time to the first screen, and is imported while programs are loaded; the
    # module that keeps the last hour takes nearly as long, and is imported after the first interval is shown.
    "opwatch.tools.dashboard.showing": 2,
    # The exporter uses less memory than others: TLS takes 5 MB, firmware decoders 2 MB, passwords
    # and the command line 1 MB each, fractions 0.4 MB, and most exporters need only some.
    "opwatch.tools.commands.exporter": 1,
    "opwatch.drive.spec": 1,
    "opwatch.tools.exporter.access": 2,
    "opwatch.tools.exporter.drive_poller": 4,
    "opwatch.tools.exporter.exporter": 6,
    "opwatch.tools.exporter.http_server": 2,
    "opwatch.tools.exporter.launch": 1,
    "opwatch.tools.exporter.lean": 2,
    "opwatch.tools.exporter.otlp_push": 2,
    "opwatch.tools.exporter.site": 2,
}


def count_late_imports(source: str) -> int:
    """Return the number of imports inside functions, except imports of the extension."""
    functions = (
        node
        for node in ast.walk(parse_source(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    late = {
        node: ast.unparse(node)
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    return sum("_native" not in text for text in late.values())


def test_a_late_import_is_found() -> None:
    assert count_late_imports("import a\ndef f():\n    import b\n    def g():\n        from c import d") == 2
    assert count_late_imports("def f():\n    from opwatch._native import Tracer") == 0


def test_imports_are_at_the_top() -> None:
    """Exceptions are imports with a measured start-up cost, a comment, and a row here."""
    assert {
        name: late for name, source in read_package().items() if (late := count_late_imports(source))
    } == LATE_IMPORTS
