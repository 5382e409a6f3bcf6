"""`opwatch sweep advise`: how much over-provisioning is enough, from a sweep, or from a recorded history."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from opwatch.collectors.guard.disk_facts import read_disk_identity
from opwatch.errors import NotEnoughData, OpwatchError, RefusedError, UsageError
from opwatch.guard.identity import list_differences
from opwatch.host.device import BlockDevice, Devices
from opwatch.journal.file import FOLDER
from opwatch.sinks.sweep.advice_document import build_advice_document
from opwatch.sinks.sweep.advice_table import format_advice
from opwatch.sinks.sweep.history_document import build_history_advice
from opwatch.sinks.sweep.history_text import format_history_advice
from opwatch.sinks.sweep.reading import decode_sweep, restore_result
from opwatch.sinks.terminal import open_stdout
from opwatch.sweep.advice.advice import AdviceKind, SweepAdvice, advise
from opwatch.sweep.advice.price import CapacityPrice
from opwatch.sweep.advice.targets import SweepTargets
from opwatch.sweep.history.advice import HistoryAdvice, HistoryAnswer
from opwatch.tools.arguments import Once, parse_amount, parse_waf
from opwatch.tools.runs.history_advice import DEFAULT_LEVELS, HistoryQuestion, answer_question
from opwatch.tools.runs.sweep_source import SweepSource, load_sweep

_FACTORS = {"": 1, "k": 10**3, "m": 10**6}
_NS, _MAX_LATENCY_NS = {"us": 1e3, "ms": 1e6, "s": 1e9}, 60e9
_MAX_IOPS, _MAX_YEARS, _MAX_PRICE = 10**9, 100.0, 10**7
_YEAR_DAYS = 365.25
_CURRENCY = r"[$€£¥]|[A-Za-z]{3}"
_PRICE = rf"({_CURRENCY})?\s*([0-9]{{1,9}}(?:\.[0-9]{{1,4}})?)\s*({_CURRENCY})?"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    # An abbreviation such as --price would hide what the price is for.
    parser.allow_abbrev = False
    parser.usage = (
        "opwatch sweep advise (SWEEP | --history FILE [SWEEP] [--waf R] [--physical SIZE] [--op LEVELS]) "
        "[--daily SIZE] [--life T] [--iops N] [--p99 T] [--price-per-tb P] [--endurance SIZE] [--dev D] "
        "[--journals DIR] [--json]"
    )
    parser.add_argument(
        "sweep",
        nargs="?",
        metavar="SWEEP",
        help="a sweep's name, its JSON document (sweep run --json, or --virtual -o), or its recording (-o)",
    )
    _add_history_arguments(parser)
    parser.add_argument(
        "--daily",
        action=Once,
        metavar="SIZE",
        type=parse_amount,
        help="how much the host writes per day, e.g. 500GB",
    )
    parser.add_argument(
        "--life", action=Once, metavar="T", type=_parse_life, help="how long the flash must last, e.g. 5y"
    )
    parser.add_argument(
        "--iops", action=Once, metavar="N", type=_parse_rate, help="at least this many IOPS, e.g. 20k"
    )
    parser.add_argument(
        "--p99",
        action=Once,
        metavar="T",
        type=_parse_latency,
        help="a 99th percentile of latency of at most this, e.g. 5ms",
    )
    parser.add_argument(
        "--price-per-tb",
        action=Once,
        metavar="P",
        type=_parse_price,
        help="the price of a TB of the drive, e.g. 80 or 80EUR, for the price of the capacity given up",
    )
    parser.add_argument(
        "--endurance",
        action=Once,
        metavar="SIZE",
        type=parse_amount,
        help="the NAND bytes that the drive endures (rated cycles times flash), unless the sweep has them",
    )
    parser.add_argument("--dev", action=Once, metavar="D", help="refuse a sweep of another drive than this")
    parser.add_argument("--journals", metavar="DIR", type=Path, help=f"the folder of the journals ({FOLDER})")
    parser.add_argument("--json", action="store_true", help='print one JSON document, "schema":"opwatch/1"')


def _add_history_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--history",
        action=Once,
        metavar="FILE",
        type=Path,
        help="answer from the writes of a real system (opwatch trim record) instead of a sweep; with a "
        "SWEEP of the same drive the bands can be narrower",
    )
    parser.add_argument(
        "--waf",
        action=Once,
        metavar="R",
        type=parse_waf,
        help="the write amplification that opwatch waf measured while the history was recorded, e.g. 2.9 or "
        "2.9+-0.1",
    )
    parser.add_argument(
        "--physical",
        action=Once,
        metavar="SIZE",
        type=parse_amount,
        help="the drive's flash for data, if known, e.g. 2048GiB; it can narrow the bands",
    )
    parser.add_argument(
        "--op",
        action=Once,
        metavar="LEVELS",
        help="the levels to predict from a history, as of opwatch sweep run "
        f"({DEFAULT_LEVELS.replace('%', '%%')})",
    )


def run(args: argparse.Namespace) -> int:
    if args.history is not None:
        return _answer_history(args)
    for name in ("waf", "physical", "op"):
        if getattr(args, name) is not None:
            raise UsageError(f"--{name} needs --history: a sweep has its own levels and WAF")
    if args.sweep is None:
        raise UsageError("name a sweep, or the history of a real system with --history")
    targets = SweepTargets(args.daily, args.life, args.iops, args.p99)
    # Refuse what is wrong with the command before the sweep is read.
    targets.require_sound()
    source = load_sweep(args.sweep, args.journals)
    if args.dev is not None:
        require_drive(source, args.dev)
    sweep = decode_sweep(source.document, source.name)
    result = restore_result(sweep, source.name).with_endurance(args.endurance)
    advice = advise(result, targets)
    if args.json:
        document = build_advice_document(source.name, result, advice, args.price_per_tb)
        open_stdout().write_json(document, indent=2)
    else:
        open_stdout().write_lines(format_advice(result, advice, args.price_per_tb))
    return choose_exit_status(advice)


def _answer_history(args: argparse.Namespace) -> int:
    for name in ("iops", "p99"):
        if getattr(args, name) is not None:
            raise UsageError(
                f"--{name} needs a sweep: the writes of a history have no latencies of the drive"
            )
    if args.sweep is None and args.journals is not None:
        raise UsageError("--journals needs a SWEEP")
    question = HistoryQuestion(
        path=args.history,
        levels=args.op or DEFAULT_LEVELS,
        targets=SweepTargets(args.daily, args.life),
        waf=args.waf,
        flash_bytes=args.physical,
        endurance_bytes=args.endurance,
        device=args.dev,
        sweep=None if args.sweep is None else load_sweep(args.sweep, args.journals),
    )
    system, facts, advice = answer_question(question)
    if args.json:
        document = build_history_advice(system, facts, advice, args.price_per_tb)
        open_stdout().write_json(document, indent=2)
    else:
        open_stdout().write_lines(format_history_advice(system, facts, advice, args.price_per_tb))
    return choose_history_status(advice)


def choose_history_status(advice: HistoryAdvice) -> int:
    """Return 0 for an answer, 1 if no change meets the target, and 6 if the history does not decide."""
    if advice.answer is HistoryAnswer.NONE:
        return OpwatchError.exit_status
    if advice.answer is HistoryAnswer.UNDECIDED or not any(one.waf for one in advice.changes):
        return NotEnoughData.exit_status
    return 0


def choose_exit_status(advice: SweepAdvice) -> int:
    """Return 0 for an answer, 1 if no level meets the targets, and 6 if the sweep does not decide."""
    if advice.kind is AdviceKind.NO_TARGETS:
        return 0 if any(one.is_usable for one in advice.levels) else NotEnoughData.exit_status
    if advice.kind is AdviceKind.LEVEL:
        return 0
    return OpwatchError.exit_status if advice.kind is AdviceKind.NONE else NotEnoughData.exit_status


def require_drive(source: SweepSource, device: str) -> None:
    """Raise RefusedError unless the sweep was of this drive."""
    swept = source.read_identity()
    if swept is None:
        raise RefusedError(f"{source.name} is a sweep of simulated flash, not of {device}")
    devices = Devices()
    present = read_disk_identity(devices, find_disk(devices, device))
    differences = list_differences(swept, present)
    if differences:
        raise RefusedError(f"{source.name} is a sweep of another drive than {device}: {differences[0]}")


def find_disk(devices: Devices, name: str) -> BlockDevice:
    return devices.resolve(name).disk


def _parse_life(text: str) -> float:
    """Return years."""
    read = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*(y|d)", text.strip(), re.ASCII)
    if not read:
        raise argparse.ArgumentTypeError(f"{text!r} is not a life: write years or days, e.g. 5y or 900d")
    years = float(read[1]) / (1 if read[2] == "y" else _YEAR_DAYS)
    if not 0 < years <= _MAX_YEARS:
        raise argparse.ArgumentTypeError(f"{text!r} is out of range (1d to {_MAX_YEARS:.0f}y)")
    return years


def _parse_latency(text: str) -> float:
    """Return nanoseconds."""
    read = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*(us|ms|s)", text.strip(), re.ASCII)
    if not read:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a latency: write it with its unit, e.g. 5ms or 800us"
        )
    ns = float(read[1]) * _NS[read[2]]
    if not 0 < ns <= _MAX_LATENCY_NS:
        raise argparse.ArgumentTypeError(f"{text!r} is out of range (above 0, at most 60s)")
    return ns


def _parse_rate(text: str) -> float:
    read = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([kM]?)", text.strip(), re.ASCII)
    if not read:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate: write I/Os per second, e.g. 20000 or 20k")
    rate = float(read[1]) * _FACTORS[read[2].lower()]
    if not 0 < rate <= _MAX_IOPS:
        raise argparse.ArgumentTypeError(f"{text!r} is out of range (1 to {_MAX_IOPS})")
    return rate


def _parse_price(text: str) -> CapacityPrice:
    read = re.fullmatch(_PRICE, text.strip())
    if not read or (read[1] and read[3]):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a price per TB: write an amount, with its currency if you like (80, $80, 80EUR)"
        )
    amount = float(read[2])
    if not 0 < amount <= _MAX_PRICE:
        raise argparse.ArgumentTypeError(f"{text!r} is out of range (above 0, at most {_MAX_PRICE})")
    return CapacityPrice(amount, (read[1] or read[3] or "").upper())
