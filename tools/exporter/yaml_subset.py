"""Read the part of YAML that configuration files of this exporter use: mappings, lists and texts.

Anchors, tags, several documents and folded texts are refused. Values stay texts; whoever reads a value knows
its type.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from opwatch.errors import BadInput

MAX_BYTES, _MAX_DEPTH = 1 << 20, 16
_KEY = re.compile(
    r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s"'#,\[\]{}&*!|>%@`-][^#]*?|-[^\s#][^#]*?)\s*:(?=\s|$)"""
)
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_ESCAPES = {
    **{"n": "\n", "t": "\t", "r": "\r", "0": "\0", "e": "\x1b", "b": "\b", "f": "\f", "a": "\a", "v": "\v"},
    **{'"': '"', "\\": "\\", "/": "/", " ": " "},
}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)


@dataclass(frozen=True, slots=True)
class YamlText:
    """A scalar. A text in quotes is never a number, a boolean or null."""

    text: str
    line: int
    is_quoted: bool = False

    @property
    def is_null(self) -> bool:
        return not self.is_quoted and self.text in ("", "~", "null", "Null", "NULL")


YamlValue = YamlText | list["YamlValue"] | dict[str, "YamlValue"]


@dataclass(frozen=True, slots=True)
class _YamlLine:
    number: int
    indent: int
    text: str


class YamlError(BadInput):
    """A file that cannot be read, with the line."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")


def parse_yaml(text: str) -> YamlValue:
    """Return the document, an empty mapping if there is none. Raise YamlError."""
    if len(text) > MAX_BYTES:
        raise YamlError(1, f"the file has more than {MAX_BYTES} bytes")
    parser = _YamlParser(text)
    value = parser.parse_block(0, 0)
    parser.require_end()
    return {} if isinstance(value, YamlText) and value.is_null else value


def _strip_comment(text: str) -> str:
    """Return a line without its comment. A # inside quotes is not one."""
    if '"' not in text and "'" not in text:
        return _COMMENT.sub("", text).rstrip()
    quote, at = "", 0
    while at < len(text):
        char = text[at]
        if quote:
            if char == "\\" and quote == '"':
                at += 1
            elif char == quote:
                quote = ""
        elif char in "\"'" and (at == 0 or text[at - 1] in " :[{,-\t"):
            quote = char
        elif char == "#" and (at == 0 or text[at - 1] in " \t"):
            return text[:at].rstrip()
        at += 1
    return text.rstrip()


class _YamlParser:
    def __init__(self, text: str) -> None:
        self._raw = text.split("\n")
        self._at = 0
        for number, raw in enumerate(self._raw, 1):
            if bad := re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", raw):
                raise YamlError(number, f"control character {ord(bad[0]):#04x}")
        self._skip_start()

    def _skip_start(self) -> None:
        line = self._peek()
        if line and line.text == "---" and line.indent == 0:
            self._at += 1

    def _peek(self) -> _YamlLine | None:
        """Return the next line with content, or None at the end."""
        while self._at < len(self._raw):
            raw = self._raw[self._at].removesuffix("\r")
            stripped = _strip_comment(raw)
            if stripped.strip():
                indent = len(stripped) - len(stripped.lstrip(" "))
                if stripped[indent] == "\t":
                    raise YamlError(self._at + 1, "a tab cannot indent; use blanks")
                return _YamlLine(self._at + 1, indent, stripped[indent:])
            self._at += 1
        return None

    def require_end(self) -> None:
        if line := self._peek():
            if line.text in ("---", "..."):
                raise YamlError(line.number, "the file has more than one document")
            raise YamlError(line.number, f"unexpected text {line.text[:40]!r}; check the indentation")

    def parse_block(self, least: int, depth: int) -> YamlValue:
        """Return the value that begins at the next line, if it is indented by `least` or more."""
        line = self._peek()
        if line is None or line.indent < least:
            return YamlText("", line.number if line else len(self._raw))
        if depth > _MAX_DEPTH:
            raise YamlError(line.number, f"more than {_MAX_DEPTH} levels")
        if line.text == "-" or line.text.startswith("- "):
            return self._parse_list(line.indent)
        if _KEY.match(line.text):
            return self._parse_mapping(line.indent, depth)
        self._at += 1
        return _parse_inline(line.text, line.number)

    def _parse_list(self, indent: int) -> list[YamlValue]:
        values: list[YamlValue] = []
        while (line := self._peek()) and line.indent == indent and (line.text + " ").startswith("- "):
            self._at += 1
            rest = line.text[1:].strip()
            if not rest or _KEY.match(rest):
                raise YamlError(line.number, "a list here has one text per line, as in: - text")
            values.append(_parse_inline(rest, line.number))
        return values

    def _parse_mapping(self, indent: int, depth: int) -> dict[str, YamlValue]:
        members: dict[str, YamlValue] = {}
        while (line := self._peek()) and line.indent == indent:
            match = _KEY.match(line.text)
            if not match:
                raise YamlError(line.number, f"{line.text[:40]!r} is not KEY: VALUE")
            key = _parse_scalar(match[1], line.number).text
            if key in members:
                raise YamlError(line.number, f"{key} is given twice")
            self._at += 1
            rest = line.text[match.end() :].strip()
            members[key] = self._parse_member(rest, line, depth)
        if line and line.indent > indent:
            raise YamlError(line.number, f"unexpected text {line.text[:40]!r}; check the indentation")
        return members

    def _parse_member(self, rest: str, line: _YamlLine, depth: int) -> YamlValue:
        if block := re.fullmatch(r"\|([-+]?)", rest):
            return self._parse_literal(line, block[1])
        if rest:
            return _parse_inline(rest, line.number)
        following = self._peek()
        # A list may be as far to the left as its key.
        is_list = following and following.indent == line.indent and (following.text + " ").startswith("- ")
        return self.parse_block(line.indent + (0 if is_list else 1), depth + 1)

    def _parse_literal(self, line: _YamlLine, chomp: str) -> YamlText:
        """Return a text over several lines, as keys and certificates are."""
        rows: list[str] = []
        indent: int | None = None
        while self._at < len(self._raw):
            raw = self._raw[self._at].removesuffix("\r")
            if raw.strip():
                own = len(raw) - len(raw.lstrip(" "))
                indent = own if indent is None else indent
                if own <= line.indent or own < indent:
                    break
                rows.append(raw[indent:])
            else:
                rows.append("")
            self._at += 1
        text = "\n".join(rows)
        text = text + "\n" if chomp == "+" else text.rstrip("\n") + ("" if chomp == "-" else "\n")
        return YamlText(text, line.number, is_quoted=True)


