"""`opwatch trim check`: predict the result of a trim of each filesystem without doing it."""

from __future__ import annotations

import argparse
from typing import Any

from opwatch import SCHEMA
from opwatch.errors import UsageError
from opwatch.sinks.terminal import open_stdout
from opwatch.sinks.trim_check import (
    build_check_document,
    build_schedule_document,
    format_check,
    format_headline,
    format_schedule,
)
from opwatch.sinks.unseen import build_unseen_document, format_unseen
from opwatch.tools.arguments import parse_byte_size
from opwatch.tools.runs.checking import CheckRun, CheckSubject
from opwatch.trim.check.prediction import Outlook

# Exit statuses of fstrim(8) for several filesystems.
ALL, NONE, SOME = 0, 32, 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch trim check [MOUNT... | --dev D | --all] [-m SIZE] [-q | --json]"
    parser.add_argument(
        "paths", nargs="*", metavar="MOUNT", help="a mount point, a device, or any path on a filesystem"
    )
    parser.add_argument(
        "--dev",
        metavar="D",
        action="append",
        default=[],
        help="check every mounted filesystem on this device, or the device itself if there is none",
    )
    parser.add_argument(
        "-a",
        "--all",
        action="store_true",
        help="check every mounted filesystem on a block device (the default)",
    )
    parser.add_argument(
        "-m",
        "--minimum",
        type=parse_byte_size,
        metavar="SIZE",
        default=0,
        help="leave out shorter free extents, as fstrim --minimum does",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("-q", "--quiet", action="store_true", help="print one line per filesystem")
    form.add_argument("--json", action="store_true", help='print one JSON document, "schema":"opwatch/1"')


def choose_exit_status(outlooks: list[Outlook]) -> int:
    """Return 0 if all trims get through as far as known, 32 if none does, else 64."""
    if all(outlook is Outlook.REACHES for outlook in outlooks):
        return ALL
    return NONE if all(outlook is Outlook.NOTHING for outlook in outlooks) else SOME


def _choose_subjects(run: CheckRun, args: argparse.Namespace) -> list[CheckSubject]:
    if args.all and (args.paths or args.dev):
        raise UsageError("--all excludes mounts and --dev")
    if not args.paths and not args.dev:
        return list(run.find_all())
    subjects = [subject for text in args.paths for subject in run.find_by_path(text)]
    subjects += [subject for text in args.dev for subject in run.find_on_device(text)]
    return list(dict.fromkeys(subjects))


def run(args: argparse.Namespace) -> int:
    work = CheckRun(args.minimum)
    subjects = _choose_subjects(work, args)
    if not subjects:
        raise UsageError("no filesystem on a block device is mounted here; name one, or use --dev")
    checks = [work.check_subject(subject) for subject in subjects]
    status = choose_exit_status([check.forecast.outlook for check in checks])
    if args.quiet:
        open_stdout().write_lines(format_headline(check) for check in checks)
        return status
    unseen = work.find_unseen(args.dev, everywhere=not args.paths and not args.dev)
    if args.json:
        body: dict[str, Any] = {"schema": SCHEMA, "checks": [build_check_document(check) for check in checks]}
        body |= {"schedule": build_schedule_document(work.schedule), "exit_status": status}
        body |= build_unseen_document(unseen)
        open_stdout().write_json(body, indent=2)
        return status
    for check in checks:
        open_stdout().write_lines([*format_check(check), ""])
    open_stdout().write_lines([*format_schedule(work.schedule), *format_unseen(unseen)])
    return status
