"""`opwatch trim`: whether trims reach the drive, and which stale data they leave. Each verb has a module."""

from __future__ import annotations

import argparse
import importlib
import sys

from opwatch.collectors.audit.kernel_types import preload_types
from opwatch.errors import UsageError
from opwatch.tools.command import Command, add_verbs

# Maps a verb to its purpose. Each verb is a module of the same name.
VERBS = {
    "audit": "trim, and follow the discards layer by layer down to the drive",
    "check": "predict whether a trim reaches the drive, which layer stops it, and how much gets through",
    "record": "follow writes and discards, so that trim stale is exact",
    "stale": "estimate how much free space the drive still holds as data",
}


def _import_verb(verb: str) -> Command:
    name = f"opwatch.tools.commands.trim.{verb}"
    if verb == "audit" and name not in sys.modules:
        # Importing takes about as long as reading the files from which its programs are loaded, so start
        # reading now.
        preload_types()
    module: Command = importlib.import_module(name)
    return module


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_verbs(parser, VERBS, _import_verb)


def run(args: argparse.Namespace) -> int:
    if args.command and args.verb not in ("audit", "record"):
        raise UsageError(f"trim {args.verb} takes no command after --")
    return _import_verb(args.verb).run(args)