def _parse_inline(text: str, line: int) -> YamlValue:
    """Return a value on one line: a text, [a, b] or {a: b}."""
    if text[0] not in "[{":
        return _parse_scalar(text, line)
    value, end = _parse_flow(text, 0, line, 0)
    if text[end:].strip():
        raise YamlError(line, f"unexpected text {text[end:][:40]!r}")
    return value


def _skip_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t":
        at += 1
    return at


def _parse_flow(text: str, at: int, line: int, depth: int) -> tuple[YamlValue, int]:
    if depth > _MAX_DEPTH:
        raise YamlError(line, f"more than {_MAX_DEPTH} levels")
    at = _skip_blanks(text, at)
    opener = text[at : at + 1]
    if opener not in ("[", "{"):
        return _parse_flow_scalar(text, at, line)
    closer = "]" if opener == "[" else "}"
    values: list[YamlValue] = []
    members: dict[str, YamlValue] = {}
    at = _skip_blanks(text, at + 1)
    while text[at : at + 1] != closer:
        value, at = _parse_flow(text, at, line, depth + 1)
        at = _skip_blanks(text, at)
        if opener == "{":
            if not isinstance(value, YamlText) or text[at : at + 1] != ":":
                raise YamlError(line, "a mapping in braces is {KEY: VALUE, ...}, on one line")
            if value.text in members:
                raise YamlError(line, f"{value.text} is given twice")
            members[value.text], at = _parse_flow(text, at + 1, line, depth + 1)
            at = _skip_blanks(text, at)
        else:
            values.append(value)
        if text[at : at + 1] == ",":
            at = _skip_blanks(text, at + 1)
        elif text[at : at + 1] != closer:
            raise YamlError(line, f"the bracket {opener} is not closed on its line")
    return members if opener == "{" else values, at + 1


_FLOW_SCALAR = re.compile(
    r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|(?:[^,:\[\]{}"']|:(?=\S))(?:[^,\[\]{}:]|:(?=[^\s,\]}]))*)"""
)


def _parse_flow_scalar(text: str, at: int, line: int) -> tuple[YamlValue, int]:
    match = _FLOW_SCALAR.match(text, at)
    if not match:
        raise YamlError(line, f"unexpected text {text[at:][:40]!r}")
    return _parse_scalar(match[0].strip(), line), match.end()


def _parse_scalar(text: str, line: int) -> YamlText:
    if text[:1] == '"':
        if not re.fullmatch(r'"(?:[^"\\]|\\.)*"', text):
            raise YamlError(line, "a text in quotes does not end on its line")
        return YamlText(_unescape(text[1:-1], line), line, is_quoted=True)
    if text[:1] == "'":
        if not re.fullmatch(r"'(?:[^']|'')*'", text):
            raise YamlError(line, "a text in quotes does not end on its line")
        return YamlText(text[1:-1].replace("''", "'"), line, is_quoted=True)
    if text[:1] and text[0] in "&*!|>%@`?" and text not in ("?",):
        raise YamlError(line, f"{text[:40]!r}: anchors, tags and folded texts are not supported here")
    if _KEY.match(text):
        raise YamlError(line, f"{text[:40]!r}: a mapping cannot follow on this line")
    return YamlText(text, line)


def _unescape(text: str, line: int) -> str:
    def replace(match: re.Match[str]) -> str:
        digits = match[1] or match[2] or match[3]
        if digits:
            code = int(digits, 16)
            if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                raise YamlError(line, f"{match[0]} is not a character")
            return chr(code)
        if match[4] not in _ESCAPES:
            raise YamlError(line, f"unknown escape {match[0]!r}")
        return _ESCAPES[match[4]]

    return _ESCAPE.sub(replace, text)
