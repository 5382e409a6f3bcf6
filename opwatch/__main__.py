"""Where every start begins: the console script, and `python -m opwatch`."""

import gc
import importlib
import os
import sys

from opwatch import __version__


def _tell_version() -> bool:
    """Whether it could be told."""
    try:
        text = f"opwatch {__version__}\n".encode()
        return sys.stdout is not None and os.write(sys.stdout.fileno(), text) == len(text)
    except (OSError, ValueError):
        return False


def main() -> int:
    """Run what the command line asks for; returns the exit status. The version is told without the parser,
    which takes longer to import than an interpreter to start; where that fails, the command line says why."""
    if sys.argv[1:] in (["-V"], ["--version"]) and _tell_version():
        return 0
    try:
        status: int = importlib.import_module("opwatch.tools.cli").main()
    finally:
        # The interpreter looks for garbage before it ends, in all there is: a twentieth of a check's time.
        gc.freeze()
    return status


if __name__ == "__main__":
    sys.exit(main())
