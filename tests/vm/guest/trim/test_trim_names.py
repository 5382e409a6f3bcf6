"""check on LUKS, LVM and dm-integrity devices made by their own tools, and on dm-cache."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vm.guest.support import stacked
from tests.vm.guest.support.nullblk import NullBlk, create_null_blk
from tests.vm.guest.support.trims import CheckAnswer, mount_with_files, run_check, run_fstrim
from tests.vm.requirements import need_module, need_tool

# Manual runs only: these tests would exceed CI's time limit.
TIERS = ()
DISK = NullBlk(size=192, memory_backed=1, discard=1)
SMALL = NullBlk(size=64, memory_backed=1, discard=1)
# No udev runs in a guest, so the tools must create the nodes themselves.
_ENVIRONMENT = os.environ | {"DM_DISABLE_UDEV": "1"}


def _run_command(*argv: str, stdin: str = "") -> None:
    need_tool(argv[0])
    done = subprocess.run(
        argv, input=stdin, capture_output=True, text=True, check=False, env=_ENVIRONMENT, timeout=120
    )
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr}"


def check_as_nobody(point: Path) -> CheckAnswer:
    """Run check as a user without privileges and return the answer."""
    # Import first, because the checkout may be unreadable for other users.
    code = "import os, sys\nfrom opwatch.tools import cli\ncli.parse(sys.argv[1:])\n"
    code += "os.setgid(65534); os.setuid(65534)\nsys.exit(cli.main(sys.argv[1:]))"
    argv = [sys.executable, "-c", code, "trim", "check", str(point), "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return CheckAnswer(done.returncode, json.loads(done.stdout)["checks"][0])


def _find_dm_name(label: str) -> str:
    # Without udev this is a device node, not a link to one.
    return f"dm-{os.minor(os.stat(f'/dev/mapper/{label}').st_rdev)}"


@contextlib.contextmanager
def create_luks(disk: str, *options: str) -> Iterator[str]:
    need_module("dm_crypt")
    need_module("xts")
    fast = ("--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "--key-file", "-", "--batch-mode")
    _run_command("cryptsetup", "luksFormat", *fast, f"/dev/{disk}", stdin="secret")
    _run_command("cryptsetup", "open", "--key-file", "-", *options, f"/dev/{disk}", "opwluks", stdin="secret")
    try:
        yield _find_dm_name("opwluks")
    finally:
        _run_command("cryptsetup", "close", "opwluks")


@pytest.mark.parametrize("discards", [False, True])
def test_luks_prediction_follows_allow_discards(discards: bool) -> None:
    options = ("--allow-discards",) if discards else ()
    with (
        create_null_blk(DISK) as disk,
        create_luks(disk, *options) as top,
        mount_with_files("ext4", top) as point,
    ):
        forecast = run_check(point)
        assert forecast.outlook == ("reaches" if discards else "nothing")
        assert ("crypt-no-discards" in forecast.reason_codes) is not discards
        # The discard limit gives the same answer as the table.
        other = check_as_nobody(point)
        assert (other.outlook, other.reason_codes, other.status) == (
            forecast.outlook,
            forecast.reason_codes,
            forecast.status,
        )
        assert other.find_facts(top) == forecast.find_facts(top) == {"allow_discards": discards}
        assert other.document["dry_run"] == forecast.document["dry_run"]
        assert run_fstrim(point, disk).arrived == ((forecast.sent_bytes if discards else 0),)


@contextlib.contextmanager
def create_volume_group(disk: str) -> Iterator[tuple[str, ...]]:
    """Create a volume group opwvg on a disk; yield the extra arguments for lvcreate."""
    need_module("dm_mod")
    allowed = f'filter=["a|/dev/{disk}|","r|.*|"] types=["nullb",1] use_devicesfile=0'
    config = ("--config", f"devices {{ {allowed} }}")
    _run_command("pvcreate", *config, "-ff", "-y", f"/dev/{disk}")
    _run_command("vgcreate", *config, "opwvg", f"/dev/{disk}")
    try:
        yield config
    finally:
        _run_command("vgremove", *config, "-ff", "-y", "opwvg")


def test_lvm_linear_prediction_equals_the_arrived_bytes() -> None:
    with create_null_blk(DISK) as disk, create_volume_group(disk) as config:
        _run_command("lvcreate", *config, "-y", "-Wn", "-Zn", "-L", "128M", "-n", "home", "opwvg")
        top = _find_dm_name("opwvg-home")
        with mount_with_files("ext4", top) as point:
            forecast, other = run_check(point), check_as_nobody(point)
            assert (forecast.outlook, other.outlook) == ("reaches", "reaches")
            assert any("opwvg-home does with discards" in doubt for doubt in other.document["unknowable"])
            assert run_fstrim(point, disk).arrived == (forecast.sent_bytes,)


def test_lvm_thin_prediction_excludes_partial_chunks() -> None:
    need_module("dm_thin_pool")
    with create_null_blk(DISK) as disk, create_volume_group(disk) as config:
        _run_command(
            "lvcreate", *config, "-y", "-Zn", "--type", "thin-pool", "-L", "96M", "-n", "pool", "opwvg"
        )
        _run_command("lvcreate", *config, "-y", "-Wn", "-V", "80M", "--thinpool", "opwvg/pool", "-n", "thin")
        top = _find_dm_name("opwvg-thin")
        with mount_with_files("ext4", top) as point:
            forecast, other = run_check(point), check_as_nobody(point)
            kinds = [layer["kind"] for layer in forecast.document["layers"]]
            assert kinds[:2] == ["thin", "thin-pool"]
            # Without access to tables, LVM's device names give the same information.
            assert [layer["kind"] for layer in other.document["layers"]][:2] == ["thin", "thin-pool"]
            # The ends of extents are not whole chunks.
            assert forecast.rounded_bytes == other.rounded_bytes > 0
            assert (forecast.outlook, other.outlook) == ("part", "part")
            assert any("passes discards on" in doubt for doubt in other.document["unknowable"])
            assert 0 < run_fstrim(point, disk).arrived[0] <= forecast.expected_bytes


@pytest.mark.parametrize("discards", [False, True])
def test_integrity_prediction_follows_allow_discards(discards: bool) -> None:
    need_module("dm_integrity")
    options = ("--allow-discards",) if discards else ()
    with create_null_blk(SMALL) as disk:
        _run_command("integritysetup", "format", "--batch-mode", f"/dev/{disk}")
        _run_command("integritysetup", "open", *options, f"/dev/{disk}", "opwintegrity")
        try:
            with mount_with_files("ext4", _find_dm_name("opwintegrity")) as point:
                forecast = run_check(point)
                assert forecast.outlook == ("reaches" if discards else "nothing")
                assert ("integrity-no-discards" in forecast.reason_codes) is not discards
                assert (run_fstrim(point, disk).arrived[0] > 0) is discards
        finally:
            _run_command("integritysetup", "close", "opwintegrity")


@pytest.mark.parametrize("feature", ["", "no_discard_passdown"])
def test_cache_prediction_follows_discard_passdown(feature: str) -> None:
    need_module("dm_cache_smq")
    with create_null_blk(DISK) as origin, create_null_blk(SMALL) as fast, create_null_blk(SMALL) as metadata:
        _run_command("dd", "if=/dev/zero", f"of=/dev/{metadata}", "bs=1M", "count=1", "oflag=direct")
        features = f"2 writethrough {feature}" if feature else "1 writethrough"
        nodes = f"/dev/{metadata} /dev/{fast} /dev/{origin}"
        table = f"0 {stacked.count_sectors(origin)} cache {nodes} 512 {features} smq 0"
        with stacked.create_mapped("cache", table) as top, mount_with_files("ext4", top.name) as point:
            forecast = run_check(point)
            done = run_fstrim(point, origin)
            assert not done.refused and done.claimed_bytes > 0
            assert forecast.outlook == ("nothing" if feature else "reaches")
            assert ("cache-no-passdown" in forecast.reason_codes) is bool(feature)
            assert (done.arrived[0] > 0) is not bool(feature)
