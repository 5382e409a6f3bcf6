"""Apt sources: both formats are read, and another suite is derived without knowing any host."""

from __future__ import annotations

from pathlib import Path

from tests.vm import aptsource
from tests.vm.packages import header_packages, real_package

DEB822 = """\
Types: deb deb-src
# a comment
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc

Types: deb
URIs: http://other.example/
Suites: bookworm
Components: main
Enabled: no

Types: deb
URIs: http://mirror.example/security
Suites: bookworm-security
Components: main
"""

ONE_LINE = """\
# deb http://old.example/debian bullseye main
deb-src http://mirror.example/debian bookworm main
deb [arch=amd64,i386 signed-by=/usr/share/k.gpg] http://mirror.example/debian bookworm main contrib
deb http://vendor.example/apt stable vendor # theirs
"""


def test_deb822() -> None:
    first, security = aptsource.parse_deb822(DEB822)
    assert first["URIs"] == "http://mirror.example/debian"
    assert first["Signed-By"].endswith("\n abc")
    assert security["Suites"] == "bookworm-security"


def test_one_line() -> None:
    source, binary, vendor = aptsource.parse_one_line(ONE_LINE)
    assert source["Types"] == "deb-src"
    assert binary["Architectures"] == "amd64 i386"
    assert binary["Signed-By"] == "/usr/share/k.gpg"
    assert vendor["Components"] == "vendor"


def test_derive_changes_only_the_suite() -> None:
    derived = aptsource.derive(aptsource.parse_deb822(DEB822), "bookworm", "bookworm-backports")
    assert derived is not None
    assert derived["URIs"] == "http://mirror.example/debian"
    assert (derived["Suites"], derived["Types"]) == ("bookworm-backports", "deb")
    assert "abc" in derived["Signed-By"]


def test_derive_passes_over_sources_and_vendors() -> None:
    stanzas = aptsource.parse_one_line(ONE_LINE)
    derived = aptsource.derive(stanzas, "bookworm", "trixie")
    assert derived is not None
    assert derived["Architectures"] == "amd64 i386"
    assert aptsource.derive(stanzas[-1:], "bookworm", "trixie") is None


def test_own_has_security_and_no_vendor() -> None:
    own = aptsource.own(aptsource.parse_deb822(DEB822), "bookworm")
    assert [s["Suites"] for s in own] == ["bookworm bookworm-updates", "bookworm-security"]


def test_render_is_read_back() -> None:
    stanzas = aptsource.parse_deb822(DEB822)
    assert aptsource.parse_deb822(aptsource.render(stanzas)) == stanzas


def test_read_takes_both_formats(tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text(ONE_LINE)
    (tmp_path / "sources.list.d/debian.sources").write_text(DEB822)
    (tmp_path / "sources.list.d/off.sources.disabled").write_text(DEB822)
    assert len(aptsource.read(tmp_path)) == 5


def test_meta_package_is_resolved() -> None:
    show = "Package: linux-image-amd64\nVersion: 6.12.95-1~bpo12+1\n"
    show += "Depends: linux-image-6.12.95+deb12-amd64 (= 6.12.95-1~bpo12+1)\n"
    assert real_package(show, "6.12.") == "linux-image-6.12.95+deb12-amd64"
    assert real_package(show, "6.1.") is None
    assert real_package("", "6.1.") is None


def test_headers_go_with_the_image() -> None:
    headers = header_packages("linux-image-6.1.0-50-amd64")
    assert headers == ("linux-headers-6.1.0-50-amd64", "linux-headers-6.1.0-50-common")
    assert header_packages("linux-image-6.1.0-50-amd64-unsigned") == headers
