"""What a command, or a verb of one, is: a module with these two functions."""

from __future__ import annotations

import argparse
from typing import Protocol


class Command(Protocol):
    """A module of opwatch.tools."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...
    def run(self, args: argparse.Namespace) -> int: ...
