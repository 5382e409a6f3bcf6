"""Whose NAND bytes: the options and the answer of `opwatch writes --blame`, from a recorded history."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from opwatch.blame.answer import Blame, blame_owners
from opwatch.blame.coalitions import Absence
from opwatch.blame.history import build_owned_history
from opwatch.errors import NotEnoughData, UsageError
from opwatch.recording.reading.history import read_free_space, read_requests
from opwatch.sinks.sweep.blame import build_blame_document, format_blame
from opwatch.sinks.terminal import open_stdout
from opwatch.sweep.history.advice import RecordedSystem
from opwatch.sweep.ranges import ValueRange
from opwatch.tools.arguments import Once, parse_amount, parse_waf
from opwatch.trim.history.sectormap import SECTOR

# What the user can say about the data of a group that does not write.
ABSENCES = {"stays": Absence.STAYS, "freed": Absence.FREED}


def add_blame_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --blame and the options that belong to it."""
    parser.add_argument(
        "--blame",
        action=Once,
        metavar="FILE",
        type=Path,
        help="share the NAND bytes of a history (opwatch trim record) among control groups; needs --waf",
    )
    parser.add_argument(
        "--waf",
        action=Once,
        metavar="R",
        type=parse_waf,
        help="with --blame: the write amplification that opwatch waf measured while the history was "
        "recorded, e.g. 2.9 or 2.9+-0.1",
    )
    parser.add_argument(
        "--physical",
        action=Once,
        metavar="SIZE",
        type=parse_amount,
        help="with --blame: the drive's flash for data, if known, e.g. 2048GiB; it can narrow the bands",
    )
    parser.add_argument(
        "--absent",
        action=Once,
        choices=[*ABSENCES],
        help="with --blame: the data of a group that does not write stays on the drive (stays, the default), "
        "or is freed",
    )


def run_blame(args: argparse.Namespace) -> int:
    """Print the answer, and return 0, or 6 if the shares are pro rata only."""
    if args.waf is None:
        raise UsageError(
            "--blame needs --waf, the write amplification that opwatch waf measured while the history was "
            "recorded"
        )
    absence = ABSENCES[args.absent or "stays"]
    system, blame = answer_blame(BlameQuestion(args.blame, args.waf, args.physical, absence))
    if args.json:
        open_stdout().write_json(build_blame_document(system, blame), indent=2)
    else:
        open_stdout().write_lines(format_blame(system, blame))
    return NotEnoughData.exit_status if blame.refusal else 0


@dataclass(frozen=True, slots=True)
class BlameQuestion:
    """What the user asks of a history. `waf` is what the drive reported for its time."""

    path: Path
    waf: ValueRange
    flash_bytes: int | None = None
    absence: Absence = Absence.STAYS


def answer_blame(question: BlameQuestion) -> tuple[RecordedSystem, Blame]:
    """Return the recorded system, and the share of each control group of the NAND bytes.

    Raise what is wrong with the file or the numbers before any replay.
    """
    saved, recorded = read_requests(question.path)
    capacity = saved.drive.sectors * SECTOR
    if question.flash_bytes is not None and question.flash_bytes <= capacity:
        raise UsageError(
            f"--physical: a drive of {capacity} bytes needs more flash than {question.flash_bytes} bytes"
        )
    names = dict(enumerate(saved.look.owners, 1))
    history = build_owned_history(question.path.name, recorded, read_free_space(question.path), names)
    written = history.system.written_bytes
    nand = ValueRange(question.waf.value * written, question.waf.error * written)
    return history.system, blame_owners(history, nand, question.flash_bytes, question.absence)
