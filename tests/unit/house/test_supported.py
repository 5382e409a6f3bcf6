from __future__ import annotations

import re
from pathlib import Path

from opwatch.counters.catalogue.families import load_catalogue, parse_catalogue
from tests import supported


def test_the_list_of_drives_is_that_of_the_catalogue() -> None:
    page = supported.SECTION.path.read_text()
    assert page == supported.SECTION.replace_body(page, supported.format_table()), (
        "run python -m tests.supported --write"
    )
    assert all(entry.drives in page for entry in load_catalogue(system=Path("/nonexistent")).entries)


def test_the_examples_are_entries() -> None:
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", supported.SECTION.path.read_text(), re.MULTILINE)
    [example] = [block for block in blocks if "[[ata]]" in block]
    text = "\n".join(line.strip() for line in example.splitlines())
    assert [entry.name for entry in parse_catalogue(text, "the page")] == ["my-ssd", "my-nvme"]
