"""`opwatch sweep`: measure a drive at several levels of over-provisioning. Each verb has a module."""

from __future__ import annotations

import argparse

from opwatch.tools.command import add_verbs, import_verb


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_verbs(parser, "sweep")


def run(args: argparse.Namespace) -> int:
    return import_verb("sweep", args.verb).run(args)
