"""Write a wheel's bill of materials: that of auditwheel, and the libraries whose package it did not find.

    python -m tests.release.sbom WHEEL.whl OUT.cdx.json

auditwheel asks dpkg for /usr/lib/...; packages of Debian 12 list some libraries as /lib/....
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.parse
import zipfile
from pathlib import Path, PurePath
from typing import Any

_GRAFTED = re.compile(r"^opwatch\.libs/(?P<stem>.+)-[0-9a-f]{8}(?P<rest>\..*)$")


def list_grafted_libraries(names: list[str]) -> list[str]:
    """Return the file names, before auditwheel added a hash, of the libraries in a wheel."""
    return sorted(match["stem"] + match["rest"] for name in names if (match := _GRAFTED.match(name)))


def find_package(library: str) -> tuple[str, str]:
    """Return the name and version of the installed Debian package with this library."""
    found = subprocess.run(["dpkg-query", "-S", f"*/{library}"], capture_output=True, text=True, check=False)
    packages = {line.split(":")[0] for line in found.stdout.splitlines()}
    if len(packages) != 1:
        raise SystemExit(f"opwatch: {library}: {len(packages)} installed packages have it, not one")
    [package] = packages
    version = subprocess.check_output(["dpkg-query", "-W", "-f", "${Version}", package], text=True)
    return package, version


def add_component(bill: dict[str, Any], package: str, version: str) -> None:
    """Add a Debian package to the bill, as a dependency of the wheel, unless it is there."""
    if any(component["name"] == package for component in bill["components"]):
        return
    reference = f"pkg:deb/debian/{package}@{urllib.parse.quote(version, safe='')}"
    component = {"type": "library", "bom-ref": reference, "name": package}
    bill["components"].append(component | {"version": version, "purl": reference})
    bill["dependencies"][0]["dependsOn"].append(reference)
    bill["dependencies"].append({"ref": reference})


def main() -> None:
    wheel, out = sys.argv[1:]
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [own] = (name for name in names if PurePath(name).name == "auditwheel.cdx.json")
        bill = json.loads(archive.read(own))
    for library in list_grafted_libraries(names):
        add_component(bill, *find_package(library))
    Path(out).write_text(json.dumps(bill, indent=1) + "\n")


if __name__ == "__main__":
    main()
