"""The process of the exporter: `python -m opwatch.tools.exporter.lean WORD...`, with words of
LaunchOptions."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from types import ModuleType

from opwatch.errors import OpwatchError
from opwatch.units import replace_unprintable


def say(text: str) -> None:
    """Print a message to standard error. A failure to write it is ignored."""
    try:
        os.write(2, replace_unprintable(f"opwatch: {text}").encode("utf-8", "replace") + b"\n")
    except OSError:
        return


class DeferredModule(ModuleType):
    """A module that is imported when one of its names is first used."""

    def __getattr__(self, name: str) -> object:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def main(words: list[str]) -> int:
    """Serve until a signal, and return the exit status."""
    # dataclasses imports it, 1 MB with the modules that it needs. Python 3.11 uses it only for classes
    # without a docstring, later versions for all.
    sys.modules.setdefault("inspect", DeferredModule("inspect"))
    from opwatch.tools.exporter.launch import LaunchOptions, run_exporter

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
