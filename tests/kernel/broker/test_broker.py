"""The broker on this kernel: its counts, its limits, who may use it, and what it keeps."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from opwatch.collectors.block.blk import BlockTracer
from opwatch.collectors.broker.connection import BrokerConnection, BrokerError
from opwatch.collectors.broker.protocol import RequestKind, pack_drive, pack_open, pack_request
from opwatch.collectors.broker.tracing import BrokerLoader
from opwatch.errors import OpwatchError, Unsupported
from opwatch.host.device import Devices, Leaf
from opwatch.host.scratch import ScratchDisk
from opwatch.owners.cells import OwnerGrouping
from opwatch.tools.exporter.broker_access import BrokerAccess
from opwatch.tools.runs.live_watch import choose_leaves
from opwatch.trace.programs import Program
from opwatch.trace.tracing import Tracer
from opwatch.trace.trust import Reading
from tests.kernel.support.broker import NOBODY, PROGRAM, run_broker, wait_for_broker
from tests.kernel.support.load import reads
from tests.tracked import ROOT

_CAPABILITIES = {"server": 0, "tracing": 1 << 39 | 1 << 38 | 1 << 24, "starter": 1 << 21 | 1 << 17}
# Attaches a tracer by the broker, says so, and prints the reads that it has counted.
_CLIENT = """
import json, sys
from opwatch.host.device import Devices
from opwatch.tools.exporter.broker_access import BrokerAccess
from opwatch.tools.runs.live_watch import choose_leaves
from opwatch.errors import OpwatchError
try:
    access = BrokerAccess(sys.argv[1])
    leaves, _ = choose_leaves(Devices(), [sys.argv[2]])
    tracer = access.attach_tracer(leaves, queue_time=False, by=None)
except OpwatchError as error:
    print(json.dumps({"error": type(error).__name__}), flush=True)
    sys.exit()
