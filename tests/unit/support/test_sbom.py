"""The bill of materials of a wheel names each library in it once."""

from __future__ import annotations

from typing import Any

from tests.release.sbom import add_component, list_grafted_libraries


def test_grafted_libraries_have_their_names_without_hash() -> None:
    names = [
        "opwatch/_native.abi3.so",
        "opwatch.libs/libfuse3-af29b8d2.so.3.14.0",
        "opwatch.libs/libelf-0-b58343c4.188.so",
    ]
    assert list_grafted_libraries(names) == ["libelf-0.188.so", "libfuse3.so.3.14.0"]


def test_component_is_added_once_as_a_dependency() -> None:
    bill: dict[str, Any] = {"components": [], "dependencies": [{"ref": "opwatch", "dependsOn": []}]}
    for _ in range(2):
        add_component(bill, "libbpf1", "1:1.1.2-0+deb12u1")
    reference = "pkg:deb/debian/libbpf1@1%3A1.1.2-0%2Bdeb12u1"
    assert [component["purl"] for component in bill["components"]] == [reference]
    assert bill["dependencies"] == [{"ref": "opwatch", "dependsOn": [reference]}, {"ref": reference}]
