from __future__ import annotations

import argparse
import io
import json
import sys
import types
from pathlib import Path

import pytest

from opwatch.host import diagnosis, toolbox
from opwatch.host.diagnosis import Check, Extension, State, make_note, make_ok, make_problem, summarize_checks
from opwatch.tools.commands import doctor
from tests.unit.support.sysfs import Tree, make_machine, write_attributes


def encode_btf(*names: str) -> bytes:
    """Return a minimal BTF blob with these strings."""
    return b"\x9f\xeb\x01\x00" + b"\0" + b"".join(name.encode() + b"\0" for name in names)


ALL = [f"btf_trace_{name}" for name in (*diagnosis.NEEDED, diagnosis.QUEUE_START)]


# --- the kernel


def test_kernel_with_btf_is_ok() -> None:
    assert diagnosis.check_kernel("6.1.0-18-amd64", "x86_64", encode_btf()).state is State.OK


@pytest.mark.parametrize(
    ("arch", "package"), [("x86_64", "linux-image-amd64"), ("aarch64", "linux-image-arm64")]
)
def test_missing_btf_suggests_another_kernel(arch: str, package: str) -> None:
    check = diagnosis.check_kernel("6.1.0", arch, None)
    assert (check.state, check.exit_status) == (State.PROBLEM, 5)
    assert check.fix and package in check.fix


def test_every_needed_tracepoint_is_looked_for() -> None:
    assert diagnosis.check_tracepoints(encode_btf(*ALL), "x86_64").state is State.OK
    for name in diagnosis.NEEDED:
        without = [type_name for type_name in ALL if type_name != f"btf_trace_{name}"]
        check = diagnosis.check_tracepoints(encode_btf(*without), "x86_64")
        assert (check.state, check.exit_status) == (State.PROBLEM, 5)
        assert name in check.finding


def test_partial_tracepoint_name_does_not_match() -> None:
    longer = [f"{name}_more" for name in ALL] + [f"more_{name}" for name in ALL]
    assert diagnosis.check_tracepoints(encode_btf(*longer), "x86_64").state is State.PROBLEM


def test_the_start_of_the_queue_is_optional() -> None:
    check = diagnosis.check_tracepoints(encode_btf(*ALL[:-1]), "x86_64")
    assert check.state is State.OK and "block_io_start" in check.finding


def test_tracepoints_are_unknown_without_btf() -> None:
    assert diagnosis.check_tracepoints(None, "x86_64").state is State.NOTE
    assert diagnosis.check_loss_counters(None).state is State.NOTE


def test_kernel_without_a_loss_count_is_noted() -> None:
    assert diagnosis.check_loss_counters(encode_btf("recursion_misses")).state is State.OK
    assert diagnosis.check_loss_counters(encode_btf("run_cnt")).state is State.NOTE


@pytest.mark.parametrize(
    ("text", "state", "status"),
    [
        ("[none] integrity confidentiality", State.OK, 0),
        ("none [integrity] confidentiality", State.OK, 0),
        ("none integrity [confidentiality]", State.PROBLEM, 5),
        ("", State.OK, 0),
    ],
)
def test_only_confidentiality_mode_prevents_tracing(text: str, state: State, status: int) -> None:
    check = diagnosis.check_lockdown(text, securityfs=True)
    assert (check.state, check.exit_status) == (state, status)


def test_a_lockdown_that_cannot_be_read_is_unknown() -> None:
    assert diagnosis.check_lockdown(None, securityfs=True).state is State.OK
    unknown = diagnosis.check_lockdown(None, securityfs=False)
    assert unknown.state is State.NOTE and unknown.fix and "mount" in unknown.fix


def test_an_interpreter_is_a_problem_that_does_not_prevent_tracing() -> None:
    off = diagnosis.check_jit("0")
    assert (off.state, off.exit_status) == (State.PROBLEM, 0)
    assert off.fix == "sudo sysctl -w net.core.bpf_jit_enable=1"
    assert diagnosis.check_jit("1").state is diagnosis.check_jit("2").state is State.OK
    assert diagnosis.check_jit(None).state is State.NOTE


def test_missing_capabilities_are_named() -> None:
    assert diagnosis.check_capabilities([], "opwatch doctor", is_root=False).state is State.OK
    check = diagnosis.check_capabilities(["CAP_BPF", "CAP_PERFMON"], "/x/opwatch doctor", is_root=False)
    assert (check.state, check.exit_status, check.fix) == (State.PROBLEM, 4, "sudo /x/opwatch doctor")
    assert "CAP_BPF and CAP_PERFMON missing" in check.finding


def test_root_is_not_advised_to_use_sudo() -> None:
    check = diagnosis.check_capabilities(["CAP_BPF"], "opwatch doctor", is_root=True)
    assert check.exit_status == 4 and "sudo" not in str(check.fix)


