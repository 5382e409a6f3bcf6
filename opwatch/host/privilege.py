"""Commands to run opwatch with more privileges, or to add a package to its environment.

opwatch is not in any package index: installing `opwatch` by name would install another project's code.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path

import opwatch
from opwatch.errors import PermissionMissing

# Same as the extras in setup.py.
DUCKDB = "duckdb>=2,<3"
TEXTUAL = "textual>=8,<9"


def build_own_command() -> str:
    """Return the shell command of this opwatch by full path, because sudo uses another PATH.

    Without a script, run the module with -P, which does not import from the current directory.
    """
    called = _find_script() if Path(sys.argv[0]).name == "opwatch" else None
    beside = Path(sys.executable).parent / "opwatch"
    if called:
        return shlex.quote(str(called.absolute()))
    if os.access(beside, os.X_OK):
        return shlex.quote(str(beside))
    module = f"{shlex.quote(sys.executable)} -P -m opwatch"
    if _is_installed():
        return module
    return f"env PYTHONPATH={shlex.quote(str(Path(opwatch.__file__).parents[1]))} {module}"


def _find_script() -> Path | None:
    """Return the called script, by path or by searching PATH like a shell. shutil.which() would do, but the
    import takes longer than the rest of the module."""
    folder, name = os.path.split(sys.argv[0])
    candidates = (Path(place, name) for place in ([folder] if folder else os.get_exec_path()))
    return next((path for path in candidates if path.is_file() and os.access(path, os.X_OK)), None)


def _is_installed() -> bool:
    # importlib.metadata would do, but the import takes longer than the rest of the module.
    return any(True for folder in sys.path for _ in Path(folder or ".").glob("opwatch-*.dist-info"))


def make_permission_error(
    what: str, needs: str, command: str = "...", otherwise: str = ""
) -> PermissionMissing:
    """Return an error for `what` without the privilege `needs`, with a command to fix the problem."""
    words = f"{what} needs {needs}. Try: sudo {build_own_command()} {command}"
    return PermissionMissing(words + (f" ({otherwise})" if otherwise else ""))


# linux/capability.h
_DAC_OVERRIDE, _DAC_READ_SEARCH, _FOWNER, _KILL, _SYS_RAWIO, _SYS_ADMIN = 1, 2, 3, 5, 17, 21
_SYS_RESOURCE, _PERFMON, _BPF = 24, 38, 39
_RECORDER_CAPABILITIES = (
    *(_DAC_OVERRIDE, _DAC_READ_SEARCH, _FOWNER, _KILL),  # write where the user may, and read /proc
    *(_SYS_RAWIO, _SYS_ADMIN),  # read log pages from drives
    *(_SYS_RESOURCE, _PERFMON, _BPF),  # trace
)


# An exporter writes no files.
EXPORTER_CAPABILITIES = (_DAC_READ_SEARCH, _SYS_RAWIO, _SYS_ADMIN, _SYS_RESOURCE, _PERFMON, _BPF)
# With the broker it only reads certificates again.
EXPORTER_WITH_BROKER = (_DAC_READ_SEARCH,)


def drop_privileges(kept: Iterable[int] = _RECORDER_CAPABILITIES) -> None:
    """Drop every capability not needed by a recorder, or all but the `kept` ones. Call before threads are
    started; processes started later are limited as well."""
    # If the kernel cannot limit capabilities, keep all.
    with contextlib.suppress(ImportError, OSError):
        from opwatch import _native

        _native.limit_capabilities(sum(1 << number for number in kept))


def require_root(what: str, needs: str, command: str, otherwise: str = "") -> None:
    if os.geteuid() != 0:
        raise make_permission_error(what, f"root: {needs}", command, otherwise)


# Sees the packages of the distribution, opwatch among them.
_ENVIRONMENT = "/opt/opwatch"


def build_install_command(requirement: str) -> str:
    """Return the shell command for installing a package into this Python.

    pip refuses to change a Python that belongs to the distribution. The command then makes an environment
    beside it, and starts opwatch there.
    """
    sudo = "" if os.access(sys.prefix, os.W_OK) else "sudo "
    python, wanted = shlex.quote(sys.executable), shlex.quote(requirement)
    if not _is_externally_managed():
        return f"{sudo}{python} -m pip install {wanted}"
    own = f"{_ENVIRONMENT}/bin/python"
    return (
        f"{sudo}{python} -m venv --system-site-packages {_ENVIRONMENT} && {sudo}{own} -m pip install {wanted}"
        f" && {sudo}{own} -m opwatch"
    )


def _is_externally_managed() -> bool:
    # pip looks for this file in the folder of the standard library.
    return sys.prefix == sys.base_prefix and Path(os.__file__).with_name("EXTERNALLY-MANAGED").exists()
