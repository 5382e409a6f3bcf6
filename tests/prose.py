"""Measure the language of the code: openings of comments, pronouns, names of functions and tests.

`make prose` prints the figures against their bounds. With --sample N it also draws N comments, messages and
names of tests to read aloud: the figures notice a dialect, and only a reader notices a bad sentence.
"""

from __future__ import annotations

import argparse
import ast
import io
import random
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tests.tracked import ROOT, list_tracked

_NOT_PROSE = re.compile(r"SPDX|[Cc]opyright|type: ignore|noqa|clang-format|!/usr")
_WH_WORDS = frozenset(("what", "whether", "whose", "which", "how", "where", "why", "who", "as"))
_PRONOUNS = frozenset(("it", "its", "that", "those", "them", "they", "one", "ones", "none", "this", "these"))
_VAGUE_IN_TESTS = frozenset(("it", "one", "what", "nothing"))
# Shorter C comments are labels.
_MIN_C_COMMENT = 16
_C_COMMENT = re.compile(r"/\*(.*?)\*/", re.DOTALL)
# A string with at least this many words is a message.
_MIN_MESSAGE_WORDS = 5


@dataclass(frozen=True, slots=True)
class Found:
    """A comment, message or name, and where it is."""

    place: str
    text: str


@dataclass(slots=True)
class Prose:
    """The words of a code base."""

    comments: list[Found] = field(default_factory=list)
    messages: list[Found] = field(default_factory=list)
    functions: list[Found] = field(default_factory=list)
    tests: list[Found] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure and its upper bound."""

    title: str
    value: float
    bound: float

    @property
    def is_within_bound(self) -> bool:
        return self.value <= self.bound

    def format_line(self) -> str:
        mark = "" if self.is_within_bound else "  above its bound"
        return f"{self.title:52} {self.value:6.1f}   at most {self.bound:g}{mark}"


def _list_hash_comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each block of `#` comments in adjacent lines of one column."""
    tokens = [
        token
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and not _NOT_PROSE.search(token.string)
    ]
    block: list[tokenize.TokenInfo] = tokens[:1]
    for last, token in pairwise(tokens):
        line, column = last.start
        if token.start != (line + 1, column):
            yield _join_block(block)
            block = []
        block.append(token)
    if block:
        yield _join_block(block)


def _join_block(block: list[tokenize.TokenInfo]) -> tuple[int, str]:
    return block[0].start[0], " ".join(token.string.lstrip("# ") for token in block)


def collect_python(place: str, source: str, prose: Prose) -> None:
    """Add the comments, docstrings, messages and names of Python code."""
    tree, docstrings = ast.parse(source), set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            text := ast.get_docstring(node)
        ):
            line = getattr(node, "lineno", 1)
            prose.comments.append(Found(f"{place}:{line}", " ".join(text.split())))
            docstrings.update(id(inner) for inner in ast.walk(node.body[0]))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__"):
            names = prose.tests if node.name.startswith("test_") else prose.functions
            names.append(Found(f"{place}:{node.lineno}", node.name))
    for line, text in _list_hash_comments(source):
        prose.comments.append(Found(f"{place}:{line}", text))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in docstrings:
            continue
        words = node.value.split()
        if len(words) >= _MIN_MESSAGE_WORDS:
            prose.messages.append(Found(f"{place}:{node.lineno}", " ".join(words)))


def collect_c(place: str, source: str, prose: Prose) -> None:
    """Add the comments of C code."""
    for comment in _C_COMMENT.finditer(source):
        text = " ".join(part.strip(" *\t") for part in comment[1].split("\n")).strip()
        if len(text) >= _MIN_C_COMMENT and not _NOT_PROSE.search(text):
            line = source.count("\n", 0, comment.start()) + 1
            prose.comments.append(Found(f"{place}:{line}", text))


def collect_tree(paths: Iterable[Path]) -> Prose:
    """Return the words of these files. Fixtures are not ours."""
    prose = Prose()
    for path in paths:
        place = str(path.relative_to(ROOT))
        if "fixtures" in path.parts or path.suffix not in (".py", ".c", ".h"):
            continue
        collect = collect_python if path.suffix == ".py" else collect_c
        collect(place, path.read_text(), prose)
    return prose


def _compute_percentage(found: Iterable[Found], is_counted: Iterable[bool]) -> float:
    marks = [counted for _, counted in zip(found, is_counted, strict=True)]
    return 100 * sum(marks) / max(1, len(marks))


def _has_single_word(name: str) -> bool:
    return "_" not in name.strip("_")


def _is_vague(name: str) -> bool:
    words = name.split("_")[1:]
    return len(words) < 2 or not _VAGUE_IN_TESTS.isdisjoint(words)


def _opens_with(text: str, words: Iterable[str]) -> bool:
    opening = re.match(r"\w+", text)
    return opening is not None and opening[0].lower() in words


def measure_prose(prose: Prose) -> list[Measure]:
    """Return the figures with their bounds."""
    words = [word for comment in prose.comments for word in re.findall(r"\w+", comment.text.lower())]
    pronouns = sum(word in _PRONOUNS for word in words)
    return [
        Measure(
            "comments that open with What, %",
            _compute_percentage(
                prose.comments, (_opens_with(comment.text, ("what",)) for comment in prose.comments)
            ),
            1,
        ),
        Measure(
            "comments that open with a wh-word, %",
            _compute_percentage(
                prose.comments, (_opens_with(comment.text, _WH_WORDS) for comment in prose.comments)
            ),
            4,
        ),
        Measure("pronouns per 1,000 words of comments", 1000 * pronouns / max(1, len(words)), 45),
        Measure(
            "functions named by a single word, %",
            _compute_percentage(
                prose.functions, (_has_single_word(function.text) for function in prose.functions)
            ),
            30,
        ),
        Measure(
            "tests named vaguely (it, one, what, nothing), %",
            _compute_percentage(prose.tests, (_is_vague(test.text) for test in prose.tests)),
            5,
        ),
    ]


def _print_sample(prose: Prose, count: int, seed: int) -> None:
    draw = random.Random(seed)
    for pool in (prose.comments, prose.messages, prose.tests):
        print()
        for found in draw.sample(pool, min(count, len(pool))):
            print(f"{found.place}: {found.text[:400]}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the language of the code.")
    parser.add_argument(
        "--sample", type=int, default=0, metavar="N", help="draw N texts of each kind to read"
    )
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    prose = collect_tree(list_tracked())
    measures = measure_prose(prose)
    print("\n".join(measure.format_line() for measure in measures))
    if args.sample:
        _print_sample(prose, args.sample, args.seed)
    return 0 if all(measure.is_within_bound for measure in measures) else 1


if __name__ == "__main__":
    sys.exit(main())
