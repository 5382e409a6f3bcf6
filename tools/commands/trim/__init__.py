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
    "audit": "trim, and follow what becomes of it, layer by layer, down to the drive",
    "check": "foretell: will a trim get through, how much of it, and which layer stops it",
    "record": "follow what is written and discarded, for an exact figure of stale space",
    "stale": "how much space is free for the filesystem but still data for the drive",
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
        raise UsageError(f"trim {args.verb} takes no command behind --")
    return _import_verb(args.verb).run(args)
