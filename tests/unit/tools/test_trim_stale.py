"""Options of `opwatch trim stale`."""

from __future__ import annotations

import argparse

import pytest

from opwatch.tools.commands.trim.stale import _make_question, add_arguments


def parse_arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(["/mnt", *words])


def test_options_are_parsed() -> None:
    asked = _make_question(
        parse_arguments("--confidence", "99.5 %", "--precision", "0.5%", "--seconds", "2", "--seed", "9")
    )
    assert (asked.confidence, asked.half_width, asked.seconds, asked.seed) == (0.995, 0.005, 2.0, 9)
    assert [
        _make_question(parse_arguments(*words)).sentinel
        for words in ((), ("--sentinel",), ("--no-sentinel",))
    ] == [
        None,
        True,
        False,
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("--confidence", "95"),
        ("--confidence", "100%"),
        ("--precision", "0%"),
        ("--physical", "4X"),
        ("--seed", "1_0"),
    ],
)
def test_invalid_options_are_refused(words: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse_arguments(*words)
    assert end.value.code == 2
    assert f"argument {words[0]}: '{words[1]}'" in capsys.readouterr().err