print("attached", flush=True)
sys.stdin.readline()
[reading] = tracer.read_settled()
print(json.dumps({"reads": reading.sample.ops["read"].completed}))
"""


def find_leaves(*disks: ScratchDisk) -> list[Leaf]:
    return choose_leaves(Devices(), [disk.name for disk in disks])[0]


def attach(path: str, leaves: Sequence[Leaf], by: OwnerGrouping | None = None) -> Tracer:
    return BrokerAccess(path).attach_tracer(leaves, queue_time=False, by=by)


def start_client(path: str, disk: str, *, user: int = 0, groups: Sequence[int] = ()) -> subprocess.Popen[str]:
    """Start the client, as another user without any capability unless `user` is root."""
    membership = ["--groups", ",".join(map(str, groups))] if groups else ["--clear-groups"]
    become = ["setpriv", f"--reuid={user}", f"--regid={user}", *membership, "--bounding-set=-all"]
    argv = [*(become if user else ()), sys.executable, "-P", "-c", _CLIENT, path, disk]
    return subprocess.Popen(
        argv,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
    )


def sum_histograms(reading: Reading) -> dict[str, tuple[int, int, int]]:
    """Return (requests, bytes, slots) by operation."""
    return {
        name: (op.completed, op.bytes, sum(op.latency.slot_counts)) for name, op in reading.sample.ops.items()
    }


def test_counts_equal_those_of_a_tracer_in_this_process(disk: ScratchDisk) -> None:
    leaves = find_leaves(disk)
    with (
        run_broker() as broker,
        closing(attach(broker.socket, leaves)) as theirs,
        closing(BlockTracer(leaves)) as ours,
    ):
        reads(disk.node, 1009)
        [by_broker], [by_us] = theirs.read_settled(), ours.read_settled()
        assert sum_histograms(by_broker) == sum_histograms(by_us)
        assert by_broker.sample.ops["read"].completed == 1009
        assert theirs.hooks == ours.hooks
        assert [row[0] for row in theirs.list_programs()] == [row[0] for row in ours.list_programs()]


def test_user_without_privileges_counts_through_the_broker(disk: ScratchDisk) -> None:
    with (
        run_broker("--user", str(NOBODY)) as broker,
        start_client(broker.socket, disk.name, user=NOBODY) as client,
    ):
        assert client.stdout
        assert client.stdout.readline() == "attached\n"
        reads(disk.node, 211)
        answer = json.loads(client.communicate("\n", timeout=60)[0])
        assert answer == {"reads": 211}


@pytest.mark.parametrize("options", [(), ("--user", "65533"), ("--group", "65533", "--group", "65532")])
def test_other_users_are_refused(disk: ScratchDisk, options: Sequence[str]) -> None:
    with (
        run_broker(*options) as broker,
        start_client(broker.socket, disk.name, user=NOBODY) as client,
    ):
        assert json.loads(client.communicate("\n", timeout=60)[0]) == {"error": "PermissionMissing"}


def test_members_of_an_allowed_group_are_served(disk: ScratchDisk) -> None:
    with (
        run_broker("--group", "65533") as broker,
        start_client(broker.socket, disk.name, user=NOBODY, groups=[65533]) as client,
    ):
        assert client.communicate("\n", timeout=60)[0].startswith("attached\n")


def test_owners_add_up_to_the_disk(disk: ScratchDisk) -> None:
    leaves = find_leaves(disk)
    with run_broker() as broker, closing(attach(broker.socket, leaves, OwnerGrouping.CGROUP)) as tracer:
        assert isinstance(tracer, BlockTracer)
        reads(disk.node, 307)
        tracer.read_settled()
        [owned] = tracer.owned
        assert sum(counts.requests for (_, op), counts in owned.cells.items() if op == "read") == 307


def test_processes_of_other_users_are_not_shown(disk: ScratchDisk) -> None:
    with run_broker() as broker, closing(BrokerConnection(broker.socket, 5)) as connection:
        plan = BlockTracer(find_leaves(disk)).plan
        with pytest.raises(OpwatchError, match="closed the connection"):
            connection.call(
                RequestKind.OPEN_TRACER,
                pack_open(plan, (), queue_time=False, by=OwnerGrouping.PROCESS.number),
            )


def read_status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def test_each_process_keeps_only_its_capabilities(disk: ScratchDisk) -> None:
    with run_broker() as broker, closing(attach(broker.socket, find_leaves(disk))):
        BrokerAccess(broker.socket)
        for pid, keeps in zip(broker.list_pids(), _CAPABILITIES.values(), strict=True):
            status = read_status(pid)
            for name in ("CapPrm", "CapEff", "CapBnd"):
                assert int(status[name], 16) & ~keeps == 0, (pid, name)
            assert int(status["CapInh"], 16) == int(status["CapAmb"], 16) == 0
            assert status["NoNewPrivs"] == "1"
        assert read_status(broker.pid)["Seccomp"] == "2"


def sum_memory(pids: Sequence[int], field: str) -> int:
    """Return the bytes of memory of these processes by smaps_rollup."""
    text = "".join(Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids)
    return sum(
        1024 * int(kilobytes) for kilobytes in re.findall(rf"^{field}:\s+(\d+) kB", text, re.MULTILINE)
    )


def count_maps(pid: int) -> int:
    count = 0
    for path in Path(f"/proc/{pid}/fd").iterdir():
        # The process may close one meanwhile.
        with suppress(FileNotFoundError):
            count += os.readlink(path).startswith("anon_inode:bpf")
    return count


def test_memory_is_small_and_does_not_grow() -> None:
    with ExitStack() as stack:
        disks = [stack.enter_context(ScratchDisk(16 << 20)) for _ in range(8)]
        broker = stack.enter_context(run_broker())
        leaves = find_leaves(*disks)
        tracer = stack.enter_context(closing(attach(broker.socket, leaves)))
        for disk in disks:
            reads(disk.node, 50)
        tracer.read()
        pids = broker.list_pids()
        proportional, largest = sum_memory(pids, "Pss"), max(sum_memory([pid], "Rss") for pid in pids)
        print(f"8 disks: {proportional} bytes (PSS), the largest process {largest} (RSS)")
        assert proportional <= 3_000_000
        assert largest <= 3_000_000
        for _ in range(10):
            attach(broker.socket, leaves[:1]).close()
        begin = sum_memory(pids, "Anonymous")
        for _ in range(20):
            attach(broker.socket, leaves[:1]).close()
        for _ in range(500):
            tracer.read()
            BrokerAccess(broker.socket)
        assert sum_memory(pids, "Anonymous") - begin < 200_000


def test_tracer_of_a_killed_client_is_closed(disk: ScratchDisk) -> None:
    with run_broker() as broker:
        before = count_maps(broker.tracing_pid)
        with start_client(broker.socket, disk.name) as client:
            assert client.stdout
            assert client.stdout.readline() == "attached\n"
            assert count_maps(broker.tracing_pid) > before
            client.kill()
        deadline = time.monotonic() + 30
        while count_maps(broker.tracing_pid) > before and time.monotonic() < deadline:
            time.sleep(0.05)
        assert count_maps(broker.tracing_pid) == before


def test_disk_that_is_no_nvme_drive_gets_no_command(disk: ScratchDisk) -> None:
    [leaf] = find_leaves(disk)
    with run_broker() as broker:
        drives = BrokerAccess(broker.socket).drives
        with pytest.raises(Unsupported, match="no NVMe commands"):
            drives.open_pages(leaf.device).get_log(2, 512)
        with pytest.raises(Unsupported, match="neither a SATA nor a SAS drive"):
            drives.read_smartctl(leaf.device)
        with closing(BrokerConnection(broker.socket, 20)) as connection:
            with pytest.raises(BrokerError) as caught:
                connection.call(RequestKind.GET_LOG, pack_drive((4095, 1), 2, 512))
            assert caught.value.errno == errno.ENODEV


def make_random_open(chance: random.Random, plan_bytes: bytes) -> bytes:
    """Return a request to open a tracer with some of its numbers replaced."""
    raw = bytearray(plan_bytes)
    for _ in range(chance.randrange(1, 5)):
        at = 4 * chance.randrange(2, 40)
        raw[at : at + 4] = chance.choice((0, 1, 0xFFFFFFFF, chance.randrange(1 << 32))).to_bytes(
            4, sys.byteorder
        )
    return pack_request(RequestKind.OPEN_TRACER, 1, bytes(raw))


def test_damaged_configurations_do_not_end_the_broker(disk: ScratchDisk) -> None:
    """The kernel's verifier, the limits of memory, and the checks of the broker refuse or accept each."""
    leaves, chance = find_leaves(disk), random.Random(7)
    with closing(BlockTracer(leaves)) as tracer:
        plan, programs = tracer.plan, [row[0] for row in tracer.list_programs()]
    valid = pack_open(plan, [Program(name) for name in programs], queue_time=False, by=0)
    answers = {"answered": 0, "disconnected": 0}
    with run_broker() as broker:
        for _ in range(60):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                client.settimeout(60)
                client.connect(broker.socket)
                client.send(make_random_open(chance, valid))
                try:
                    answers["answered" if client.recv(1 << 18) else "disconnected"] += 1
                except ConnectionResetError:
                    answers["disconnected"] += 1
        assert min(answers.values()) > 2, answers
        with closing(attach(broker.socket, leaves)) as tracer_after:
            reads(disk.node, 31)
            [reading] = tracer_after.read_settled()
            assert reading.sample.ops["read"].completed == 31


