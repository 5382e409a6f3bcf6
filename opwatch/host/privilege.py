"""How to run this very opwatch with the privilege that it lacks, and how to add a package to it.

opwatch itself is on no package index: a command that installs `opwatch` by name would install another
project's code.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from pathlib import Path

import opwatch
from opwatch.errors import PermissionMissing

# setup.py has the same, as extras.
DUCKDB = "duckdb>=2,<3"
TEXTUAL = "textual>=8,<9"


def own_command() -> str:
    """This opwatch by its full path: sudo has a PATH of its own. Where there is no script, the module by -P,
    which does not import from the folder one happens to be in."""
    called = _script() if Path(sys.argv[0]).name == "opwatch" else None
    beside = Path(sys.executable).parent / "opwatch"
    if called:
        return shlex.quote(str(called.absolute()))
    if os.access(beside, os.X_OK):
        return shlex.quote(str(beside))
    module = f"{shlex.quote(sys.executable)} -P -m opwatch"
    if _is_installed():
        return module
    return f"env PYTHONPATH={shlex.quote(str(Path(opwatch.__file__).parents[1]))} {module}"


def _script() -> Path | None:
    """The script that was called, by its path or found as a shell does. shutil.which() would find the same,
    and takes longer to import than all else here."""
    folder, name = os.path.split(sys.argv[0])
    candidates = (Path(place, name) for place in ([folder] if folder else os.get_exec_path()))
    return next((path for path in candidates if path.is_file() and os.access(path, os.X_OK)), None)


def _is_installed() -> bool:
    # importlib.metadata would find the same, but takes longer to import than all that is told here.
    return any(True for folder in sys.path for _ in Path(folder or ".").glob("opwatch-*.dist-info"))


def missing(what: str, needs: str, command: str = "...", otherwise: str = "") -> PermissionMissing:
    """The error of `what` without the privilege `needs`: with the command that has it."""
    words = f"{what} needs {needs}. Try: sudo {own_command()} {command}"
    return PermissionMissing(words + (f" ({otherwise})" if otherwise else ""))


# linux/capability.h
_DAC_OVERRIDE, _DAC_READ_SEARCH, _FOWNER, _KILL, _SYS_RAWIO, _SYS_ADMIN = 1, 2, 3, 5, 17, 21
_SYS_RESOURCE, _PERFMON, _BPF = 24, 38, 39
_OF_A_RECORDER = (
    *(_DAC_OVERRIDE, _DAC_READ_SEARCH, _FOWNER, _KILL),  # to write where the user may, and read /proc
    *(_SYS_RAWIO, _SYS_ADMIN),  # to ask drives for their log pages
    *(_SYS_RESOURCE, _PERFMON, _BPF),  # to trace
)


def keep_recorder_privileges() -> None:
    """Drop every capability that a recorder does not need. Call it before threads are started; processes
    started from now on are limited as well."""
    # Kernels that cannot are watched all the same.
    with contextlib.suppress(ImportError, OSError):
        from opwatch import _native

        _native.limit_capabilities(sum(1 << number for number in _OF_A_RECORDER))


def require_root(what: str, needs: str, command: str, otherwise: str = "") -> None:
    if os.geteuid() != 0:
        raise missing(what, f"root: {needs}", command, otherwise)


def install_command(requirement: str) -> str:
    """Return the shell command that adds a package where this Python finds it."""
    sudo = "" if os.access(sys.prefix, os.W_OK) else "sudo "
    return f"{sudo}{shlex.quote(sys.executable)} -m pip install {shlex.quote(requirement)}"
