from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.collectors.check.fstrim_timer import read_schedule
from opwatch.trim.check.schedule import (
    FSTAB,
    MOUNTINFO,
    Schedule,
    build_schedule,
    find_entry,
    find_schedule_reasons,
    parse_command_line,
    parse_fstab,
    parse_mount_lists,
    parse_properties,
    parse_unix_time,
)
from tests.unit.support.sysfs import SSD_QUEUE, write_attributes
from tests.unit.support.trimtree import NO_DISCARD, Machine

# Output of systemd 252 with --timestamp=unix.
PROPERTIES = """\
Result=success
ExecStart={ path=/sbin/fstrim ; argv[]=/sbin/fstrim --listed-in /etc/fstab:/proc/self/mountinfo --verbose \
--quiet-unsupported ; ignore_errors=no ; start_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }
Id=fstrim.service
LoadState=loaded
ActiveState=inactive
UnitFileState=static

Result=success
Id=fstrim.timer
LoadState=loaded
ActiveState=active
UnitFileState=enabled
LastTriggerUSec=@1763337600
NextElapseUSecRealtime=@1763942400
"""
FSTAB_TEXT = """
# <file system> <mount point> <type> <options>
UUID=0123 / ext4 errors=remount-ro 0 1
/dev/sdb1 /mnt/two\\040words xfs
LABEL=x /m ext4 noatime,X-fstrim.notrim 0 2
short
"""


def make_schedule(fstab: str = "", **changes: object) -> Schedule:
    plan = build_schedule(parse_properties(PROPERTIES), parse_fstab(fstab), None, ())
    return replace(plan, **changes)  # type: ignore[arg-type]


def list_codes(m: Machine, plan: Schedule) -> list[tuple[str, str]]:
    return [(why.code, why.observed) for why in find_schedule_reasons(m.read_stack(), plan)]