# --- the extension


def test_an_extension_with_the_tracer_is_fine() -> None:
    assert diagnosis.check_extension(Extension(None, has_tracer=True), ["clang"], "").state is State.OK


def test_install_command_lists_exactly_the_missing_packages() -> None:
    for built in (Extension("No module named 'x'", False), Extension(None, False)):
        check = diagnosis.check_extension(built, ["clang", "libelf-dev"], "pip install .")
        assert (check.state, check.exit_status) == (State.PROBLEM, 1)
        assert check.fix == "sudo apt-get install clang libelf-dev && pip install ."
    assert diagnosis.check_extension(Extension(None, False), [], "pip install .").fix == "pip install ."


def test_a_missing_shared_library_needs_no_build() -> None:
    error = "libbpf.so.1: cannot open shared object file: No such file or directory"
    check = diagnosis.check_extension(Extension(error, False), ["clang"], "pip install .")
    assert check.fix == "sudo apt-get install libbpf1"


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (None, (True, False)),
        (types.ModuleType("opwatch._native"), (True, False)),
        (types.SimpleNamespace(__file__="x.so"), (False, False)),
        (types.SimpleNamespace(__file__="x.so", Tracer=object), (False, True)),
    ],
)
def test_extension_is_found_by_importing(
    monkeypatch: pytest.MonkeyPatch, module: object, expected: tuple[bool, bool]
) -> None:
    monkeypatch.setitem(sys.modules, "opwatch._native", module)
    built = doctor.find_extension()
    assert (built.error is not None, built.has_tracer) == expected


def build_machine(root: Path) -> list[Path]:
    write_attributes(root, {"bpf/libbpf.h": "", "libelf.h": "", "zlib.h": "", "Python.h": ""})
    return [root / "nowhere", root]


def test_complete_machine_lacks_no_packages(tmp_path: Path) -> None:
    assert toolbox.find_missing_packages(lambda command: command, build_machine(tmp_path), tmp_path) == []


@pytest.mark.parametrize(
    ("lost", "package"),
    [
        ("bpf/libbpf.h", "libbpf-dev"),
        ("libelf.h", "libelf-dev"),
        ("zlib.h", "zlib1g-dev"),
        ("Python.h", "python3-dev"),
    ],
)
def test_each_missing_header_has_its_package(tmp_path: Path, lost: str, package: str) -> None:
    headers = build_machine(tmp_path)
    (tmp_path / lost).unlink()
    assert toolbox.find_missing_packages(lambda command: command, headers, tmp_path) == [package]


def test_each_missing_command_has_its_package(tmp_path: Path) -> None:
    headers = build_machine(tmp_path)
    for package in ("clang", "bpftool", "make", "pkg-config"):

        def which(command: str, absent: str = package) -> str | None:
            return None if command == absent else command

        assert toolbox.find_missing_packages(which, headers, tmp_path) == [package]
    # Any C compiler is sufficient.
    assert toolbox.find_missing_packages(lambda c: None if c == "gcc" else c, headers, tmp_path) == []
    assert "gcc" in toolbox.find_missing_packages(lambda command: None, headers, tmp_path)


def test_rebuild_command_uses_the_original_source(tmp_path: Path) -> None:
    here, elsewhere = tmp_path / "my tree", tmp_path / "lib"
    here.mkdir()
    url = (here).as_uri()
    direct = json.dumps({"url": url, "dir_info": {}})
    assert doctor.format_rebuild_command(direct, elsewhere).endswith(f"--no-deps '{here}'")
    editable = json.dumps({"url": url, "dir_info": {"editable": True}})
    assert doctor.format_rebuild_command(editable, elsewhere).endswith(f"--no-deps -e '{here}'")
    for unknown in (None, "{}", json.dumps({"url": "file:///no/such/folder"})):
        assert doctor.format_rebuild_command(unknown, elsewhere) == "sudo make -C CHECKOUT-OF-OPWATCH install"
    (here / "setup.py").touch()
    wheel = json.dumps({"url": f"{url}/build/wheel/opwatch-0.1.0-py3-none-any.whl", "archive_info": {}})
    assert doctor.format_rebuild_command(wheel, elsewhere) == f"sudo make -C '{here}' install"
    assert doctor.format_rebuild_command(None, here).endswith(f"--no-deps -e '{here}'")


# --- the verdict and the output


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [([], 0), ([0], 0), ([4], 4), ([4, 1], 1), ([1, 5, 4], 5), ([0, 4, 0], 4)],
)
def test_worst_problem_decides_the_verdict(statuses: list[int], expected: int) -> None:
    checks = [make_ok("a", "b"), make_note("c", "d")] + [
        make_problem("p", "q", None, status) for status in statuses
    ]
    status, words = summarize_checks(checks)
    assert status == expected
    assert (words == summarize_checks([])[1]) == (expected == 0)


