"""`opwatch completion bash|zsh|fish`: the completion script of a shell."""

from __future__ import annotations

import argparse
from pathlib import Path

from opwatch.errors import UsageError
from opwatch.sinks.terminal import open_stdout

_SHELLS, _OFFERS = ("bash", "zsh", "fish"), ("phases", "fields")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch completion bash|zsh|fish\n       opwatch completion phases|fields FILE..."
    parser.add_argument(
        "what",
        choices=(*_SHELLS, *_OFFERS),
        metavar="WHAT",
        help="the script of this shell, to be sourced or installed; or the phases or fields of recordings, "
        "which the scripts ask for",
    )
    parser.add_argument("files", nargs="*", metavar="FILE", type=Path, help="recordings")


def run(args: argparse.Namespace) -> int:
    # Imported on demand: the scripts ask for phases at a key, and wait for them.
    if args.what in _OFFERS:
        from opwatch.tools.completion.recorded import list_recorded

        open_stdout().write_lines(list_recorded(args.what, args.files))
        return 0
    if args.files:
        raise UsageError(f"completion {args.what} takes no FILE")
    from opwatch.tools.completion.scripts import format_script

    open_stdout().write_lines(format_script(args.what))
    return 0