def test_counters_beyond_the_memory_limit_are_refused(disk: ScratchDisk) -> None:
    with closing(BlockTracer(find_leaves(disk))) as tracer:
        plan = tracer.plan
    huge = pack_open(plan, (), queue_time=True, by=0)
    # The third number is that of the entries for requests in flight.
    huge = huge[:8] + (1 << 31).to_bytes(4, sys.byteorder) + huge[12:]
    with run_broker() as broker, closing(BrokerConnection(broker.socket, 60)) as connection:
        with pytest.raises(BrokerError) as caught:
            connection.call(RequestKind.OPEN_TRACER, huge)
        assert caught.value.errno == errno.ENOMEM


def test_second_broker_on_the_same_socket_is_refused() -> None:
    with run_broker() as broker:
        argv = [str(PROGRAM), "--socket", broker.socket]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
        assert (done.returncode, "another broker listens" in done.stderr) == (1, True)
        BrokerAccess(broker.socket)


def test_socket_left_by_a_killed_broker_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "folder" / "broker.sock")
    for _ in range(2):
        with subprocess.Popen([PROGRAM, "--socket", path]) as process:
            wait_for_broker(path)
            process.kill()
        assert os.path.exists(path)


def test_file_that_is_no_socket_is_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    argv = [str(PROGRAM), "--socket", str(tmp_path / "file")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, "is not a socket" in done.stderr) == (1, True)
    assert (tmp_path / "file").read_text() == "mine"


