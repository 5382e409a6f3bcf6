"""Apt sources: both formats are parsed, and a source for another suite is derived without a built-in host."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.vm.archive import aptsource, assets, packages
from tests.vm.archive.packages import (
    Apt,
    find_newest_package,
    name_header_packages,
    parse_image_package,
    parse_image_parts,
)
from tests.vm.config import Kernel
from tests.vm.errors import FetchError

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


def test_deb822_sources_are_parsed() -> None:
    first, security = aptsource.parse_deb822(DEB822)
    assert first["URIs"] == "http://mirror.example/debian"
    assert first["Signed-By"].endswith("\n abc")
    assert security["Suites"] == "bookworm-security"


def test_single_line_sources_are_parsed() -> None:
    source, binary, vendor = aptsource.parse_one_line(ONE_LINE)
    assert source["Types"] == "deb-src"
    assert binary["Architectures"] == "amd64 i386"
    assert binary["Signed-By"] == "/usr/share/k.gpg"
    assert vendor["Components"] == "vendor"


def test_derive_changes_only_the_suite() -> None:
    derived = aptsource.derive_source(aptsource.parse_deb822(DEB822), "bookworm", "bookworm-backports")
    assert derived is not None
    assert derived["URIs"] == "http://mirror.example/debian"
    assert (derived["Suites"], derived["Types"]) == ("bookworm-backports", "deb")
    assert "abc" in derived["Signed-By"]


def test_derive_skips_sources_and_vendors() -> None:
    stanzas = aptsource.parse_one_line(ONE_LINE)
    derived = aptsource.derive_source(stanzas, "bookworm", "trixie")
    assert derived is not None
    assert derived["Architectures"] == "amd64 i386"
    assert aptsource.derive_source(stanzas[-1:], "bookworm", "trixie") is None


def test_security_updates_are_derived_from_the_source_of_those() -> None:
    stanzas = aptsource.parse_deb822(DEB822)
    derived = aptsource.derive_source(stanzas, "bookworm", "bullseye-security")
    assert derived is not None
    assert (derived["URIs"], derived["Suites"]) == ("http://mirror.example/security", "bullseye-security")
    assert aptsource.derive_source(stanzas[:1], "bookworm", "bullseye-security") is None


def test_own_sources_have_security_and_no_vendor() -> None:
    own = aptsource.select_own_sources(aptsource.parse_deb822(DEB822), "bookworm")
    assert [s["Suites"] for s in own] == ["bookworm bookworm-updates", "bookworm-security"]


def test_render_is_read_back() -> None:
    stanzas = aptsource.parse_deb822(DEB822)
    assert aptsource.parse_deb822(aptsource.format_sources(stanzas)) == stanzas


def test_read_takes_both_formats(tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text(ONE_LINE)
    (tmp_path / "sources.list.d/debian.sources").write_text(DEB822)
    (tmp_path / "sources.list.d/off.sources.disabled").write_text(DEB822)
    assert len(aptsource.read_sources(tmp_path)) == 5


def test_meta_package_is_resolved() -> None:
    show = "Package: linux-image-amd64\nVersion: 6.12.95-1~bpo12+1\n"
    show += "Depends: linux-image-6.12.95+deb12-amd64 (= 6.12.95-1~bpo12+1)\n"
    assert parse_image_package(show, "6.12.") == "linux-image-6.12.95+deb12-amd64"
    assert parse_image_package(show, "6.1.") is None
    assert parse_image_package("", "6.1.") is None


def test_headers_match_the_image() -> None:
    headers = name_header_packages("linux-image-6.1.0-50-amd64")
    assert headers == ("linux-headers-6.1.0-50-amd64", "linux-headers-6.1.0-50-common")
    assert name_header_packages("linux-image-6.1.0-50-amd64-unsigned") == headers


def test_newer_suite_may_contain_an_older_series() -> None:
    names = [
        "linux-image-6.18.9+deb13-amd64",
        "linux-image-6.18.15+deb13-amd64",
        "linux-image-7.3.4+deb13-amd64",
    ]
    names += ["linux-image-6.18.20+deb13-rt-amd64", "linux-image-6.18.20+deb13-amd64-unsigned"]
    assert find_newest_package(names, "6.18.") == "linux-image-6.18.15+deb13-amd64"
    assert find_newest_package(["linux-image-5.10.0-9-amd64", "linux-image-5.10.0-46-amd64"], "5.10.") == (
        "linux-image-5.10.0-46-amd64"
    )
    assert find_newest_package(names, "6.1.") is None


def test_an_image_may_be_in_several_packages() -> None:
    show = "Package: linux-image-7.3.4+deb13-amd64\nDepends: kmod, linux-base (>= 4.12), "
    show += "linux-binary-7.3.4+deb13-amd64 (= 7.3.4-1), linux-modules-7.3.4+deb13-amd64 (= 7.3.4-1)\n"
    assert parse_image_parts(show) == ["linux-binary-7.3.4+deb13-amd64", "linux-modules-7.3.4+deb13-amd64"]
    assert (
        parse_image_parts("Package: linux-image-6.1.0-50-amd64\nDepends: kmod, linux-base (>= 4.3~)\n") == []
    )


def test_kernel_removed_from_every_suite_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One suite is gone, one has expired, and one has other kernel series only: all three reasons are
    reported."""
    monkeypatch.setenv("OPWATCH_VM_CACHE", str(tmp_path))

    def open_apt(root: Path, suite: str, with_own: bool = False) -> Apt:
        if suite != "moved":
            raise FetchError(f"apt-get update failed: no Release file of {suite}")
        return Apt(root)

    def fake_call(apt: Apt, tool: str, *args: str, cwd: Path | None = None) -> str:
        return "linux-image-7.4.1+deb13-amd64\n" if args[0] == "pkgnames" else ""

    monkeypatch.setattr(packages, "open_apt", open_apt)
    monkeypatch.setattr(Apt, "run_tool", fake_call)
    gone = Kernel("7.3", "7.3.", "Debian", ("gone", "expired", "moved"), "linux-image-amd64")
    with pytest.raises(FetchError) as caught:
        assets.get_kernel_image(gone)
    said = str(caught.value)
    assert " gone; expired: " in said
    assert re.search(r"moved: .*\blinux-image-amd64\b.* 7\.3\. ", said)


def test_kernel_image_may_be_in_the_modules_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPWATCH_VM_CACHE", str(tmp_path))
    modules = tmp_path / "kernels/7.3/usr/lib/modules/7.3.4+deb13-amd64"
    modules.mkdir(parents=True)
    for name in ("vmlinuz", "modules.dep"):
        (modules / name).touch()
    image = assets.get_kernel_image(Kernel("7.3", "7.3.", "Debian", (), "linux-image-amd64"))
    assert (image.release, image.vmlinuz) == ("7.3.4+deb13-amd64", modules / "vmlinuz")
