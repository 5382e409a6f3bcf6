"""The process of the exporter: `python -m opwatch.tools.exporter.lean WORD...`, with words of
LaunchOptions."""

from __future__ import annotations

import gc
import os
import sys

from opwatch.errors import OpwatchError
from opwatch.tools.exporter.launch import LaunchOptions, run_exporter
from opwatch.units import replace_unprintable


def say(text: str) -> None:
    """Print a message to standard error. A failure to write it is ignored."""
    try:
        os.write(2, replace_unprintable(f"opwatch: {text}").encode("utf-8", "replace") + b"\n")
    except OSError:
        return


def main(words: list[str]) -> int:
    """Serve until a signal, and return the exit status."""
    # Modules and their objects stay until the end.
    gc.freeze()
    try:
        return run_exporter(LaunchOptions.from_words(words), say)
    except OpwatchError as error:
        # Imported only for the failure, because it brings the whole command line.
        from opwatch.tools.cli import report_error

        return report_error(error)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
