"""Command-line parsing: a parser that prints like the rest of opwatch, and argument types."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from opwatch.errors import UsageError
from opwatch.quantities import parse_count, parse_percentage, parse_size
from opwatch.sinks.terminal import open_stdout, print_message
from opwatch.sinks.tones import CHOICES
from opwatch.sinks.wrapping import get_columns, wrap_text
from opwatch.sweep.ranges import ValueRange
from opwatch.times import TIME_EXAMPLES, format_duration, parse_time

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

# A parser or an option group.
Options = argparse._ActionsContainer
_USAGE = "usage: "
# A larger write amplification is a mistake.
_MAX_WAF = 100
# Columns that argparse leaves free at the right.
_MARGIN = 2
# Represents a space at which a line must not be folded.
_JOINT = "\N{OPEN BOX}"


def suggest_name(typed: str, names: Iterable[str]) -> str:
    """Return `; did you mean NAME?` if a name is close to the typed word, else an empty string."""
    import difflib

    close = difflib.get_close_matches(typed, list(names), 1)
    return f"; did you mean {close[0]}?" if close else ""


def time_between(
    least: float, most: float, *, none: bool = False, needs_unit: bool = False
) -> Callable[[str], float]:
    """Return the argument type of a time between the limits, inclusive.

    `none` also accepts 0. `needs_unit` rejects a plain number, because 10 could be meant as 10ms.
    """
    wanted = f"{format_duration(least)} to {format_duration(most)}, e.g. {TIME_EXAMPLES}"
    if none:
        wanted += "; 0 for none"

    def parse_argument(text: str) -> float:
        try:
            seconds = parse_time(text)
        except UsageError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a valid duration ({wanted})") from None
        if needs_unit and seconds and text.strip()[-1].isdecimal():
            raise argparse.ArgumentTypeError(f"{text!r} has no unit: write {text}ms or {text}s")
        if not least <= seconds <= most and not (none and seconds == 0):
            raise argparse.ArgumentTypeError(f"{text!r} is out of range ({wanted})")
        return seconds

    return parse_argument


def percentage_between(least: float, most: float) -> Callable[[str], float]:
    """Return the argument type of a percentage as a ratio: 1% is 0.01. The % is required, because a plain 1
    is ambiguous."""
    wanted = f"write a percentage from {least:g}% to {most:g}%"

    def parse_argument(text: str) -> float:
        try:
            part, whole = parse_percentage(text)
        except UsageError:
            raise argparse.ArgumentTypeError(f"{text!r}: {wanted}") from None
        if not least <= 100 * part / whole <= most:
            raise argparse.ArgumentTypeError(f"{text!r}: {wanted}")
        return part / whole

    return parse_argument


def count_between(least: int, most: int) -> Callable[[str], int]:
    """Return the argument type of a whole number between the limits, inclusive."""
    wanted = f"{least} to {most}"

    def parse_argument(text: str) -> int:
        try:
            count = parse_count(text)
        except UsageError as error:
            raise argparse.ArgumentTypeError(f"{error} ({wanted})") from None
        if not least <= count <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is out of range ({wanted})")
        return count

    return parse_argument


def parse_byte_size(text: str) -> int:
    """Parse a size in bytes."""
    try:
        return parse_size(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parse_amount(text: str) -> int:
    """Parse a number of bytes above 0. The unit is required."""
    try:
        n_bytes = parse_size(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if text.strip().isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} has no unit: write {text}GB or {text}TB")
    if not n_bytes:
        raise argparse.ArgumentTypeError(f"{text!r} is nothing: write a size above 0")
    return n_bytes


def parse_waf(text: str) -> ValueRange:
    """Parse a write amplification as `opwatch waf` prints it: 2.9 or 2.9+-0.1."""
    number = r"([0-9]{1,4}(?:\.[0-9]{1,6})?)"
    read = re.fullmatch(rf"{number}\s*(?:(?:\+-|±)\s*{number})?", text.strip(), re.ASCII)
    if not read:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a write amplification: write it as opwatch waf does, e.g. 2.9 or 2.9+-0.1"
        )
    waf = ValueRange(float(read[1]), float(read[2] or 0))
    if not 1 <= waf.value <= _MAX_WAF or waf.error >= waf.value:
        raise argparse.ArgumentTypeError(
            f"{text!r} is out of range (1 to {_MAX_WAF}): no model here describes drives that compress"
        )
    return waf


def parse_file_name(text: str) -> Path:
    """Parse the name of a file that grows, or is read at random offsets; a stream is rejected."""
    if not text:
        raise argparse.ArgumentTypeError("the file name is empty")
    if text == "-":
        raise argparse.ArgumentTypeError("a recording cannot be a stream (for a file of this name write ./-)")
    return Path(text)


def add_color_argument(parser: Options) -> None:
    parser.add_argument(
        "--color",
        choices=CHOICES,
        default="auto",
        help="colour the lines: on a terminal unless NO_COLOR is set (auto, the default), always, or never",
    )


def add_catalogue_argument(parser: Options) -> None:
    parser.add_argument(
        "--counters",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="your own catalogue entries (TOML), before those of /etc/opwatch/counters.d",
    )


class Once(argparse.Action):
    """An option that may be given once. argparse would silently keep the last value."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        first = getattr(namespace, self.dest)
        if first is not None:
            # Parsed numbers are not what the user wrote.
            given = f"{first} and {values} were given; " if isinstance(values, str) else ""
            raise argparse.ArgumentError(self, f"only one at a time: {given}run the command once for each")
        setattr(namespace, self.dest, values)


