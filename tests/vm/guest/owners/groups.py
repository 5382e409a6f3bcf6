"""Control groups for tests, and the kernel's accounting of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.vm.guest.support.shell import ensure_mounted, run_command, write_attribute

ROOT = Path("/sys/fs/cgroup")
# Fields of io.stat with bytes, by operation.
_FIELDS = {"read": "rbytes", "write": "wbytes", "discard": "dbytes"}


@dataclass(frozen=True)
class Group:
    """A version 2 group with the io controller, in which commands can run."""

    folder: Path

    @property
    def name(self) -> str:
        return f"/{self.folder.name}"

    @property
    def cgroup_id(self) -> int:
        return self.folder.stat().st_ino

    def build_argv(self, *argv: str) -> list[str]:
        """Return a command line that runs `argv` in the group."""
        return ["sh", "-c", f'echo $$ >{self.folder}/cgroup.procs; exec "$@"', "sh", *argv]

    def run_command(self, *argv: str) -> str:
        return run_command(*self.build_argv(*argv))

    def read_accounted_bytes(self, dev: str) -> dict[str, int]:
        """Return the nonzero byte counts that the kernel accounts to the group on a device (by number)."""
        for line in (self.folder / "io.stat").read_text().splitlines():
            name, *pairs = line.split()
            if name == dev:
                values = dict(pair.split("=") for pair in pairs)
                counts = {op: int(values.get(field, 0)) for op, field in _FIELDS.items()}
                return {op: count for op, count in counts.items() if count}
        return {}


@contextlib.contextmanager
def create_groups(names: Sequence[str]) -> Iterator[list[Group]]:
    """Create groups with the given names, and remove the groups at the end."""
    if not (ROOT / "cgroup.controllers").exists():
        ensure_mounted("cgroup2", ROOT)
    for controller in ("memory", "io"):
        write_attribute(ROOT / "cgroup.subtree_control", f"+{controller}")
    made = [Group(ROOT / f"opw-{name}") for name in names]
    for group in made:
        group.folder.mkdir()
    try:
        yield made
    finally:
        for group in made:
            group.folder.rmdir()
