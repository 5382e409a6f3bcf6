"""Every make target named in a document exists, and runs in CI or in `make smoke`."""

from __future__ import annotations

import re

from tests.tracked import ROOT, list_tracked

# Targets that neither CI nor `make smoke` runs, and the reasons.
NOT_SMOKED = {
    "bench-exporter": "downloads node_exporter and needs root for minutes; CI type-checks its module",
    "bench-saturation": "boots a guest of its own for minutes; CI type-checks its module",
    "deb": "installs build tools and builds for minutes; lintian judges the packages",
    "exactness": "boots a guest of every kernel; CI runs the same tests on the kernels of its tier",
    "format": "changes the checkout; `make lint` runs the same tools",
    "install": "tests/native/test_install.py runs it",
    "audit": "asks databases of vulnerabilities on the network",
    "lock": "asks the package index for the newest versions",
    "release": "builds everything for minutes, from a clone",
    "reproducible": "builds everything twice, for minutes",
    "sbom": "needs the wheel, for minutes; `make release` runs it",
    "sdist": "tests/native/test_packages.py builds it",
    "wheel": "downloads auditwheel and builds for minutes; auditwheel judges the wheel",
    "uninstall": "tests/native/test_install.py runs it",
    "prose": "tests/unit/house/test_prose.py measures the same figures",
    "pictures": "takes minutes and Chromium; CI type-checks its modules",
    "test-all": "takes hours; CI runs its tests without the manual cases",
    "test-analysis": "downloads 500 MB of readers; CI type-checks its module",
    "test-fleet": "downloads servers, types and readers of tables; CI type-checks its modules",
    "test-packages": "fetches roots of Debian and builds in them for minutes; CI type-checks its module",
    "test-arm64": "emulates another architecture for minutes",
}
# A named target starts a line in a code block or an inline code span; in the manual a font change comes
# first.
_INLINE = re.compile(r"`make ([a-z][\w-]*)")
_LINE = re.compile(r"^\s*(?:\$ |# )?(?:sudo |begin )?make ([a-z][\w-]*)", re.MULTILINE)
_MANUAL = re.compile(r"\\fBmake ([a-z][\w-]*)|^\.B make ([a-z][\w-]*)", re.MULTILINE)


def find_targets(makefile: str) -> set[str]:
    return set(re.findall(r"^([a-z][\w-]*):", makefile, re.MULTILINE))


def find_smoke_targets(makefile: str) -> set[str]:
    """Return the targets that `make smoke` runs, with their dependencies."""
    named = set(re.findall(r"\$\(call smoke_run,([\w-]+)", makefile))
    rules = dict(re.findall(r"^([a-z][\w-]*):(.*)$", makefile, re.MULTILINE))
    return named | {needed for target in named for needed in rules[target].split()}


def find_markdown_targets(page: str) -> set[str]:
    """Return the targets in inline code and in code blocks; prose may "make" anything."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return set(_INLINE.findall(page)).union(*(_LINE.findall(block) for block in blocks))


def find_manual_targets(page: str) -> set[str]:
    return {word for words in _MANUAL.findall(page) for word in words if word}


def find_named_targets() -> dict[str, set[str]]:
    """Return each target named in documents, with the documents."""
    # The changelog names former targets.
    pages = [path for path in list_tracked() if path.suffix in (".md", ".1") and path.name != "CHANGELOG.md"]
    places: dict[str, set[str]] = {}
    for path in pages:
        find = find_manual_targets if path.suffix == ".1" else find_markdown_targets
        for target in find(path.read_text()):
            places.setdefault(target, set()).add(str(path.relative_to(ROOT)))
    return places


def test_names_are_found_in_code_and_not_in_prose() -> None:
    page = "We\nmake no promise. `make one`, `make two X=1`\n```sh\nmake three  # it\n$ sudo make four\n```\n"
    assert find_markdown_targets(page) == {"one", "two", "three", "four"}
    assert find_manual_targets("they\nmake it\n\\fBmake one\\fR\n.B make two\n") == {"one", "two"}


def test_documents_name_targets_that_exist() -> None:
    targets = find_targets((ROOT / "Makefile").read_text())
    assert {target: places for target, places in find_named_targets().items() if target not in targets} == {}
    assert len(find_named_targets()) > 20


def test_ci_runs_every_target_that_a_document_names() -> None:
    makefile = (ROOT / "Makefile").read_text()
    by_ci = set(_LINE.findall((ROOT / ".ci/run").read_text()))
    assert {"smoke", "lint"} <= by_ci
    run = by_ci | find_smoke_targets(makefile)
    assert {
        target: places
        for target, places in find_named_targets().items()
        if target not in run | NOT_SMOKED.keys()
    } == {}
    assert not NOT_SMOKED.keys() & run, "a target that CI runs needs no reason"
    assert NOT_SMOKED.keys() <= find_targets(makefile)