CHECKS = [
    make_ok("kernel", "Linux"),
    make_note("fio", "missing; " + "word " * 30, "sudo apt-get install fio"),
    make_problem("probe rq_issue", "rejected", "report it", 1, "first line\n" + "x\n" * 50 + "last line\n"),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def print_checks(checks: list[Check], stream: io.StringIO, *, as_json: bool = False) -> tuple[int, str]:
    status = doctor.show_checks(checks, stream, as_json=as_json)
    return status, stream.getvalue()


def test_findings_are_wrapped_on_a_terminal_and_commands_never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    long_fix = make_note("x", "y", "sudo apt-get install " + "package " * 20)
    status, text = print_checks([*CHECKS, long_fix], Terminal())
    assert status == 1
    lines = text.splitlines()
    assert max(len(line) for line in lines if "fix: " not in line) <= 80
    assert f"        fix: {long_fix.fix}" in lines


def test_pipe_gets_a_line_per_finding_without_colours() -> None:
    _, text = print_checks(CHECKS, io.StringIO())
    lines = text.splitlines()
    assert lines[1] == "note    fio                " + CHECKS[1].finding
    assert lines[2] == "        fix: sudo apt-get install fio"
    assert "\033" not in text
    assert lines[-1].endswith("(1 problem, 1 note)")


def test_a_long_log_is_cut_to_its_end_for_people_only() -> None:
    _, text = print_checks(CHECKS, io.StringIO())
    assert "| last line" in text and "first line" not in text
    document = json.loads(print_checks(CHECKS, io.StringIO(), as_json=True)[1])
    assert document["checks"][2]["log"].startswith("first line")


def test_json_is_a_single_document() -> None:
    status, text = print_checks(CHECKS, io.StringIO(), as_json=True)
    document = json.loads(text)
    assert (document["schema"], document["exit_status"], status) == ("opwatch/1", 1, 1)
    assert document["checks"][1] == {
        "name": "fio",
        "state": "note",
        "finding": CHECKS[1].finding,
        "fix": "sudo apt-get install fio",
        "log": None,
    }


# --- the whole command


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A machine without tools, without the extension, and without privileges."""
    monkeypatch.setattr(toolbox, "PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "opwatch._native", None)
    monkeypatch.setattr("opwatch.host.capabilities.list_missing", lambda: ["CAP_BPF", "CAP_PERFMON"])
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr(doctor, "_check_kernel", lambda: [make_ok("kernel", "Linux")])
    return make_machine(tmp_path)


def map_states(checks: list[Check]) -> dict[str, tuple[State, int]]:
    return {check.name: (check.state, check.exit_status) for check in checks}


def test_without_extension_and_privileges_all_else_is_still_checked(bare: Tree) -> None:
    checks = doctor.run_checks(bare.devices)
    answers = map_states(checks)
    assert answers["extension"] == (State.PROBLEM, 1)
    assert answers["capabilities"] == (State.PROBLEM, 4)
    assert answers["probes"] == (State.NOTE, 0)
    assert answers["disks"] == (State.OK, 0)
    assert answers["fio"] == (State.NOTE, 0)
    assert summarize_checks(checks)[0] == 1
    fixes = {check.name: check.fix or "" for check in checks}
    assert "clang" in fixes["extension"] and "bpftool" in fixes["extension"]


def test_probes_are_skipped_without_privileges(bare: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    native = types.SimpleNamespace(__file__="x.so", Tracer=object)
    monkeypatch.setitem(sys.modules, "opwatch._native", native)
    checks = doctor.run_checks(bare.devices)
    assert map_states(checks)["probes"] == (State.NOTE, 0)
    assert summarize_checks(checks)[0] == 4


def test_statistics_that_are_off_are_noted_with_their_disk(bare: Tree) -> None:
    write_attributes(bare["cciss/c0d0"].sysfs, {"queue/iostats": "0"})
    checks = [check for check in doctor.run_checks(bare.devices) if check.name == "statistics"]
    assert [(check.state, check.fix) for check in checks] == [
        (State.NOTE, "echo 1 | sudo tee '/sys/block/cciss!c0d0/queue/iostats'")
    ]


def test_command_runs_on_any_machine(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    doctor.add_arguments(parser)
    status = doctor.run(parser.parse_args(["--json"]))
    document = json.loads(capsys.readouterr().out)
    assert status == document["exit_status"] and status in (0, 1, 4, 5)
    names = {check["name"] for check in document["checks"]}
    assert {"kernel", "tracepoints", "capabilities", "extension", "lockdown", "fio"} <= names
