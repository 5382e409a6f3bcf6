"""Which discard programs are loaded for an audit, and which are reported missing."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from opwatch.collectors.audit import discard_programs
from opwatch.errors import ProbeRejected
from opwatch.trace.programs import Attachment
from opwatch.trim.audit.programs import (
    CHAINED,
    CLAIM_PROGRAMS,
    PROGRAMS,
    ProgramOptions,
    find_absent,
    select_programs,
)
from tests.unit.support.bpf_sources import BPF, read_sections


def list_names(following: ProgramOptions) -> set[str]:
    return {program.name for program in select_programs(following)}


def test_program_table_is_complete_and_exact() -> None:
    sections = read_sections(*(str(path.relative_to(BPF)) for path in Path(BPF, "discard").iterdir()))
    assert [program.name for program in PROGRAMS if program.name not in sections] == []
    assert len(PROGRAMS) == len(sections)
    at_functions = {name for name, section in sections.items() if section.startswith(("fentry/", "fexit/"))}
    assert {program.name for program in PROGRAMS if program.at_function} == at_functions


def test_audit_of_ext4_loads_only_ext4_programs() -> None:
    followed = list_names(ProgramOptions(filesystem="ext4"))
    assert {"discard_ext4_extent", "discard_ext4_group", "discard_submitted"} <= followed
    assert not [name for name in followed if "xfs" in name or "f2fs" in name]
    # The filesystem's own events report extents, so discard_asked adds no information.
    assert "discard_asked" not in followed
    assert "discard_asked" in list_names(ProgramOptions(filesystem="btrfs"))
    assert "discard_asked" in list_names(ProgramOptions())


def test_rejected_function_programs_are_left_out() -> None:
    at_functions = {program.name for program in PROGRAMS if program.at_function}
    assert not list_names(ProgramOptions(functions=False, claims=True)) & at_functions
    assert list_names(ProgramOptions(claims=True)) & CLAIM_PROGRAMS == {"discard_fitrim"}
    assert list_names(ProgramOptions(functions=False, claims=True)) & CLAIM_PROGRAMS == {"discard_fitrim_any"}
    assert not list_names(ProgramOptions()) & CLAIM_PROGRAMS


def test_optional_programs_are_chosen_separately() -> None:
    assert "discard_nvme" in list_names(ProgramOptions())
    assert not list_names(ProgramOptions(commands=False)) & {"discard_nvme", "discard_scsi", "discard_ata"}
    assert "discard_cloned" not in list_names(ProgramOptions())
    assert "discard_cloned" in list_names(ProgramOptions(clones=True))


def test_block_tracer_calls_programs_at_shared_tracepoints() -> None:
    def list_attached(following: ProgramOptions, attachment: Attachment) -> set[str]:
        return {program.name for program in select_programs(following) if program.attachment is attachment}

    assert list_attached(ProgramOptions(), Attachment.REQUIRED) == {
        "discard_bio",
        "discard_issued",
        "discard_done",
    }
    assert list_attached(ProgramOptions(), Attachment.CALLED) == set()
    assert list_attached(ProgramOptions(chained=True), Attachment.CALLED) == CHAINED
    assert list_attached(ProgramOptions(chained=True), Attachment.REQUIRED) == {"discard_bio"}


def test_completion_programs_are_attached_first() -> None:
    order = [program.name for program in select_programs(ProgramOptions())]
    for end, begin in (("done", "issued"), ("bio_done", "bio"), ("ata_done", "ata"), ("requeued", "issued")):
        assert order.index(f"discard_{end}") < order.index(f"discard_{begin}")


def test_missing_programs_are_reported() -> None:
    loaded = [(name, 0) for name in list_names(ProgramOptions(functions=False, filesystem="ext4"))]
    missed = find_absent(loaded)
    # Programs left out and programs that failed to attach, but no optional ones.
    assert {"discard_asked", "discard_submitted", "discard_xfs_extent"} <= missed
    assert not missed & {"discard_fitrim", "discard_cloned", "discard_ext4_extent"}
    without = [(name, errno.ENOENT if name == "discard_nvme" else 0) for name, _ in loaded]
    assert find_absent(without) == missed | {"discard_nvme"}


class FakeKernel:
    """Refuses programs attached to functions."""

    class ProbeError(RuntimeError):
        """(errno, what, log)."""

    def __init__(self, number: int = errno.EINVAL, *, all_of_them: bool = False) -> None:
        self.number, self.all_of_them, self.tried = number, all_of_them, list[set[str]]()

    def load(self, dev: int, inode: int, way: list[tuple[str, str, int]], *, stalls: bool) -> str:
        self.tried.append({name for name, *_ in way})
        if self.all_of_them or "discard_submitted" in self.tried[-1]:
            raise self.ProbeError(self.number, "cannot load", "R1 invalid. ")
        return "loaded"


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    extension = pytest.importorskip("opwatch._native")
    if not hasattr(extension, "Discards"):
        pytest.skip("built without the tracer")
    monkeypatch.setattr(extension, "can_attach_to_functions", lambda: True)
    monkeypatch.setattr(extension, "ProbeError", FakeKernel.ProbeError)
    return monkeypatch


def load_programs(native: pytest.MonkeyPatch, kernel: FakeKernel, following: ProgramOptions) -> object:
    native.setattr("opwatch._native.Discards", kernel.load)
    return discard_programs.make_loader(following)()


def test_function_programs_are_skipped_when_refused(native: pytest.MonkeyPatch) -> None:
    kernel = FakeKernel(errno.EPERM)
    assert load_programs(native, kernel, ProgramOptions()) == "loaded"
    first, second = kernel.tried
    assert first - second == {"discard_submitted", "discard_asked"}
    alone = FakeKernel()
    assert load_programs(native, alone, ProgramOptions(functions=False)) == "loaded"
    assert len(alone.tried) == 1


def test_function_programs_are_not_tried_without_permission(native: pytest.MonkeyPatch) -> None:
    native.setattr("opwatch._native.can_attach_to_functions", lambda: False)
    kernel = FakeKernel()
    assert load_programs(native, kernel, ProgramOptions()) == "loaded"
    assert len(kernel.tried) == 1


def test_refusal_includes_both_logs(native: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProbeRejected) as refusal:
        load_programs(native, FakeKernel(all_of_them=True), ProgramOptions())
    assert refusal.value.log == "R1 invalid. R1 invalid. "


# Imports a verb's module and prints open file names and the kernel types once loaded.
VERB = """
import os, time
from opwatch.tools.commands.trim import _import_verb

def names():
    with os.scandir("/proc/self/fd") as descriptors:
        return [os.readlink(one.path) for one in descriptors if os.path.islink(one.path)]

_import_verb("trim", {verb!r})
until = time.monotonic() + {seconds}
while time.monotonic() < until and not any("opwatch types" in name for name in names()):
    time.sleep(0.01)
print(*names())
"""


def list_open_files(verb: str, seconds: float) -> str:
    program = VERB.format(verb=verb, seconds=seconds)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_kernel_types_are_loaded_before_an_audit_needs_them(native: pytest.MonkeyPatch) -> None:
    if not Path("/sys/kernel/btf/vmlinux").exists():
        pytest.skip("this kernel has no BTF")
    assert "opwatch types" in list_open_files("audit", 60)
    assert "opwatch types" not in list_open_files("check", 0.5)
