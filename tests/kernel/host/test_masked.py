"""A container that hides files: each command says what is missing, where, and what to do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.support.drives import create_drive
from tests.kernel.support.filesystems import make_filesystem, mount_device

TOP = Path(__file__).parents[3]
_HIDE = 'for one in $0; do mount -t tmpfs none "$one" || exit 77; done; exec "$@"'
_NO_TRACING = ("setpriv", "--bounding-set=-bpf,-perfmon,-sys_admin", "--inh-caps=-bpf,-perfmon,-sys_admin")
SYSFS = "/sys/block /sys/class/block /sys/dev/block"
# (hidden paths, command prefix that drops privileges, command, exit status, expected text)
CASES = (
    ("/sys/kernel/tracing", (), "--dev DISK 0.1 1", 0, ""),
    ("/sys/kernel/tracing", (), "doctor", 0, "Tracing works here"),
    ("/sys/kernel/tracing", (), "trim audit MOUNT", 0, ""),
    ("/sys/kernel/btf", (), "--dev DISK 0.1 1", 5, "no BTF in /sys/kernel/btf"),
    ("/sys/kernel/btf", (), "overhead --dev DISK", 5, "no BTF in /sys/kernel/btf"),
    ("/sys/kernel/btf", (), "trim audit MOUNT", 5, "no BTF in /sys/kernel/btf"),
    ("/sys/kernel/btf", (), "doctor", 5, "cannot trace this kernel"),
    ("/sys/block", (), "devices", 5, "/sys/block"),
    ("/sys/block", (), "0.1 1", 2, "/sys/block"),
    (SYSFS, (), "--dev DISK 0.1 1", 2, "/sys/dev/block"),
    (SYSFS, (), "devices DISK", 2, "/sys/dev/block"),
    (SYSFS, (), "counters --dev DISK", 2, "/sys/dev/block"),
    (SYSFS, (), "waf --dev DISK --for 0.5", 2, "/sys/dev/block"),
    (SYSFS, (), "overhead --dev DISK", 2, "/sys/dev/block"),
    (SYSFS, (), "trim check --dev DISK", 2, "/sys/dev/block"),
    (SYSFS, (), "drive list", 0, ""),
    ("", _NO_TRACING, "--dev DISK 0.1 1", 4, "CAP_BPF"),
    ("", _NO_TRACING, "overhead --dev DISK", 4, "CAP_BPF"),
    ("", _NO_TRACING, "trim check MOUNT", None, "MOUNT"),
    ("", _NO_TRACING, "devices DISK", 0, ""),
    ("", _NO_TRACING, "doctor", None, "CAP_BPF"),
)


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    point = tmp_path_factory.mktemp("masked")
    with create_drive() as one:
        make_filesystem("ext4", one.device)
        with mount_device(one.device, point):
            yield {"DISK": one.device, "MOUNT": str(point)}


@pytest.mark.parametrize(("hidden", "less", "command", "status", "said"), CASES)
def test_command_reports_hidden_files(
    hidden: str,
    less: tuple[str, ...],
    command: str,
    status: int | None,
    said: str,
    words: dict[str, str],
) -> None:
    if "btf" in hidden and not Path("/sys/kernel/btf").is_dir():
        pytest.skip("this kernel has no BTF to hide")
    call = [words.get(word, word) for word in command.split()]
    argv = ["unshare", "--mount", "sh", "-c", _HIDE, hidden, *less, sys.executable, "-m", "opwatch", *call]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False, cwd=TOP)
    text = done.stdout + done.stderr
    if done.returncode == 77:
        pytest.skip(f"nothing can be mounted here: {done.stderr}")
    assert "Traceback" not in text
    assert words.get(said, said) in text
    assert status is None or done.returncode == status, text[-1500:]