def _fold_line(line: str) -> list[str]:
    """Return a line of a help text, folded to the terminal width, with bracketed parts kept whole.

    argparse does not fold text that the program provides itself, such as usages and lists of commands.
    """
    if len(line) <= get_columns():
        return [line]
    words = re.sub(
        r"\[[^][]{,30}\]|\([^()]{,30}\)", lambda group: group[0].replace(" ", _JOINT), line.strip()
    )
    within = 7 if line.startswith(_USAGE) else len(line) - len(line.lstrip()) + 2
    parts = wrap_text(words, " " * (len(line) - len(line.lstrip())), within)
    return [part.replace(_JOINT, " ") for part in parts]


class Parser(argparse.ArgumentParser):
    """A parser that escapes typed words in its messages, because they may hold control characters."""

    def parse_known_args(  # type: ignore[override]  # argparse has overloads for namespaces of other classes
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse, but reject an unknown option first, because argparse would complain about the word after
        it."""
        words = sys.argv[1:] if args is None else args
        if not self._subparsers:
            for word in words:
                self._refuse_unknown(word.partition("=")[0])
        return super().parse_known_args(words, namespace)

    def _refuse_unknown(self, option: str) -> None:
        known = self._option_string_actions
        # A word with a space is text. Options may be abbreviated.
        if len(option) < 3 or not option.startswith("--") or " " in option:
            return
        is_known = any(name.startswith(option) for name in known) if self.allow_abbrev else option in known
        if not is_known:
            self.error(f"unknown option {option}{suggest_name(option, known)}")

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        lines = message.rstrip("\n").split("\n")
        if file is sys.stdout:
            open_stdout().write_lines(part for line in lines for part in _fold_line(line))
            return
        for line in lines:
            print_message(line, head="")

    def _get_formatter(self) -> argparse.HelpFormatter:
        # Our own width, because argparse would fold the lines again. argparse creates a formatter for every
        # argument, and imports shutil unless given a width.
        made: type[argparse.HelpFormatter] = self.formatter_class  # type: ignore[assignment]
        return made(self.prog, width=get_columns() - _MARGIN)

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            names = [str(choice) for choice in action.choices]
            complaint = f"{value!r} is not one of {', '.join(names)}{suggest_name(str(value), names)}"
            raise argparse.ArgumentError(action, complaint)
