"""The bench's data files, and the records parsed from them and from the guest's tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.vm import config, conftest, devices, suite
from tests.vm.errors import BenchError, FetchError
from tests.vm.guest.support.sysfs import parse_stat
from tests.vm.guest.support.workload import Fio, parse_counts
from tests.vm.report import matrix, results


def test_support_matrix_is_up_to_date() -> None:
    page = matrix.render_page(config.read_config(), devices.read_devices().values())
    assert matrix.PAGE.read_text() == page, "run: python3 -m tests.vm.report.matrix --write"


def test_kernel_names_are_found_or_listed() -> None:
    known = config.read_config()
    assert known.find_kernel("6.12").series == "6.12."
    with pytest.raises(BenchError, match=r"5\.10, 6\.1, 6\.12"):
        known.find_kernel("2.4")


def test_every_recipe_expands(tmp_path: Path) -> None:
    recipes = list(devices.read_devices().values())
    args = " ".join(devices.build_qemu_args(recipes, tmp_path))
    assert "{" not in args.replace('{"driver"', "").replace('"file": {', "")
    for recipe in recipes:
        assert not any("," in d.size for d in recipe.disks.values())
        assert recipe.disks or not recipe.qemu


def test_nodes_and_ids_are_not_used_twice() -> None:
    nodes = [node for recipe in devices.read_devices().values() for node in recipe.disks]
    assert len(nodes) == len(set(nodes))


def test_unknown_device_lists_the_known() -> None:
    with pytest.raises(BenchError, match="nvme-ocp"):
        devices.choose_devices(["floppy"], devices.read_devices())


def test_parameters_come_first_and_must_agree() -> None:
    known = devices.read_devices()
    lines = devices.list_modprobes(devices.choose_devices(["nvme-4k", "nvme"], known))
    assert lines == [("nvme_core", "multipath=N"), ("nvme",)]
    with pytest.raises(BenchError, match="nvme_core"):
        devices.list_modprobes(devices.choose_devices(["nvme", "nvme-multipath"], known))


def test_guest_files_ask_for_known_devices() -> None:
    known = devices.read_devices()
    files = suite.list_guest_files()
    assert files
    for file in files:
        devices.choose_devices(file.devices, known)


def test_constants_are_read_without_importing() -> None:
    source = 'import nothing_there\nDEVICES = ("nvme",)\nCPUS = 4\nOTHER = 1\n'
    assert suite.read_constants(source) == {"DEVICES": ("nvme",), "CPUS": 4}
    with pytest.raises(BenchError, match="literal"):
        suite.read_constants("CPUS = count()")


def test_results_keep_every_reason() -> None:
    xml = b"""<testsuites><testsuite><testcase name="a"/>
    <testcase name="b"><failure message="wrong&#10;more">x</failure></testcase>
    <testcase name="c"><error message="broken"/></testcase>
    <testcase name="d"><skipped message="no fio"/></testcase></testsuite></testsuites>"""
    parsed = results.parse_results(xml)
    assert (parsed.passed, parsed.total) == (1, 4)
    assert parsed.failed == {"b": "wrong", "c": "broken"}
    assert parsed.skipped == {"d": "no fio"}
    assert "no fio" in parsed.format_line()


def test_a_skip_is_listed_only_with_the_reason_of_the_matrix() -> None:
    outcome = results.Results(1, {}, {"a": "x: why x", "b": "x: another", "c": "no fio"})
    assert outcome.unlisted_skips({"x": "why x"}) == {"b": "x: another", "c": "no fio"}


def test_ci_selects_files_by_tier_and_manual_runs_take_all() -> None:
    known = config.read_config()
    full, part = (next(k for k in known.kernels if k.tier == tier) for tier in ("full", "floor"))
    both = suite.GuestFile(Path("test_both.py"), (), 2, ("full", "floor"), 1.0)
    only = suite.GuestFile(Path("test_only.py"), (), 2, suite.DEFAULT_TIERS, 1.0)
    part = replace(part, files=())
    assert [suite.find_skip_reason(k, f, "ci") for k in (full, part) for f in (both, only)][:3] == [None] * 3
    assert "test_only" in (suite.find_skip_reason(part, only, "ci") or "")
    assert suite.find_skip_reason(part, only, "") is None
    with pytest.raises(BenchError, match="'nightly'"):
        suite.find_skip_reason(full, both, "nightly")


def test_ci_leaves_out_manual_cases() -> None:
    file = suite.GuestFile(Path("test_both.py"), (), 2, ("full",), 1.0)
    assert "not manual" in suite.make_pytest_arguments(file, "ci")
    assert "not manual" not in suite.make_pytest_arguments(file, "")


def test_files_that_need_the_same_guest_share_one() -> None:
    files = [suite.GuestFile(Path(f"test_{name}.py"), (), 2, ("full",), 10.0) for name in "abcde"]
    other = suite.GuestFile(Path("test_other.py"), ("nvme",), 2, ("full",), 10.0, notes_rows=True)
    shared = suite.share_guests([files[0], other, *files[1:]])
    assert [file.name for file in shared] == ["test_a+test_b+test_c+test_d", "test_other", "test_e"]
    assert shared[0].timeout_s == 40.0
    assert suite.make_pytest_arguments(shared[0], "ci")[-4:] == [f"test_{name}.py" for name in "abcd"]
    assert {path for file in shared for path in file.paths} == {file.path for file in (*files, other)}


def test_kernel_with_named_files_runs_only_those_files() -> None:
    stems = {file.path.stem for file in suite.list_guest_files()}
    kernel = next(kernel for kernel in config.read_config().kernels if kernel.files)
    assert set(kernel.files) <= stems
    named = suite.GuestFile(Path(f"{kernel.files[0]}.py"), (), 2, (kernel.tier,), 1.0)
    assert [suite.find_skip_reason(kernel, named, chosen) for chosen in ("", "ci")] == [None, None]
    other = replace(named, path=Path("test_other.py"))
    why = suite.find_skip_reason(kernel, other, "")
    assert why and why.startswith("test_other ") and why.endswith(f" {kernel.name}")


def test_every_tier_has_a_kernel() -> None:
    tiers = {kernel.tier for kernel in config.read_config().kernels if kernel.tier}
    assert {tier for file in suite.list_guest_files() for tier in file.tiers} == tiers


def test_ci_runs_kernels_with_a_tier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPWATCH_VM_KERNEL", raising=False)
    monkeypatch.setenv("OPWATCH_VM_TIER", "ci")
    known = config.read_config().kernels
    assert conftest.choose_kernels() == [k for k in known if k.tier]
    assert conftest.choose_kernels(bench_itself=True) == [k for k in known if k.tier in suite.DEFAULT_TIERS]
    monkeypatch.setenv("OPWATCH_VM_TIER", "")
    assert conftest.choose_kernels() == list(known)


def test_optional_missing_kernel_does_not_fail_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPWATCH_REQUIRE", "kernel,vm")
    gone = FetchError("sid: it has no linux-image-amd64 of the 9.9. series")
    rolling = config.Kernel("9.9", "9.9.", "Debian", ("sid",), "linux-image-amd64", optional="it moves on")
    with pytest.raises(pytest.skip.Exception, match=rf"9\.9\. .*: {rolling.optional}$"):
        conftest.skip_missing_kernel(rolling, gone)
    with pytest.raises(pytest.fail.Exception, match=r"9\.9\. series"):
        conftest.skip_missing_kernel(replace(rolling, optional=""), gone)


def test_stat_record_is_in_bytes_and_never_decreases() -> None:
    before = parse_stat("1 2 8 4 5 6 16 8 0 10 11 12 13 24 15 16 17")
    after = parse_stat("2 2 16 4 6 6 24 8 0 10 11 13 13 32 15 17 17")
    delta = after - before
    assert (delta.reads, delta.read_bytes) == (1, 4096)
    assert (delta.writes, delta.write_bytes) == (1, 4096)
    assert (delta.discards, delta.discard_bytes, delta.flushes) == (1, 4096, 1)
    with pytest.raises(ValueError, match="reads"):
        _ = before - after


def test_fio_counts_add_up_over_jobs() -> None:
    side = {"total_ios": 3, "io_bytes": 12288}
    none = {"total_ios": 0, "io_bytes": 0}
    job = f'{{"read": {side}, "write": {none}, "trim": {none}, "total_err": 1}}'.replace("'", '"')
    counts = parse_counts(f'fio: a warning\n{{"jobs": [{job}, {job}]}}')
    assert (counts.reads, counts.read_bytes, counts.errors) == (6, 24576, 2)


def test_fio_size_is_exactly_the_count() -> None:
    argv = Fio("randread", 10_007, block_bytes=512).build_argv("/dev/x")
    assert f"--io_size={10_007 * 512}" in argv
    assert "--filename=/dev/x" in argv
