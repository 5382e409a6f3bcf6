"""Predictions of `opwatch trim check`, compared with fstrim and the kernel's own statistics."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from opwatch.trim.space.extents import Extents
from tests.requirements import require_nobody, skip_or_fail

MIB = 1 << 20


def run(*argv: str) -> str:
    """Run a program and return the output; raise the error output on failure."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.returncode} {done.stderr.strip()}")
    return done.stdout


def run_check(*arguments: str, user: int | None = None) -> tuple[int, dict[str, Any]]:
    """Return (exit status, JSON document) of the command, optionally as another user."""
    # Import first, because the checkout may be unreadable for other users.
    code = "import os, sys; from opwatch.tools import cli\ncli.parse(sys.argv[1:])\n"
    code += f"os.setuid({user})\n" if user is not None else ""
    code += "sys.exit(cli.main(sys.argv[1:]))"
    argv = [sys.executable, "-c", code, "trim", "check", *arguments, "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["exit_status"] == done.returncode
    return done.returncode, document


def test_quiet_prints_a_line_per_filesystem() -> None:
    argv = [sys.executable, "-m", "opwatch", "trim", "check", "--all"]
    done = subprocess.run([*argv, "-q"], capture_output=True, text=True, check=False)
    full = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (full.returncode, full.stderr)
    if full.returncode != 2:
        document = done.stdout.splitlines()
        assert document
        assert all(": " in line for line in document)


def list_codes(forecast: dict[str, Any]) -> set[str]:
    return {reason["code"] for reason in forecast["reasons"]}


@dataclass(frozen=True)
class Mounted:
    """A filesystem that the test created: mount point, device, and backing file."""

    point: Path
    device: str
    file: Path

    def read_discarded(self) -> int:
        """Return the bytes that the kernel has discarded on the device."""
        fields = (Path("/sys/class/block") / self.device / "stat").read_text().split()
        return int(fields[13]) * 512

    def write_files(self) -> None:
        """Write files of odd sizes and delete some, so that the free space is fragmented."""
        for index in range(97):
            (self.point / f"f{index}").write_bytes(os.urandom(4096 * (1 + index * 7 % 61)))
        os.sync()
        for index in range(0, 97, 3):
            (self.point / f"f{index}").unlink()
        os.sync()

    def wait_for_discards(self) -> int:
        """Return the discarded bytes once they stop growing: XFS continues after the call has returned."""
        last, same = self.read_discarded(), 0
        while same < 10:
            time.sleep(0.05)
            now = self.read_discarded()
            last, same = now, same + 1 if now == last else 0
        return last

    def run_fstrim(self) -> subprocess.CompletedProcess[str]:
        assert self.point.is_mount()
        return subprocess.run(["fstrim", "-v", str(self.point)], capture_output=True, text=True, check=False)


@contextlib.contextmanager
def create_loop(file: Path, *options: str) -> Iterator[str]:
    node = run("losetup", "--find", "--show", *options, str(file)).strip()
    try:
        yield node
    finally:
        run("losetup", "--detach", node)


@contextlib.contextmanager
def mount_node(node: str, point: Path, *options: str) -> Iterator[Path]:
    point.mkdir(exist_ok=True)
    run("mount", *options, node, str(point))
    try:
        assert point.is_mount()
        yield point
    finally:
        run("umount", str(point))


MAKE = {
    "ext4": ("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,nodiscard", "-b", "4096"),
    "ext4-1k": ("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,nodiscard", "-b", "1024"),
    "xfs": ("mkfs.xfs", "-q", "-K"),
    "btrfs": ("mkfs.btrfs", "-q", "-K"),
}


@contextlib.contextmanager
def create_filesystem(
    kind: str, folder: Path, size: int = 320 * MIB, options: str = "", *, sparse: bool = True
) -> Iterator[Mounted]:
    """Yield a file system on a loop device on a file in `folder`."""
    file = folder / "disk.img"
    with file.open("wb") as new:
        new.truncate(size)
        some = os.urandom(MIB)
        for _ in range(0 if sparse else size // MIB):
            new.write(some)
    with create_loop(file) as node:
        run(*MAKE[kind], node)
        extra = ("-o", options) if options else ()
        with mount_node(node, folder / "m", *extra) as point:
            yield Mounted(point, Path(node).name, file)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder on a host filesystem that can punch holes."""
    yield tmp_path


@pytest.mark.parametrize("kind", ["ext4", "ext4-1k", "xfs", "btrfs"])
def test_dry_run_bytes_equal_the_bytes_fstrim_sends(kind: str, folder: Path) -> None:
    with create_filesystem(kind, folder, options="nodiscard" if kind == "btrfs" else "") as made:
        made.write_files()
        if kind == "btrfs":
            # btrfs keeps its allocator's current space from a trim until the next mount.
            run("umount", str(made.point))
            run("mount", "-o", "nodiscard", f"/dev/{made.device}", str(made.point))
        status, document = run_check(str(made.point))
        [forecast] = document["checks"]
        [expected] = forecast["dry_run"]
        # Blocks of 1 KiB over blocks of 4 KiB: the ends of extents stay allocated.
        outlook = (64, "part") if expected["rounded_bytes"] else (0, "reaches")
        assert (status, forecast["outlook"], forecast["accepted"]) == (*outlook, True)
        assert (expected["rounded_bytes"] > 0) is (kind == "ext4-1k")
        before = made.wait_for_discards()
        assert made.run_fstrim().returncode == 0
        # The other copy of the stripe with a superblock is spared.
        spared = 65536 if kind == "btrfs" else 0
        assert made.wait_for_discards() - before == expected["sent_bytes"] - spared


@pytest.mark.parametrize("kind", ["ext4", "ext4-1k"])
def test_expected_bytes_equal_the_holes_punched_by_fstrim(kind: str, folder: Path) -> None:
    """With blocks of 1 KiB over blocks of 4 KiB, the ends of free extents stay in the file."""
    with create_filesystem(kind, folder, 96 * MIB, sparse=False) as made:
        for index in range(400):
            (made.point / f"f{index}").write_bytes(os.urandom(1024 * (1 + index % 7)))
        os.sync()
        for index in range(0, 400, 2):
            (made.point / f"f{index}").unlink()
        os.sync()
        # mkfs has zeroed some of its tables with discards.
        before = find_holes(made.file)
        [expected] = run_check(str(made.point))[1]["checks"][0]["dry_run"]
        assert (expected["rounded_bytes"] > 0) is (kind == "ext4-1k")
        assert made.run_fstrim().returncode == 0
        made.wait_for_discards()
        assert (find_holes(made.file) - before).total_bytes == expected["expected_bytes"]


def find_holes(file: Path) -> Extents:
    """Return the extents in which a file holds no data."""
    empty, at, size = [], 0, file.stat().st_size
    with file.open("rb") as opened:
        while at < size:
            begin = os.lseek(opened.fileno(), at, os.SEEK_HOLE)
            try:
                at = os.lseek(opened.fileno(), begin, os.SEEK_DATA)
            except OSError:  # a hole up to the end of the file
                at = size
            empty.append((begin, at))
    return Extents.from_pairs(empty)


def test_minimum_length_is_respected(folder: Path) -> None:
    with create_filesystem("xfs", folder) as made:
        made.write_files()
        [forecast] = run_check(str(made.point), "-m", "256K")[1]["checks"]
        [expected] = forecast["dry_run"]
        assert expected["below_minimum_bytes"] > 0
        assert "below-minimum" in list_codes(forecast)
        before = made.wait_for_discards()
        run("fstrim", "-m", "256K", str(made.point))
        assert made.wait_for_discards() - before == expected["sent_bytes"]


def test_minimum_above_a_block_group_is_predicted_to_fail(folder: Path) -> None:
    """ext4 refuses this minimum, so check must not predict success."""
    with create_filesystem("ext4", folder) as made:
        status, document = run_check(str(made.point), "-m", "200M")
        [forecast] = document["checks"]
        assert (status, forecast["outlook"], forecast["expected_bytes"]) == (32, "nothing", 0)
        assert forecast["accepted"] is None
        assert "below-minimum" in list_codes(forecast)
        refused = subprocess.run(["fstrim", "-m", "200M", str(made.point)], capture_output=True, check=False)
        assert refused.returncode != 0


def test_no_discard_is_predicted_for_a_file_on_ramfs(folder: Path) -> None:
    with (
        mount_node("ramfs", folder / "ram", "-t", "ramfs") as ram,
        create_filesystem("ext4", ram, 64 * MIB) as made,
    ):
        status, document = run_check(str(made.point))
        [forecast] = document["checks"]
        assert (status, forecast["outlook"], forecast["accepted"]) == (32, "nothing", False)
        assert list_codes(forecast) == {"loop-no-punch"}
        assert forecast["stopped_at"] == made.device
        assert made.run_fstrim().returncode != 0


def test_outcome_is_uncertain_for_a_file_on_an_overlay(folder: Path) -> None:
    """On an overlay over ramfs, the first discard fails and removes the limits; only then check can know."""
    with mount_node("ramfs", folder / "ram", "-t", "ramfs") as ram:
        for name in ("low", "up", "work"):
            (ram / name).mkdir()
        options = f"lowerdir={ram}/low,upperdir={ram}/up,workdir={ram}/work"
        with (
            mount_node("overlay", folder / "over", "-t", "overlay", "-o", options) as over,
            create_filesystem("ext4", over, 64 * MIB) as made,
        ):
            [forecast] = run_check(str(made.point))[1]["checks"]
            assert any("only a trim shows it" in doubt for doubt in forecast["unknowable"])
            assert made.run_fstrim().returncode == 0, "fstrim claims success"
            status, document = run_check(str(made.point))
            [forecast] = document["checks"]
            assert (status, list_codes(forecast)) == (32, {"loop-no-punch"})


def test_loop_on_a_device_is_predicted_to_write_zeroes(folder: Path) -> None:
    lower = folder / "lower.img"
    with lower.open("wb") as new:
        new.truncate(96 * MIB)
    with create_loop(lower) as below, create_loop(Path(below)) as above:
        run(*MAKE["ext4"], above)
        with mount_node(above, folder / "m") as point:
            [forecast] = run_check(str(point))[1]["checks"]
            assert {"loop-on-device", "loop-frees-file"} <= list_codes(forecast)
            assert [layer["device"] for layer in forecast["layers"]] == [Path(above).name, Path(below).name]
            fields = Path(f"/sys/class/block/{Path(below).name}/stat")
            before = int(fields.read_text().split()[13])
            assert point.is_mount()
            run("fstrim", str(point))
            assert int(fields.read_text().split()[13]) == before, "no discard arrives below"


def test_deleted_open_files_are_not_free_yet(folder: Path) -> None:
    with create_filesystem("ext4", folder) as made:
        victim = made.point / "victim"
        with victim.open("wb") as open_file, victim.open("rb"):
            open_file.write(os.urandom(3 * MIB))
            os.fsync(open_file.fileno())
            assert "not-free-yet" not in list_codes(run_check(str(made.point))[1]["checks"][0])
            victim.unlink()
            [forecast] = run_check(str(made.point))[1]["checks"]
            [reason] = [reason for reason in forecast["reasons"] if reason["code"] == "not-free-yet"]
            assert (reason["where"], reason["lost_bytes"]) == (str(made.point), 3 * MIB)
            assert f"(process {os.getpid()})" in reason["observed"]
        assert "not-free-yet" not in list_codes(run_check(str(made.point))[1]["checks"][0])


def test_path_below_a_mount_point_names_the_mount_that_would_be_trimmed(folder: Path) -> None:
    with create_filesystem("ext4", folder, 64 * MIB) as made:
        (made.point / "sub").mkdir()
        [forecast] = run_check(str(made.point / "sub"))[1]["checks"]
        assert forecast["mount"] == str(made.point)
        assert "not-a-mount-point" in {reason["code"] for reason in forecast["schedule_reasons"]}


def test_dev_option_checks_the_devices_mount_or_the_device_itself(folder: Path) -> None:
    with create_filesystem("ext4", folder, 64 * MIB) as made:
        assert run_check("--dev", made.device)[1]["checks"][0]["mount"] == str(made.point)
        node = f"/dev/{made.device}"
    with create_loop(made.file) as node:
        [forecast] = run_check("--dev", node)[1]["checks"]
        assert (forecast["mount"], forecast["outlook"]) == (None, "reaches")


def test_no_privilege_is_needed() -> None:
    require_nobody()
    with (
        tempfile.TemporaryDirectory(prefix="opwatch-") as name,
        create_filesystem("ext4", Path(name), 64 * MIB) as made,
    ):
        Path(name).chmod(0o755)
        _, root = run_check(str(made.point))
        _, other = run_check(str(made.point), user=65534)
        assert root["checks"][0]["dry_run"] == other["checks"][0]["dry_run"]


def test_btrfs_is_trimmed_in_part_when_a_device_accepts_no_discards(folder: Path) -> None:
    """The device without discards is a loop device on ramfs."""
    good = folder / "good.img"
    with good.open("wb") as new:
        new.truncate(256 * MIB)
    with mount_node("ramfs", folder / "ram", "-t", "ramfs") as ram:
        bad = ram / "bad.img"
        with bad.open("wb") as new:
            new.truncate(256 * MIB)
        with create_loop(good) as one, create_loop(bad) as two:
            run("mkfs.btrfs", "-q", "-K", "-d", "raid0", one, two)
            with mount_node(one, folder / "m", "-o", "nodiscard") as point:
                status, document = run_check(str(point))
                [forecast] = document["checks"]
                assert (status, forecast["outlook"]) == (64, "part")
                assert {"btrfs-device-no-discards", "loop-no-punch"} <= list_codes(forecast)
                assert [dry_run["device"] for dry_run in forecast["dry_run"]] == [Path(one).name]


def test_btrfs_seed_device_receives_no_discards(folder: Path) -> None:
    files = [folder / name for name in ("seed.img", "sprout.img")]
    for file in files:
        with file.open("wb") as new:
            new.truncate(256 * MIB)
    with create_loop(files[0]) as seed, create_loop(files[1]) as sprout:
        run("mkfs.btrfs", "-q", "-K", seed)
        run("btrfstune", "-S", "1", seed)
        with mount_node(seed, folder / "m", "-o", "nodiscard") as point:
            run("btrfs", "device", "add", "-K", sprout, str(point))
            run("mount", "-o", "remount,rw", str(point))
            status, document = run_check(str(point))
            [forecast] = document["checks"]
    assert (status, forecast["outlook"]) == (0, "reaches")
    assert [layer["device"] for layer in forecast["layers"]] == [Path(sprout).name]
    assert [dry_run["device"] for dry_run in forecast["dry_run"]] == [Path(sprout).name]
    assert forecast["filesystem"]["facts"]["seeds"] == Path(seed).name
    assert "btrfs-seed" in list_codes(forecast)


def test_zram_receives_the_predicted_bytes(folder: Path) -> None:
    control = Path("/sys/class/zram-control/hot_add")
    if not control.exists():
        skip_or_fail("kernel", "this kernel has no zram")
    name = f"zram{control.read_text().strip()}"
    try:
        (Path("/sys/block") / name / "disksize").write_text(str(128 * MIB))
        run(*MAKE["ext4"], f"/dev/{name}")
        with mount_node(f"/dev/{name}", folder / "m") as point:
            made = Mounted(point, name, folder)
            made.write_files()
            [forecast] = run_check(str(point))[1]["checks"]
            assert (forecast["outlook"], list_codes(forecast)) == ("reaches", set())
            # zram keeps no statistics of discards, so fstrim's claim is the only figure.
            assert f"({forecast['dry_run'][0]['sent_bytes']} bytes)" in made.run_fstrim().stdout
    finally:
        (Path("/sys/block") / name / "reset").write_text("1")
        control.with_name("hot_remove").write_text(name.removeprefix("zram"))
