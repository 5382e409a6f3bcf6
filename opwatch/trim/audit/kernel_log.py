"""Find kernel log messages about the devices of a trim. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from opwatch.foreign import split_lines


@dataclass(frozen=True, slots=True)
class KernelLog:
    """Messages logged during a trim. `unknown` says why some may be missing; None if the log is complete."""

    lines: tuple[str, ...] = ()
    unknown: str | None = None


def parse_records(text: str) -> Iterator[tuple[str, str]]:
    """Yield (message, message with its dictionary) for each /dev/kmsg record. A line with a leading
    space continues the previous record."""
    record: list[str] = []
    for line in [*split_lines(text), ""]:
        if line.startswith(" "):
            if record:
                record.append(line)
            continue
        if record:
            message = record[0].partition(";")[2]
            yield message, "\n".join([message, *record[1:]])
        record = [line] if line else []


def compile_names(names: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that matches any of the names as a word: loop1 matches neither loop10 nor xloop1."""
    words = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.compile(rf"(?<![\w:-])(?:{words})(?!\w)") if words else re.compile(r"(?!)")


def find_messages(
    messages: Iterable[tuple[str, str]], names: Iterable[str], devs: Iterable[str]
) -> Iterator[str]:
    """Yield messages with a device's name, or with a device's number in a DEVICE= field."""
    pattern = compile_names(names)
    marks = {f"DEVICE=b{dev}" for dev in devs}
    for message, whole in messages:
        if pattern.search(message) or marks & {line.strip() for line in whole.split("\n")[1:]}:
            yield message


def find_device_lines(lines: Sequence[str], device: str) -> list[str]:
    """Return the lines with the device's name."""
    pattern = compile_names([device])
    return [line for line in lines if pattern.search(line)]
