"""Parse apt sources, and derive the source of another suite from the machine's own configuration.

Pure functions over text. The repository names no package host, so a host can only be learned from
the machine's own configuration.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

Stanza = dict[str, str]

# Release names that a source may use instead of the code name.
ALIASES = ("stable", "oldstable", "oldoldstable", "testing", "unstable", "sid")
_OPTION_NAMES = {"arch": "Architectures", "lang": "Languages", "target": "Targets"}


def parse_deb822(text: str) -> list[Stanza]:
    """Return the enabled stanzas of a .sources file; continuation lines stay in their field."""
    stanzas: list[Stanza] = [{}]
    last = ""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if not line.strip():
            stanzas.append({})
        elif line[0] in " \t" and last:
            stanzas[-1][last] += "\n" + line
        else:
            name, _, value = line.partition(":")
            last = name.strip().title()
            last = "URIs" if last == "Uris" else last
            stanzas[-1][last] = value.strip()
    return [s for s in stanzas if s and s.get("Enabled", "yes").lower() not in ("no", "false")]


def _parse_options(text: str) -> Stanza:
    fields: Stanza = {}
    for word in text.split():
        name, _, value = word.partition("=")
        known = _OPTION_NAMES.get(name.lower(), name.title())
        fields[known] = value.replace(",", " ")
    return fields


def parse_one_line(text: str) -> list[Stanza]:
    """Return the entries of a .list file as deb822 stanzas."""
    stanzas = []
    for line in text.splitlines():
        entry = line.split("#", 1)[0].strip()
        kind, _, rest = entry.partition(" ")
        if kind not in ("deb", "deb-src"):
            continue
        rest = rest.strip()
        options: Stanza = {}
        if rest.startswith("["):
            inside, _, rest = rest[1:].partition("]")
            options = _parse_options(inside)
        uri, suite, *components = rest.split()
        stanza = {"Types": kind, "URIs": uri, "Suites": suite, "Components": " ".join(components)}
        stanzas.append(stanza | options)
    return stanzas


def read_sources(etc_apt: Path) -> list[Stanza]:
    """Return every entry configured under an /etc/apt directory."""
    stanzas = []
    lists = [etc_apt / "sources.list", *sorted(etc_apt.glob("sources.list.d/*.list"))]
    for path in lists:
        if path.is_file():
            stanzas += parse_one_line(path.read_text())
    for path in sorted(etc_apt.glob("sources.list.d/*.sources")):
        stanzas += parse_deb822(path.read_text())
    return stanzas


def _is_main_archive(stanza: Stanza, codename: str) -> bool:
    suites = stanza.get("Suites", "").split()
    return (
        "deb" in stanza.get("Types", "").split()
        and "main" in stanza.get("Components", "").split()
        and any(suite in (codename, *ALIASES) for suite in suites)
    )


def _is_security_archive(stanza: Stanza, codename: str) -> bool:
    names = (codename, *ALIASES)
    # Before Debian 11 the security suite was named "stretch/updates".
    suites = [f"{name}{tail}" for name in names for tail in ("-security", "/updates")]
    return "deb" in stanza.get("Types", "").split() and any(
        suite in suites for suite in stanza.get("Suites", "").split()
    )


def derive_source(stanzas: Iterable[Stanza], codename: str, suite: str) -> Stanza | None:
    """Return the machine's own source with `suite` instead of the machine's suite, or None if no source
    matches. A security suite is in a separate archive, so the source is derived from the machine's own
    security source."""
    serves = _is_security_archive if suite.endswith("-security") else _is_main_archive
    for stanza in stanzas:
        if serves(stanza, codename):
            return stanza | {"Types": "deb", "Suites": suite, "Components": "main"}
    return None


def select_own_sources(stanzas: Iterable[Stanza], codename: str) -> list[Stanza]:
    """Return the binary sources of the machine's own release, including updates and security."""
    names = (codename, *ALIASES)
    return [
        s
        for s in stanzas
        if "deb" in s.get("Types", "").split()
        and any(suite.split("-")[0].split("/")[0] in names for suite in s["Suites"].split())
    ]


def format_sources(stanzas: Iterable[Stanza]) -> str:
    """Return the stanzas as the text of a .sources file."""
    return "\n".join("".join(f"{k}: {v}\n" for k, v in s.items()) for s in stanzas)
