"""`opwatch trim check` during mounts and umounts: it never confuses two filesystems."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from opwatch.collectors.stack.layers import LayerReader
from opwatch.tools.acting.trim.fitrim import require_mount
from opwatch.tools.runs.checking import measure_free_space
from tests.kernel.support import trims


def test_free_space_is_unknown_when_another_filesystem_is_at_the_mount_point(tmp_path: Path) -> None:
    trims.run("mount", "-t", "tmpfs", "-o", "size=1M", "one", str(tmp_path))
    mount = require_mount(str(tmp_path))
    stack = LayerReader().read_mount(mount)
    here = measure_free_space(mount, stack)
    trims.run("umount", str(tmp_path))
    assert here.free_bytes == 1 << 20
    gone = measure_free_space(mount, stack)
    assert (gone.free_bytes, gone.extents) == (None, None)
    assert "no longer" in str(gone.why_not)
    trims.run("mount", "-t", "tmpfs", "-o", "size=2M", "two", str(tmp_path))
    try:
        # The kernel may reuse the first mount's number for the second.
        other = measure_free_space(
            replace(mount, number=(require_mount(str(tmp_path)).number or 0) + 1), stack
        )
    finally:
        trims.run("umount", str(tmp_path))
    assert other.free_bytes is None
    assert "another filesystem" in str(other.why_not)
