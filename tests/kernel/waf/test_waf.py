"""`opwatch waf` on a simulated drive as a block device: true counts and faults as the oracle."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from opwatch.host.scratch import ScratchDisk
from tests.kernel.support.drives import MIB, Drive, create_drive, run
from tests.kernel.support.watching import run_opwatch, wait_for_file
from tests.requirements import require_drive
from tests.unit.tools.test_progress import run_on_terminal

OPWATCH = f"{sys.executable} -m opwatch"
FAST = ("--poll", "0.1")


@pytest.fixture(autouse=True)
def _drive() -> None:
    require_drive()


def make_write_command(device: str, megabytes: int = 200) -> str:
    """Return a shell command that overwrites part of the drive at random. The final flush empties the drive's
    buffer, which otherwise goes to NAND at any time, before or after the truth is read."""
    return (
        f"fio --name=x --filename={device} --rw=randwrite --bs=16k --size=48m --io_size={megabytes}m "
        "--norandommap --direct=1 --ioengine=libaio --iodepth=8 --randrepeat=0 --end_fsync=1 "
        "--output=/dev/null"
    )


@dataclass(frozen=True)
class Result:
    """The command's output, and the drive's true counts during the run."""

    status: int
    said: str
    printed: dict[str, Any]
    host: int
    nand: int

    def is_within_error(self) -> bool:
        """Return whether the truth lies within the error of the reported WAF."""
        assert self.printed["waf"] is not None, self.printed["reason"]
        error: float = self.printed["waf_error"]
        waf: float = self.printed["waf"]
        return abs(waf - self.nand / self.host) <= error + 1e-9


def run_waf(one: Drive, script: str, *options: str) -> Result:
    before = one.read_truth()
    done = run_opwatch("waf", "--dev", one.device, "--json", *FAST, *options, "--", "sh", "-c", script)
    after = one.read_truth()
    host = after["host_write_bytes"] - before["host_write_bytes"]
    nand = after["nand_write_bytes"] - before["nand_write_bytes"]
    outcome = json.loads(done.stdout) if done.stdout else {}
    return Result(done.returncode, done.stderr, outcome, host, nand)


def make_fault_command(one: Drive, *words: str) -> str:
    return f"{OPWATCH} drive fault {one.name} {' '.join(words)}"


def test_waf_of_a_command_matches_the_drives_counters() -> None:
    with create_drive() as one:
        result = run_waf(one, f"{make_write_command(one.device)}; exit 3")
        outcome = result.printed
        assert result.status == 3
        assert result.is_within_error() and outcome["waf"] > 1.2
        assert (outcome["host_bytes"], outcome["nand_bytes"]) == (result.host, result.nand)
        assert (outcome["waf_error"], outcome["whole"], outcome["reason"]) == (0, True, None)
        assert outcome["host"]["agrees"] is True and outcome["source"].startswith("log 22h")
        assert outcome["interval_s"] > 0
        assert set(outcome["split"]) >= {"a", "b_bytes_per_s"}


@pytest.mark.parametrize(
    ("faults", "source"),
    [
        pytest.param(("trim=ignore",), "log 22h", marks=pytest.mark.manual),
        (("trim=lazy",), "log 22h"),
        pytest.param(("refresh=1",), "log 22h", marks=pytest.mark.manual),
        pytest.param(("log-fail=22",), "log C0h", marks=pytest.mark.manual),
        (("log-fail=22", "refresh=1"), "log C0h"),
        pytest.param(("log-fail=22", "log-fail=02"), "log C0h", marks=pytest.mark.manual),
        (("log-fail=22", "log-fail=02", "log-fail=09"), "log C0h"),
        pytest.param(("log-slow=22:400ms",), "log 22h", marks=pytest.mark.manual),
        (("log-fail=22", "log-slow=c0:300ms", "log-slow=02:200ms"), "log C0h"),
        pytest.param(("log-fail=22", "wrap32=60M"), "log C0h", marks=pytest.mark.manual),
        pytest.param(("media-error=0:4k",), "log 22h", marks=pytest.mark.manual),
        (("rollback=600",), "log 22h"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_waf_is_right_when_a_fault_leaves_a_counter(faults: tuple[str, ...], source: str) -> None:
    with create_drive() as one:
        run("sh", "-c", make_write_command(one.device, 100))
        one.inject_faults(*faults)
        time.sleep(1)  # so that pages with a refresh of one second are up to date
        # Long enough to learn the maximum page age, and for that age to be a small part of the run.
        megabytes = 750 if "refresh=1" in faults else 250
        result = run_waf(one, f"{make_write_command(one.device, megabytes)} --rate=80m", "--settle", "30")
        assert result.is_within_error()
        assert result.printed["source"].startswith(source)
        assert result.printed["waf_error"] < 0.15 * result.printed["waf"]
        assert result.status == 0


def test_waf_includes_the_rebuild_after_a_die_failure() -> None:
    with create_drive(op="28%") as one:
        result = run_waf(
            one,
            f"{make_write_command(one.device)}; {make_fault_command(one, 'die-fail')}; "
            f"{make_write_command(one.device, 50)}",
        )
        assert result.is_within_error()


def test_waf_is_none_when_counter_units_are_too_coarse() -> None:
    with create_drive() as one:
        run("sh", "-c", make_write_command(one.device, 1200))
        one.inject_faults("log-fail=22", "log-fail=c0")
        result = run_waf(one, make_write_command(one.device))
        assert result.status == 6
        assert result.printed["waf"] is None
        assert "more bytes must be written" in result.printed["reason"]
        assert result.printed["needed_bytes"] > 10**10
        assert "more bytes must be written" in result.said


def test_host_bytes_are_reported_when_no_page_counts_nand_writes() -> None:
    with create_drive() as one:
        one.inject_faults("log-fail=22", "log-fail=c0", "log-fail=09")
        result = run_waf(one, make_write_command(one.device))
        assert result.status == 5
        assert (result.printed["waf"], result.printed["nand_bytes"]) == (None, None)
        assert result.printed["host_bytes"] == result.host
        assert re.search(r"\bno log page\b.*\bNAND\b", result.said)
        assert any("log-09" in failure for failure in result.printed["failures"])


@pytest.mark.parametrize("faults", [("rollback=600", "power-loss"), ("power-loss",)])
def test_waf_is_none_when_the_drive_lost_power_during_the_interval(faults: tuple[str, ...]) -> None:
    with create_drive() as one:
        result = run_waf(
            one,
            f"{make_write_command(one.device)}; {make_fault_command(one, *faults)}; "
            f"{make_write_command(one.device, 50)}",
        )
        assert (result.status, result.printed["waf"]) == (6, None)
        assert "lost power" in result.printed["reason"]


def test_read_only_drive_fails_the_command_but_not_the_measurement() -> None:
    with create_drive() as one:
        script = (
            f"{make_write_command(one.device)}; {make_fault_command(one, 'read-only')}; "
            f"{make_write_command(one.device, 50)}"
        )
        result = run_waf(one, script, "--settle", "3")
        assert result.status not in (0, 6)
        assert result.is_within_error()


def test_waf_is_none_when_the_drive_is_idle() -> None:
    with create_drive() as one:
        run("sh", "-c", make_write_command(one.device))
        result = run_waf(one, "true")
        assert (result.status, result.printed["waf"]) == (6, None)
        assert "nothing" in result.printed["reason"]


def test_measurement_ends_when_the_drive_disappears() -> None:
    with create_drive() as one:
        argv = [sys.executable, "-m", "opwatch", "waf", "--dev", one.device, "--for", "60", *FAST]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(1)
        assert run_opwatch("drive", "destroy", one.name).returncode == 0
        _, said = process.communicate(timeout=60)
        assert process.returncode == 1
        assert "gone" in said


def test_interrupt_prints_the_result_so_far(tmp_path: Path) -> None:
    kept = tmp_path / "a.opw"
    with create_drive() as one:
        argv = [sys.executable, "-m", "opwatch", "waf", "--dev", one.device, "--for", "60", "--json", *FAST]
        argv += ["-o", str(kept)]
        # A child inherits an ignored SIGINT; the command must be interruptible as on a terminal.
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, preexec_fn=_enable_interrupts)
        wait_for_file(kept, process)
        # The writes have to fall between two samples.
        time.sleep(1)
        run("sh", "-c", make_write_command(one.device))
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert json.loads(output)["waf"] >= 1


def _enable_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_until_error_stops_when_the_error_is_small_enough() -> None:
    with create_drive() as one:
        one.inject_faults("log-fail=22")
        load = subprocess.Popen(["sh", "-c", f"exec {make_write_command(one.device, 100000)} --rate=100m"])
        try:
            argv = ("waf", "--dev", one.device, "--until-error", "20%", "--json", *FAST)
            outcome = json.loads(run_opwatch(*argv).stdout)
        finally:
            load.terminate()
            load.wait()
        assert 0 < outcome["waf_error"] <= 0.2 * outcome["waf"]


def test_partition_is_measured_as_its_whole_drive() -> None:
    with create_drive() as one:
        run("sh", "-c", f"echo 2048,40960 | sfdisk -q {one.device}")
        run("partx", "--update", one.device)
        part = f"{one.device}p1"
        argv = (
            "waf",
            "--dev",
            part,
            *FAST,
            "--json",
            "--",
            "sh",
            "-c",
            f"{make_write_command(part).replace('48m', '16m')}",
        )
        outcome = json.loads(run_opwatch(*argv).stdout)
        assert outcome["device"]["name"] == os.path.basename(one.device)
        assert outcome["waf"] is not None and any("counts for all of" in note for note in outcome["notes"])


def test_waf_uses_the_drives_counts_when_iostats_are_off(tmp_path: Path) -> None:
    with create_drive() as one:
        switch = Path(f"/sys/block/{Path(one.device).name}/queue/iostats")
        switch.write_text("0")
        try:
            result = run_waf(one, make_write_command(one.device), "--settle", "10")
        finally:
            switch.write_text("1")
        assert result.is_within_error()
        assert result.printed["host"]["agrees"] is None
        assert result.printed["host"]["kernel_bytes"] is None


def test_disk_without_counters_is_unsupported() -> None:
    with ScratchDisk(16 * MIB) as disk:
        done = run_opwatch("waf", "--dev", disk.node, "--json", *FAST, "--", "true")
        assert done.returncode == 5
        assert json.loads(done.stdout)["waf"] is None


SMARTCTL = """#!/bin/sh
# Counts what the kernel has written to a disk, as a drive of its own would.
sectors=$(awk '{ print $7 }' /sys/block/$(basename $(eval echo \\${$#}))/stat)
"""
SAS = """
printf '{"smartctl":{"exit_status":0},"device":{"protocol":"SCSI"},"scsi_model_name":"ACME",
"scsi_error_counter_log":{"write":{"gigabytes_processed":"%d.%03d"}}}' \\
  $((sectors / 1953125 + 5)) $((sectors * 512 / 1000000 % 1000))
"""
SATA = """
printf '{"smartctl":{"exit_status":0},"device":{"protocol":"ATA"},"model_name":"KINGSTON SEDC500M960G",
"model_family":"Phison Driven SSDs","firmware_version":"X","ata_smart_attributes":{"table":['
for each in 231:SSD_Life_Left:90 233:Flash_Writes_GiB:$((sectors * 3 / 2097152 + 300)) \\
    241:Lifetime_Writes_GiB:$((sectors / 2097152 + 150)) 242:Lifetime_Reads_GiB:9; do
  n=${each##*:}; name=${each#*:}
  printf '%s{"id":%s,"name":"%s","value":100,"raw":{"value":%s,"string":"%s"}}' \\
    "$comma" "${each%%:*}" "${name%:*}" "$n" "$n"
  comma=,
done
printf ']}}'
"""


# A loop device stands in for the drive; opwatch queries smartctl despite the missing firmware.
SMARTCTL_FOR_ALL = """
import sys
from opwatch.collectors.firmware import counting
from opwatch.tools import cli
counting._no_firmware = lambda disk: None
sys.exit(cli.main())
"""


def run_with_smartctl(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an opwatch that assumes smartctl support for every disk."""
    return subprocess.run(
        [sys.executable, "-c", SMARTCTL_FOR_ALL, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def install_smartctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = tmp_path / "smartctl"
    program.write_text(SMARTCTL + script)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


def test_sas_drive_has_host_bytes_but_no_waf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_smartctl(tmp_path, monkeypatch, SAS)
    with ScratchDisk(64 * MIB) as disk:
        done = run_with_smartctl(
            "waf", "--dev", disk.node, "--json", *FAST, "--", "sh", "-c", make_write_command(disk.node)
        )
        outcome = json.loads(done.stdout)
    assert done.returncode == 5
    assert (outcome["waf"], outcome["nand_bytes"], outcome["host_bytes"]) == (None, None, 200 * MIB)
    assert "not measurable" in done.stderr
    assert any("not measurable" in note for note in outcome["notes"])


def test_sata_drive_is_measured_by_its_attributes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_smartctl(tmp_path, monkeypatch, SATA)
    with ScratchDisk(256 * MIB) as disk:
        load = f"{make_write_command(disk.node, 12 * 1024).replace('--bs=16k', '--bs=1m')} --rate=2500m"
        done = run_with_smartctl(
            "waf", "--dev", disk.node, "--json", *FAST, "--settle", "5", "--", "sh", "-c", load
        )
        outcome = json.loads(done.stdout)
    assert outcome["source"].startswith("attribute 233"), outcome
    assert outcome["waf"] is not None, outcome["reason"]
    assert abs(outcome["waf"] - 3) <= outcome["waf_error"] < 1


def test_lines_fit_a_terminal_of_80_columns() -> None:
    with create_drive() as one:
        done = run_opwatch(
            "waf", "--dev", one.device, *FAST, "--", "sh", "-c", make_write_command(one.device)
        )
        assert done.returncode == 0
        assert "the whole command" in done.stdout
        assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    "wrong",
    [
        ("--for", "10", "--until-error", "1%"),
        ("--for", "soon"),
        ("--until-error", "1"),
        ("--poll", "0"),
        ("--for", "10", "--", "true"),
        ("--",),
    ],
)
def test_contradictory_options_are_refused(wrong: tuple[str, ...]) -> None:
    with ScratchDisk(16 * MIB) as disk:
        assert run_opwatch("waf", "--dev", disk.node, *wrong).returncode == 2


def test_progress_is_shown_on_a_terminal_unless_quiet() -> None:
    command = ("-m", "opwatch", "waf", "--for", "2", "--settle", "1", *FAST)
    with create_drive() as one:
        run("sh", "-c", make_write_command(one.device, 20))
        output = run_on_terminal(*command, "--dev", one.device, may_fail=True)
        quiet = run_on_terminal(*command, "-q", "--dev", one.device, may_fail=True)
    assert "\r\x1b[K1 of 2 s" in output
    assert "of 2 s" not in quiet
