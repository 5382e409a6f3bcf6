"""Parse vdbench parameter files with simple jobs. Pure.

A statement is a line: `sd=` names the target, `wd=` the shape of requests, and `rd=` a run. Target and
duration are ignored because the sweep decides them. Other lines are refused with the line number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple

from opwatch.errors import BadInput
from opwatch.foreign import decode_text, split_lines
from opwatch.load.plain import PlainLoad, make_plain_load, parse_bytes, parse_number, parse_seek_percent

_MAX_LOADS = 64
_COMMENTS = ("*", "#", "/")
_DEFAULT = "default"
# Parameters allowed per statement: understood by opwatch, or decided by the sweep.
_KEYS = {
    "sd": frozenset(("sd", "threads", "openflags", "lun", "size")),
    "wd": frozenset(("wd", "sd", "rdpct", "seekpct", "xfersize", "threads")),
    "rd": frozenset(
        (
            *("rd", "wd", "sd", "threads", "forthreads", "iorate"),
            *("elapsed", "interval", "warmup", "pause", "maxdata"),
        )
    ),
}
_DIRECT = ("o_direct", "directio")


class _Statement(NamedTuple):
    where: str
    kind: str
    words: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.words[self.kind]


@dataclass(slots=True)
class _JobFile:
    """The statements read so far. Statements named `default` set the defaults of following statements."""

    defaults: dict[str, dict[str, str]] = field(default_factory=lambda: {kind: {} for kind in _KEYS})
    drives: dict[str, Mapping[str, str]] = field(default_factory=dict)
    workloads: dict[str, Mapping[str, str]] = field(default_factory=dict)
    loads: list[PlainLoad] = field(default_factory=list)


def parse_vdbench(raw: bytes, where: str) -> list[PlainLoad]:
    """Return the runs of the file, in order."""
    file = _JobFile()
    for statement in _split_statements(raw, where):
        words = file.defaults[statement.kind] | dict(statement.words)
        if statement.name == _DEFAULT:
            file.defaults[statement.kind] = words
        elif statement.kind == "rd":
            file.loads.append(_parse_run(statement, words, file))
        else:
            table = file.drives if statement.kind == "sd" else file.workloads
            if statement.name in table:
                raise BadInput(f"{statement.where}: duplicate {statement.kind}={statement.name!r:.60}")
            table[statement.name] = words
    if not 1 <= len(file.loads) <= _MAX_LOADS:
        raise BadInput(f"{where}: it has {len(file.loads)} runs (rd=), not 1 to {_MAX_LOADS}")
    return file.loads


def _split_statements(raw: bytes, where: str) -> Iterator[_Statement]:
    text, first = "", 0
    for number, line in enumerate(split_lines(decode_text(raw)), 1):
        # Text after a blank is a comment, and so is a line with a leading comment character.
        word = "" if line.startswith(_COMMENTS) else (line.split() or [""])[0]
        if not word:
            continue
        text, first = text + word, first or number
        if word.endswith(","):
            continue
        yield _parse_statement(text, f"{where}: line {first}")
        text, first = "", 0
    if text:
        raise BadInput(f"{where}: line {first}: it ends with a comma, and nothing follows")


def _parse_statement(text: str, where: str) -> _Statement:
    kind = text.partition("=")[0]
    if kind not in _KEYS:
        raise BadInput(f"{where}: {text!r:.60}: only sd=, wd= and rd= are supported")
    words: dict[str, str] = {}
    for word in _split_commas(text):
        key, equals, value = word.partition("=")
        if not equals or not value or key in words:
            raise BadInput(f"{where}: {word!r:.60}: write KEY=VALUE, each once")
        if key not in _KEYS[kind]:
            raise BadInput(f"{where}: {key!r:.60} is not understood in {kind}=")
        words[key] = _parse_single(value, f"{where}: {key}")
    if words.get("openflags", _DIRECT[0]) not in _DIRECT:
        raise BadInput(f"{where}: openflags: only {' and '.join(_DIRECT)} are supported")
    if words.get("iorate", "max") != "max":
        raise BadInput(f"{where}: iorate: only max is supported, because loads run at full speed")
    return _Statement(where, kind, words)


def _split_commas(text: str) -> list[str]:
    """Split the text at commas outside parentheses."""
    words, depth, begin = [], 0, 0
    for at, char in enumerate(text):
        depth += {"(": 1, ")": -1}.get(char, 0)
        if char == "," and not depth:
            words.append(text[begin:at])
            begin = at + 1
    return [*words, text[begin:]]


def _parse_single(value: str, where: str) -> str:
    """Return a value, or the only element of a list."""
    if value.startswith("(") and value.endswith(")"):
        value = value[1:-1]
    if not value or any(char in value for char in "(),"):
        raise BadInput(f"{where}: {value!r:.60}: only one value is supported, not a list")
    return value


def _parse_run(statement: _Statement, words: Mapping[str, str], file: _JobFile) -> PlainLoad:
    where, wanted = statement.where, words.get("wd", "")
    names = [name for name in file.workloads if fnmatchcase(name, wanted)]
    if len(names) != 1:
        raise BadInput(
            f"{where}: wd={wanted!r:.60} matches {len(names)} preceding workloads; a run needs exactly one"
        )
    shape = file.workloads[names[0]]
    threads = [
        *(words[key] for key in ("forthreads", "threads") if key in words),
        *(table["threads"] for table in (shape, *_find_drives(words, shape, file)) if "threads" in table),
    ]
    return make_plain_load(
        statement.name,
        parse_number(shape.get("rdpct", "100"), f"{where}: rdpct"),
        parse_seek_percent(shape.get("seekpct", "100"), f"{where}: seekpct"),
        parse_bytes(shape.get("xfersize", "4k"), f"{where}: xfersize"),
        parse_number(threads[0], f"{where}: threads") if threads else None,
        where,
    )


def _find_drives(
    words: Mapping[str, str], shape: Mapping[str, str], file: _JobFile
) -> list[Mapping[str, str]]:
    wanted = words.get("sd", shape.get("sd", "*"))
    return [drive for name, drive in file.drives.items() if fnmatchcase(name, wanted)]
