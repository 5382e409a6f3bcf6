"""Parse Iometer configuration files with simple access specifications. Pure.

Supported are a single size, a share of reads, a share of random offsets, and no delays. A line with a leading
apostrophe labels the following lines. Target, duration and display settings are ignored because the sweep
decides them. Other lines are refused with the line number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from opwatch.errors import BadInput
from opwatch.foreign import decode_text, split_lines
from opwatch.load.plain import PlainLoad, make_plain_load, parse_number

_MAX_LOADS = 64
_VERSION = "Version "
_NAME = "access specification name,default assignment"
_SHAPE = "size,% of size,% reads,% random,delay,burst,align,reply"
_DEPTH = "number of outstanding ios"
_ASSIGNED = "assigned access specs"
_KIND = "test type"
_WORKER = "worker type"
# Sections without effect on requests.
_DISPLAY = ("results display", "end results display")
# Other known labels: target, repetition, duration, and recording of results.
_IGNORED = (
    *("test setup", "end test setup", "test description", "run time", "hours", "ramp up time", "end "),
    *("default disk workers", "default network workers", "record results", "worker cycling", "start"),
    *("disk cycling", "target cycling", "queue depth cycling", "access specifications", "manager"),
    *("worker", "default target settings", "disk maximum size", "target", "target assignments"),
)


class _Line(NamedTuple):
    where: str
    label: str
    text: str


@dataclass(slots=True)
class _Config:
    """The settings read so far."""

    name: str = ""
    shapes: dict[str, PlainLoad] = field(default_factory=dict)
    assigned: list[_Line] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)


def parse_icf(raw: bytes, where: str) -> list[PlainLoad]:
    """Return the access specifications assigned to workers, in order; all if no worker has any."""
    config = _Config()
    for line in _split_values(raw, where):
        _apply_line(config, line)
    for line in config.assigned:
        if line.text not in config.shapes:
            raise BadInput(f"{line.where}: unknown access specification {line.text!r:.60}")
    names = list(dict.fromkeys(line.text for line in config.assigned)) or list(config.shapes)
    if not 1 <= len(names) <= _MAX_LOADS:
        raise BadInput(f"{where}: it has {len(names)} access specifications, not 1 to {_MAX_LOADS}")
    # Each worker has its own depth.
    threads = sum(config.depths) or None
    loads = [config.shapes[name] for name in names]
    return [
        make_plain_load(*(load.name, load.rdpct, load.seekpct, load.xfersize), threads, where)
        for load in loads
    ]


def _split_values(raw: bytes, where: str) -> Iterator[_Line]:
    """Yield the lines other than labels, each with the preceding label."""
    label, is_display = "", False
    for number, line in enumerate(split_lines(decode_text(raw)), 1):
        text, place = line.strip(), f"{where}: line {number}"
        if text.startswith("'"):
            label = text[1:].strip().lower().rstrip("= ")
            is_display = label == _DISPLAY[0] or (is_display and label != _DISPLAY[1])
            if not is_display and not _is_known(label):
                raise BadInput(f"{place}: {text!r:.60} is not understood")
        elif text.startswith(_VERSION):
            label = "version"
        elif text and not is_display:
            if not label:
                raise BadInput(f"{place}: {text!r:.60} has no heading above it: this is not an Iometer file")
            yield _Line(place, label, text)


def _is_known(label: str) -> bool:
    return label in (_NAME, _SHAPE, _ASSIGNED, _KIND, *_DISPLAY) or label.startswith((_DEPTH, *_IGNORED))


def _apply_line(config: _Config, line: _Line) -> None:
    if line.label == _NAME:
        config.name = line.text.rpartition(",")[0] or line.text
        if config.name in config.shapes:
            raise BadInput(f"{line.where}: duplicate access specification {config.name!r:.60}")
    elif line.label == _SHAPE:
        if not config.name or config.name in config.shapes:
            raise BadInput(f"{line.where}: only one line of an access specification is supported")
        config.shapes[config.name] = _parse_shape(config.name, line)
    elif line.label.startswith(_DEPTH):
        config.depths.append(parse_number(line.text.partition(",")[0].strip(), line.where))
    elif line.label == _ASSIGNED:
        config.assigned.append(line)
    elif line.label == _KIND and line.text != "NORMAL":
        raise BadInput(f"{line.where}: test type {line.text!r:.60}: only NORMAL is supported")
    elif line.label == _WORKER and line.text != "DISK":
        raise BadInput(f"{line.where}: worker type {line.text!r:.60}: only DISK is supported")


def _parse_shape(name: str, line: _Line) -> PlainLoad:
    cells = [cell.strip() for cell in line.text.split(",")]
    if len(cells) != _SHAPE.count(",") + 1:
        raise BadInput(
            f"{line.where}: it has {len(cells)} values, not the {_SHAPE.count(',') + 1} of {_SHAPE}"
        )
    size, share, reads, places, delay, burst, align, reply = (
        parse_number(cell, line.where) for cell in cells
    )
    if share != 100:
        raise BadInput(
            f"{line.where}: {share} % of its I/Os have this size: only loads of one size are supported"
        )
    if delay or burst != 1:
        raise BadInput(f"{line.where}: delay {delay}, burst {burst}: only loads without pauses are supported")
    if reply:
        raise BadInput(f"{line.where}: a reply of {reply} bytes is for network tests")
    if places and align != size:
        raise BadInput(
            f"{line.where}: align {align}: random addresses are multiples of the I/O size here; write "
            f"{size} instead (with 0, most I/Os of Iometer span two pages of the drive)"
        )
    return make_plain_load(name, reads, places, size, None, line.where)
