"""The arm64 guest boots, loads the BPF programs and counts to the exact request."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.requirements import skip_or_fail
from tests.vm import exactness
from tests.vm.archive import arm64
from tests.vm.config import CHECKOUT
from tests.vm.errors import FetchError
from tests.vm.report import results
from tests.vm.requirements import IN_GUEST

TEST = CHECKOUT / "tests/vm/guest/arm64/test_smoke.py"
BUILT = CHECKOUT / "build/roots/arm64-debs"
_JUNIT = "/run/results.xml"
# Half a minute on an idle machine, a minute the first time.
TIMEOUT_S = 900.0


@dataclass(frozen=True)
class Build:
    """A folder with the Python package opwatch for arm64, and compiled programs that the guest can start."""

    tree: Path
    programs: tuple[Path, ...] = ()


def _find_built(pattern: str) -> list[Path]:
    found = sorted(BUILT.glob(pattern))
    if not found:
        pytest.skip(f"there is no {pattern}: make test-packages SUITES=arm64")
    return found


def _unpack_packages(folder: Path) -> Build:
    for package in _find_built("*_arm64.deb"):
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
    # The drive's server needs libfuse3, which the guest lacks.
    return Build(folder / "usr/lib/python3/dist-packages", (folder / "usr/sbin/opwatch-broker",))


def _unpack_wheel(folder: Path) -> Build:
    [wheel] = _find_built("opwatch-*_aarch64.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    programs = (folder / "opwatch/tools/broker/opwatch-broker", folder / "opwatch/drive/opwatch-drive-server")
    for program in programs:
        program.chmod(0o755)
    return Build(folder, programs)


@pytest.fixture(params=["checkout", "packages", "wheel"])
def build(request: pytest.FixtureRequest) -> Iterator[Build]:
    """The checkout, or what `make test-packages SUITES=arm64` cross-built."""
    if request.param == "checkout":
        yield Build(CHECKOUT)
        return
    unpack = {"packages": _unpack_packages, "wheel": _unpack_wheel}[request.param]
    # The guest sees only the checkout.
    with tempfile.TemporaryDirectory(prefix=f"{request.param}-", dir=CHECKOUT / "build") as folder:
        yield unpack(Path(folder))


@pytest.mark.manual
@pytest.mark.notes_rows
def test_arm64_guest_passes_the_smoke_test(build: Build, report: Callable[[str], None]) -> None:
    foreign = arm64.read_config()
    reason = arm64.explain_missing_tools(foreign)
    if reason:
        skip_or_fail("arm64", reason)
    assert foreign.kernel.name.startswith(foreign.kernel.series.rstrip("."))
    try:
        arm64.get_root(foreign)
    except FetchError as error:
        skip_or_fail("vm", str(error))
    path = f"{build.tree}:{CHECKOUT}:{sysconfig.get_path('purelib')}"
    # Plugins may have parts compiled for this machine.
    plain = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONSAFEPATH": "1"}
    env = {IN_GUEST: foreign.kernel.name, "PYTHONPATH": path} | plain
    argv = [f"/usr/bin/{foreign.python}", "-m", "pytest", "-p", "no:cacheprovider", "-vv", "--color=no"]
    # Neither pytest nor Python puts the checkout before the build.
    argv += ["-o", "pythonpath="]
    with arm64.make_machine(foreign) as guest:
        arm64.enter_checkout(guest)
        imported = guest.run([argv[0], "-c", "import opwatch; print(opwatch.__file__)"], env=env)
        assert Path(imported.stdout.decode().strip()) == build.tree / "opwatch/__init__.py"
        for program in build.programs:
            # 2: it has no such option. 127: a library is missing.
            assert guest.run([str(program), "--version"]).status in (0, 2), program
        done = guest.run([*argv, f"--junitxml={_JUNIT}", str(TEST)], timeout_s=TIMEOUT_S, env=env)
        sys.stdout.write(done.stdout.decode(errors="replace"))
        sys.stdout.write(done.stderr.decode(errors="replace"))
        rows = guest.run(["cat", exactness.GUEST_ROWS_PATH]).stdout
        outcome = results.parse_results(guest.read_file(_JUNIT))
        times = f"up after {guest.boot_s:.1f} s, {done.seconds:.0f} s of tests"
        report(f"{foreign.kernel.name}, {build.tree.relative_to(CHECKOUT)}: {outcome.format_line()}; {times}")
    exactness.store_rows(foreign.kernel.name, "test_smoke", rows)
    assert outcome.failed == {} and outcome.skipped == {}
    assert outcome.passed > 0
