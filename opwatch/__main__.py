"""Entry point of the console script and of `python -m opwatch`."""

import gc
import importlib
import os
import sys

from opwatch import __version__


def _print_version() -> bool:
    """Print the version; return False if the output failed."""
    try:
        text = f"opwatch {__version__}\n".encode()
        return sys.stdout is not None and os.write(sys.stdout.fileno(), text) == len(text)
    except (OSError, ValueError):
        return False


def main() -> int:
    """Run the command line, and return the exit status.

    `--version` bypasses the parser, because its import takes longer than the start of the interpreter. If
    printing fails, the normal command line reports the reason.
    """
    if sys.argv[1:] in (["-V"], ["--version"]) and _print_version():
        return 0
    try:
        status: int = importlib.import_module("opwatch.tools.cli").main()
    finally:
        # Skip the final garbage collection over all objects, which takes a twentieth of the time of a check.
        gc.freeze()
    return status


if __name__ == "__main__":
    sys.exit(main())
