"""What a command, or a verb of one, is: a module with these two functions, imported when it is called."""

from __future__ import annotations

import argparse
import gc
import importlib
import sys
from types import ModuleType
from typing import Protocol


class Command(Protocol):
    """A module of opwatch.tools."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...
    def run(self, args: argparse.Namespace) -> int: ...


def imported(name: str) -> ModuleType:
    """Import a module without looking for garbage. What is imported stays: to look for garbage in it would be
    an eighth of a start's CPU time, and a part of every later search."""
    collects = gc.isenabled() and name not in sys.modules
    if collects:
        gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        if collects:
            gc.freeze()
            gc.enable()
