"""`opwatch trim`: whether trims reach the drive, and which stale data they leave. Each verb has a module."""

from __future__ import annotations

import argparse
import sys

from opwatch.collectors.audit.kernel_types import preload_types
from opwatch.errors import UsageError
from opwatch.tools.command import Command, add_verbs, import_verb


def _import_verb(command: str, verb: str) -> Command:
    if verb == "audit" and f"{__name__}.audit" not in sys.modules:
        # Importing takes about as long as reading the files from which its programs are loaded, so start
        # reading now.
        preload_types()
    return import_verb(command, verb)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_verbs(parser, "trim", _import_verb)


def run(args: argparse.Namespace) -> int:
    if args.command and args.verb not in ("audit", "record"):
        raise UsageError(f"trim {args.verb} takes no command after --")
    return import_verb("trim", args.verb).run(args)
