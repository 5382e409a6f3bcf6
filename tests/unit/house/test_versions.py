"""Files that name a release by hand name the one of opwatch/__init__.py."""

from __future__ import annotations

import re

from opwatch import __version__
from tests.tracked import ROOT, list_tracked

# A development version (0.1.0.dev0) precedes the release that its files name.
RELEASE = re.sub(r"\.dev\d+$", "", __version__)
_IMAGE = re.compile(r"\bopwatch:(\d[\w.]*\w)")
_CHART = re.compile(r"^(?:version|appVersion): (\S+)$", re.MULTILINE)
_CHANGES = re.compile(r"^## (\S+)", re.MULTILINE)


def test_images_have_the_release_as_tag() -> None:
    tags = {
        path.relative_to(ROOT).as_posix(): _IMAGE.findall(path.read_text(errors="replace"))
        for folder in ("tools/deploy", "docs")
        for path in list_tracked()
        if path.is_relative_to(ROOT / folder)
    }
    named = {name: set(found) for name, found in tags.items() if found}
    assert len(named) >= 4
    assert {name: found for name, found in named.items() if found != {RELEASE}} == {}


def test_chart_has_the_release_as_its_version() -> None:
    chart = (ROOT / "tools/deploy/kubernetes/helm/opwatch/Chart.yaml").read_text()
    assert _CHART.findall(chart) == [RELEASE, RELEASE]


def test_changelog_begins_with_the_release() -> None:
    found = _CHANGES.search((ROOT / "CHANGELOG.md").read_text())
    assert found and found[1] == RELEASE