@pytest.fixture
def m(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.add_scsi_disk()
    made.add_mount("8:0")
    return made


# --- parsing


def test_the_timer_is_read_from_systemd() -> None:
    plan = make_schedule()
    assert (plan.unit_state, plan.active, plan.will_run, plan.last_result) == (
        *("enabled", True, True),
        "success",
    )
    assert plan.listed_in == (FSTAB, MOUNTINFO)
    assert plan.last and plan.next
    assert (plan.last.timestamp(), plan.next.timestamp()) == (1763337600, 1763942400)


@pytest.mark.parametrize(
    ("load", "state"), [("masked", "masked"), ("not-found", "not installed"), ("loaded", "disabled")]
)
def test_inactive_timer_names_the_remedy(load: str, state: str) -> None:
    text = f"Id=fstrim.timer\nLoadState={load}\nActiveState=inactive\nUnitFileState=\nLastTriggerUSec=n/a\n"
    plan = build_schedule(parse_properties(text), (), None, ())
    assert (plan.unit_state, plan.will_run, plan.last, plan.listed_in) == (state, False, None, None)


@pytest.mark.parametrize("text", [None, "", "n/a", "0", "@0", "Mon 2026-11-16", "@999999999999"])
def test_invalid_times_are_none(text: str | None) -> None:
    assert parse_unix_time(text) is None


@pytest.mark.parametrize(
    ("arguments", "lists"),
    [
        ("fstrim --listed-in /etc/fstab:/proc/self/mountinfo -v", (FSTAB, MOUNTINFO)),
        ("fstrim --listed-in=/etc/fstab", (FSTAB,)),
        ("fstrim -I /etc/my", ("/etc/my",)),
        ("fstrim -va", (MOUNTINFO,)),
        ("fstrim -a", (MOUNTINFO,)),
        ("fstrim --fstab", (FSTAB,)),
        ("fstrim /home", None),
        ("fstrim -m 4096 -l a /home", None),
        ("fstrim -m4a /home", None),
        ("fstrim --listed-in", ()),
    ],
)
def test_mount_lists_come_from_the_command_line(arguments: str, lists: tuple[str, ...] | None) -> None:
    assert parse_mount_lists(arguments.split()) == lists


def test_unknown_exec_start_gives_no_arguments() -> None:
    assert parse_command_line("") == ()


def test_fstab_is_parsed_like_fstrim() -> None:
    entries = parse_fstab(FSTAB_TEXT)
    assert [entry.point for entry in entries] == ["/", "/mnt/two words", "/m"]
    assert entries[1].options == ("defaults",)
    entry = find_entry("/m", entries)
    assert entry and "X-fstrim.notrim" in entry.options
    assert find_entry("/n", entries) is None


# --- findings for a mount


def test_mount_outside_fstab_is_visited_by_the_second_list(m: Machine) -> None:
    assert list_codes(m, make_schedule()) == []


def test_single_line_of_fstab_hides_all_other_mounts(m: Machine) -> None:
    [(code, observed)] = list_codes(m, make_schedule("UUID=0 / ext4 rw"))
    assert code == "timer-skips-mount"
    assert observed.startswith("/etc/fstab ") and observed.endswith(" /proc/self/mountinfo")


def test_the_root_filesystem_is_always_visited(tmp_path: Path) -> None:
    m = Machine(tmp_path)
    m.add_scsi_disk()
    m.mountinfo = "30 1 8:0 / / rw,relatime - ext4 /dev/sda rw\n"
    assert list_codes(m, make_schedule("/dev/sdb /m xfs")) == []


@pytest.mark.parametrize(
    ("fstab", "observed"),
    [
        ("/dev/x /m ext4 X-fstrim.notrim", "it is marked X-fstrim.notrim"),
        ("/dev/x /m ext4 ro", "it is read-only"),
    ],
)
def test_options_of_fstab_leave_a_mount_out(m: Machine, fstab: str, observed: str) -> None:
    assert list_codes(m, make_schedule(fstab)) == [("timer-skips-mount", observed)]


def test_device_without_granularity_is_silently_skipped(tmp_path: Path) -> None:
    m = Machine(tmp_path)
    m.add_scsi_disk(queue=SSD_QUEUE | NO_DISCARD)
    m.add_mount("8:0")
    [(code, observed)] = list_codes(m, make_schedule())
    assert code == "timer-skips-mount" and observed.startswith("sda ") and "discard_granularity" in observed


def test_a_timer_that_is_off_skips_every_mount(m: Machine) -> None:
    [(code, observed)] = list_codes(m, make_schedule(active=False, unit_state="disabled"))
    assert code == "timer-off" and "fstrim.timer" in observed and " disabled" in observed
    assert list_codes(m, make_schedule(container="lxc"))[0][0] == "timer-off"
    assert list_codes(m, Schedule(why_none="systemd is not running"))[0][0] == "timer-off"


def test_cron_job_replaces_the_timer(m: Machine) -> None:
    assert list_codes(m, Schedule(why_none="systemd is not running", cron=("/etc/cron.weekly/fstrim",))) == []


def test_unavailable_systemd_is_not_a_finding(m: Machine) -> None:
    assert list_codes(m, Schedule(why_unknown="no bus")) == []


# --- files of a machine


def test_a_machine_without_systemd_is_read(tmp_path: Path) -> None:
    files = {
        "etc/fstab": FSTAB_TEXT,
        "etc/cron.weekly/fstrim": "#!/bin/sh\n# not this: fstrim\nexec /sbin/fstrim -a",
        "etc/cron.d/other": "# fstrim\n0 0 * * * root true",
        "run/systemd/container": "lxc",
    }
    write_attributes(tmp_path, files)
    plan = read_schedule(tmp_path)
    assert plan.why_none and not plan.will_run
    assert (plan.container, plan.cron, len(plan.fstab)) == ("lxc", ("/etc/cron.weekly/fstrim",), 3)