def test_socket_of_systemd_is_used(tmp_path: Path) -> None:
    path = str(tmp_path / "passed.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        # Pass the listener as standard input: dash cannot redirect from descriptors above 9.
        words = f'export LISTEN_PID=$$ LISTEN_FDS=1; exec 3<&0 0</dev/null; exec "{PROGRAM}"'
        process = subprocess.Popen(["/bin/sh", "-c", words], stdin=listener.fileno())
    with process:
        wait_for_broker(path)
        process.terminate()
        assert process.wait(30) == 0
    # It belongs to systemd.
    assert os.path.exists(path)


def test_broker_without_privileges_says_what_it_needs() -> None:
    done = subprocess.run(
        [PROGRAM], capture_output=True, text=True, user=NOBODY, group=NOBODY, extra_groups=[], check=False
    )
    assert done.returncode == 4
    assert "CAP_BPF" in done.stderr


def test_broker_loader_reports_a_lost_broker(disk: ScratchDisk) -> None:
    leaves = find_leaves(disk)
    with run_broker() as broker:
        tracer = attach(broker.socket, leaves)
    with pytest.raises(OpwatchError):
        tracer.read()
    tracer.close()
    with pytest.raises(OpwatchError, match="no broker listens"):
        BlockTracer(leaves, loader=BrokerLoader(broker.socket))


def list_allowed_calls(unit: Path) -> set[str]:
    """Return the system calls that the filters of a unit allow, as systemd applies them in turn."""
    allowed: set[str] = set()
    for value in re.findall(r"^SystemCallFilter=(.*)$", unit.read_text(), re.MULTILINE):
        names = expand_calls(value.lstrip("~").split())
        allowed = allowed - names if value.startswith("~") else allowed | names
    # These are allowed always.
    return allowed | expand_calls(["@default"])


def expand_calls(words: Sequence[str]) -> set[str]:
    calls: set[str] = set()
    for word in words:
        if not word.startswith("@"):
            calls.add(word)
            continue
        listed = subprocess.check_output(["systemd-analyze", "syscall-filter", word], text=True)
        calls |= expand_calls([line.strip() for line in listed.splitlines()[1:] if "#" not in line])
    return calls - {""}


def trace_calls(disk: ScratchDisk, output: Path) -> str:
    """Return what strace sees of a broker that serves every kind of request, and damaged ones."""
    wrapper = ("strace", "-f", "-qq", "-o", str(output))
    [leaf] = leaves = find_leaves(disk)
    with run_broker("--user", str(NOBODY), wrapper=wrapper) as broker:
        with closing(attach(broker.socket, leaves, OwnerGrouping.CGROUP)) as tracer:
            reads(disk.node, 20)
            tracer.read()
            tracer.list_programs()
        drives = BrokerAccess(broker.socket).drives
        for call in (
            lambda: drives.open_pages(leaf.device).get_log(2, 512),
            lambda: drives.open_pages(leaf.device).identify(1, 0),
            lambda: drives.read_smartctl(leaf.device),
        ):
            with pytest.raises(OpwatchError):
                call()
        chance = random.Random(3)
        for _ in range(300):
            kind = chance.randrange(14)
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                client.settimeout(60)
                client.connect(broker.socket)
                dev = (leaf.device.dev[0], leaf.device.dev[1])
                body = pack_drive(dev, chance.randrange(300), 512) if chance.random() < 0.7 else b"x" * kind
                client.send(kind.to_bytes(2, sys.byteorder).join((b"\1\0", b"\1\0\0\0")) + body)
                client.recv(1 << 18)
        pid = broker.list_pids()[1]
        os.kill(pid, 15)
        broker.process.wait(30)
    return output.read_text(errors="replace")


def test_no_call_of_the_broker_writes_to_a_disk(disk: ScratchDisk, tmp_path: Path) -> None:
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    seen = trace_calls(disk, tmp_path / "calls")
    # Every ioctl is on a terminal's or another descriptor that libc asks about; none reaches a disk that is
    # no NVMe drive.
    assert re.findall(r"ioctl\(\d+, (?!TCGETS)\w+.*", seen) == []
    opened = re.findall(r'open(?:at)?\((?:AT_FDCWD, )?"([^"]*)", ([A-Z_|]+)', seen)
    assert len(opened) > 10
    assert [(path, flags) for path, flags in opened if re.search("O_RDWR|O_WRONLY|O_CREAT", flags)] == []
    assert [path for path, _ in opened if path.startswith("/dev/")] == []


def test_unit_allows_every_call_of_the_broker(disk: ScratchDisk, tmp_path: Path) -> None:
    if not shutil.which("strace") or not shutil.which("systemd-analyze"):
        pytest.skip("strace or systemd-analyze is not installed")
    calls = set(re.findall(r"^\d+ +(\w+)\(", trace_calls(disk, tmp_path / "calls"), re.MULTILINE))
    allowed = list_allowed_calls(ROOT / "tools/deploy/systemd/opwatch-broker.service")
    # Done by systemd: binding the socket.
    by_hand = {"bind", "chmod", "chown", "listen", "mkdir", "unlink", "umask", "socket", "connect"}
    assert {"bpf", "recvfrom", "seccomp"} <= calls
    assert calls - allowed - by_hand == set()
