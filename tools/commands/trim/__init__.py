"""`opwatch trim`: whether trims reach the drive, and what they leave behind. Each verb has a module."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence

from opwatch.errors import UsageError
from opwatch.tools.arguments import Parser
from opwatch.tools.command import Command

# Verb -> what it is for. Each lives in the module of its name.
VERBS = {
    "audit": "trim, and follow what becomes of it, layer by layer, down to the drive",
    "check": "foretell: will a trim get through, how much of it, and which layer stops it",
    "record": "follow what is written and discarded, for an exact figure of stale space",
    "stale": "how much space is free for the filesystem but still data for the drive",
}


def _module(verb: str) -> Command:
    module: Command = importlib.import_module(f"opwatch.tools.commands.trim.{verb}")
    return module


class _Verb(Parser):
    """Gets its arguments when it is the one that was chosen: no other verb's module is imported."""

    verb: str | None = None

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        if self.verb:
            _module(self.verb).add_arguments(self)
            self.verb = None
        return super().parse_known_args(args, namespace)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="|".join(VERBS), parser_class=_Verb)
    for verb, purpose in VERBS.items():
        verbs.add_parser(verb, help=purpose, description=purpose).verb = verb


def run(args: argparse.Namespace) -> int:
    if args.command and args.verb not in ("audit", "record"):
        raise UsageError(f"trim {args.verb} takes no command behind --")
    return _module(args.verb).run(args)
