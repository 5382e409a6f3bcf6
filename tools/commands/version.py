"""`opwatch --version`: without what a watch would have to import."""

from __future__ import annotations

import argparse

from opwatch import __version__
from opwatch.sinks.terminal import data


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes none."""


def run(args: argparse.Namespace) -> int:
    data().line(f"opwatch {__version__}")
    return 0
