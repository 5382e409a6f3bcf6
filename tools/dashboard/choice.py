"""Decides whether to show a dashboard: this needs a capable terminal, a user, and textual."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys

from opwatch.errors import UsageError
from opwatch.host.privilege import TEXTUAL, build_install_command
from opwatch.tools.arguments import Options


def add_screen_arguments(form: Options) -> None:
    """Add --plain and --tui, which exclude each other."""
    form.add_argument(
        "--plain", action="store_true", help="plain lines (the default, except on a terminal with textual)"
    )
    form.add_argument(
        "--tui", action="store_true", help="the dashboard (the default on a terminal with textual)"
    )


def is_dashboard_chosen(args: argparse.Namespace, *, unless: str | None = None) -> bool:
    """Return whether to show the dashboard.

    `unless` names a requested option without dashboard support. Raise UsageError if the user requested an
    impossible dashboard.
    """
    reason = unless or _find_obstacle()
    if args.tui and reason:
        raise UsageError(f"--tui: {reason}")
    return not (reason or args.plain or args.json or args.quiet)


def _find_obstacle() -> str | None:
    """Return the reason why a dashboard is impossible, or None."""
    streams = {"standard input": sys.stdin, "standard output": sys.stdout, "standard error": sys.stderr}
    for name, stream in streams.items():
        if not stream.isatty():
            return f"{name} is not a terminal"
    if os.environ.get("TERM", "dumb") == "dumb":
        return "TERM does not name a terminal that can be redrawn"
    if "utf" not in (sys.stdout.encoding or "").lower():
        return "this terminal's encoding is not UTF-8"
    if importlib.util.find_spec("textual") is None:
        command = build_install_command(TEXTUAL)
        return f"textual is not installed: {command}. Without --tui, opwatch prints lines"
    return None
