"""`opwatch flight [dump|status]`: continuously keep the last few minutes, and save them after an incident."""

from __future__ import annotations

import argparse

from opwatch.tools.commands.flight import dump, keep, note, status

VERBS = {
    "dump": (dump, "write the contents of the ring into a recording"),
    "note": (note, "add a note, with its time, to the ring of a running recorder"),
    "status": (status, "show what the ring covers, and whether a recorder writes to it"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "opwatch flight [--keep T] [--dev D]... [--every T] [options]\n"
        "       opwatch flight dump -o FILE [--last T] [--ring DIR]\n"
        "       opwatch flight note TEXT... [--ring DIR]\n"
        "       opwatch flight status [--json] [--ring DIR]"
    )
    keep.add_arguments(parser)
    verbs = parser.add_subparsers(dest="verb", metavar="|".join(VERBS), parser_class=type(parser))
    for name, (module, purpose) in VERBS.items():
        module.add_arguments(verbs.add_parser(name, help=purpose, description=purpose))


def run(args: argparse.Namespace) -> int:
    return VERBS[args.verb][0].run(args) if args.verb else keep.run(args)
