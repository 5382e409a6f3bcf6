"""`opwatch flight [dump|archive|note|status]`: keep the last few minutes, and save them after an incident."""

from __future__ import annotations

import argparse

from opwatch.tools.command import add_verbs, import_verb
from opwatch.tools.commands.flight import keep


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "opwatch flight [--keep T] [--dev D]... [--every T] [options]\n"
        "       opwatch flight dump -o FILE [--last T] [--ring DIR]\n"
        "       opwatch flight archive -o DIR [--ring DIR]\n"
        "       opwatch flight note TEXT... [--ring DIR]\n"
        "       opwatch flight status [--json] [--ring DIR]"
    )
    keep.add_arguments(parser)
    add_verbs(parser, "flight", required=False)


def run(args: argparse.Namespace) -> int:
    return import_verb("flight", args.verb).run(args) if args.verb else keep.run(args)
