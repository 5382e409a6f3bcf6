"""The folder of a load's logs: new, private, and removed at the end."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from opwatch.errors import OpwatchError
from opwatch.journal.logs_folder import create_logs_folder


def test_leftover_of_a_killed_sweep_is_replaced(tmp_path: Path) -> None:
    left = tmp_path / "one.logs"
    left.mkdir()
    (left / "old").write_text("old")
    with create_logs_folder(tmp_path / "one.journal") as folder:
        assert folder == left and list(folder.iterdir()) == []
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "new").write_text("new")
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("kept")
    (tmp_path / "one.logs").symlink_to(elsewhere)
    with (
        pytest.raises(OpwatchError, match=f"logs: {os.strerror(errno.EEXIST)}"),
        create_logs_folder(tmp_path / "one.journal"),
    ):
        pass
    assert (elsewhere / "kept").read_text() == "kept"
