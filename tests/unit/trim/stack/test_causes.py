from __future__ import annotations

import tomllib
from dataclasses import asdict

import pytest

from opwatch.errors import OpwatchError
from opwatch.trim.stack.causes import BLANKS, PACKAGED, Effect, load_causes, make_reason, parse_causes
from tests import causes as page

GOOD = """
[[cause]]
number = 1
code = "x"
title = "t"
layer = "l"
stages = ["V1"]
effect = "stops"
seen_by = ["check"]
recognised = "r"
remedy = "mend {device}"
proof = "source"
evidence = "e"
kernels = "any"
"""


def test_page_contains_the_catalogue_table() -> None:
    text = page.SECTION.path.read_text()
    assert text == page.SECTION.replace_body(text, page.format_table()), "run python -m tests.causes --write"
    assert all(f"| `{code}` |" in text for code in load_causes())


def test_every_numbered_cause_exists() -> None:
    assert sorted({cause.number for cause in load_causes().values()}) == list(range(1, 45))


def test_each_cause_equals_its_entry_in_the_file() -> None:
    assert dict(load_causes()) == parse_causes(PACKAGED.read_text(encoding="utf-8"), "the file")


def test_the_file_is_toml() -> None:
    """The code reads the file line by line as JSON."""
    known = [asdict(cause).items() for cause in load_causes().values()]
    tables = tomllib.loads(PACKAGED.read_text(encoding="utf-8"))["cause"]
    for table in tables:
        table |= {name: tuple(value) for name, value in table.items() if isinstance(value, list)}
    assert [{name: value for name, value in pairs if value is not None} for pairs in known] == tables


def test_causes_that_stop_a_trim_have_a_stage() -> None:
    silent = [cause for cause in load_causes().values() if not cause.stages and cause.effect is Effect.STOPS]
    assert silent == []


@pytest.mark.parametrize("code", load_causes())
def test_remedy_names_its_objects(code: str) -> None:
    made = make_reason(code, "sda", "seen", 5, **{name: f"the-{name}" for name in BLANKS})
    assert "{" not in made.remedy
    assert made.to_document()["remedy"] == made.remedy
    assert (made.to_document()["where"], made.to_document()["lost_bytes"]) == ("sda", 5)


def test_unknown_name_stays_a_placeholder() -> None:
    assert "<label>" in make_reason("crypt-no-discards", "dm-0", "seen").remedy
    with pytest.raises(ValueError, match="has a blank"):
        make_reason("crypt-no-discards", "dm-0", "seen", colour="red")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("number = 1", 'number = "1"', "number"),
        ('code = "x"', "", "code"),
        ('effect = "stops"', 'effect = "halts"', "effect"),
        ('stages = ["V1"]', 'stages = ["V9"]', "stages"),
        ("{device}", "{drive}", "remedy"),
        ('layer = "l"', 'layer = "l"\ncolour = "red"', "colour"),
        ("number = 1", "number = 1\nnumber = 1", "duplicate key"),
        ('layer = "l"', "layer = 'l'", "Expecting"),
        ('layer = "l"', "layer", "catalogue"),
        (GOOD, GOOD + GOOD, "duplicate code"),
        (GOOD, "= 1", "catalogue"),
        (GOOD, "", "no \\[\\[cause"),
    ],
)
def test_invalid_catalogue_is_refused(old: str, new: str, complaint: str) -> None:
    assert list(parse_causes(GOOD, "catalogue")) == ["x"]
    with pytest.raises(OpwatchError, match=complaint):
        parse_causes(GOOD.replace(old, new, 1), "catalogue")


def test_the_catalogue_is_packaged() -> None:
    assert PACKAGED.is_file()
