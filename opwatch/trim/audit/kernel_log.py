"""Messages of the kernel about the devices of a trim. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from opwatch.foreign import lines_of
from opwatch.frozen import frozen


@frozen
class KernelLog:
    """Messages that came meanwhile. `unknown` is why some may be missing, None when none are."""

    lines: tuple[str, ...] = ()
    unknown: str | None = None


def records(text: str) -> Iterator[tuple[str, str]]:
    """(message, message and its dictionary) of each record of /dev/kmsg: a line that begins with a blank goes
    on with the one before."""
    record: list[str] = []
    for line in [*lines_of(text), ""]:
        if line.startswith(" "):
            if record:
                record.append(line)
            continue
        if record:
            message = record[0].partition(";")[2]
            yield message, "\n".join([message, *record[1:]])
        record = [line] if line else []


def naming(names: Iterable[str]) -> re.Pattern[str]:
    """What finds one of these names as a word: loop1 is neither in loop10 nor in xloop1."""
    words = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.compile(rf"(?<![\w:-])(?:{words})(?!\w)") if words else re.compile(r"(?!)")


def about(messages: Iterable[tuple[str, str]], names: Iterable[str], devs: Iterable[str]) -> Iterator[str]:
    """The messages that name one of these devices, or are marked with the number of one."""
    pattern = naming(names)
    marks = {f"DEVICE=b{dev}" for dev in devs}
    for message, whole in messages:
        if pattern.search(message) or marks & {line.strip() for line in whole.split("\n")[1:]}:
            yield message


def of_device(lines: Sequence[str], device: str) -> list[str]:
    """The lines that name one device."""
    pattern = naming([device])
    return [line for line in lines if pattern.search(line)]
