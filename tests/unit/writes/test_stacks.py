"""Mounts that cannot be followed."""

from __future__ import annotations

from opwatch.collectors.writes.stacks import explain_no_device
from opwatch.host.usage import Mount


def test_an_overlay_names_the_directory_that_it_writes_to() -> None:
    options = ("rw", "lowerdir=/l", "upperdir=/var/lib/upper", "workdir=/w")
    mount = Mount("0:52", "/", "overlay", "overlay", super_options=options)
    assert "/var/lib/upper" in explain_no_device(mount)


def test_other_file_systems_without_a_device_have_a_reason() -> None:
    assert "tmpfs is not on a block device" in explain_no_device(Mount("0:20", "/run", "tmpfs", "tmpfs"))
