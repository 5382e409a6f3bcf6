"""A guest: boots a kernel, runs commands in it, and distinguishes a lost guest from a failed command."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.vm import devices
from tests.vm.archive import assets
from tests.vm.boot import bootimage, initramfs, protocol, qemu, slots
from tests.vm.boot.protocol import Frame, Kind
from tests.vm.boot.qemu import DEFAULT_SHAPE, Shape
from tests.vm.boot.qmp import Qmp
from tests.vm.config import CHECKOUT, HERE, Kernel, read_config
from tests.vm.errors import (
    BenchError,
    CommandTimeout,
    EmulatorFailed,
    GuestError,
    GuestHung,
    GuestLost,
    GuestPanic,
)

# Time limit of each boot attempt. Under emulation a kernel occasionally loses its timer while booting and
# hangs, or executes an instruction that another CPU is patching and panics. No command has run by then, so we
# boot the guest again.
BOOT_TIMEOUTS_S = (90.0, 90.0, 300.0)
_PANIC = ("Kernel panic - not syncing", "Oops: ", "BUG: kernel NULL pointer")
# RCU prints this if its thread was not woken by the timer. It is repeated every 63 s while the timer stays
# lost.
_LOST_TIMER = "rcu_preempt kthread timer wakeup didn't happen"
# Silence of a guest after which the messages are counted. If that many more appear while the guest stays
# silent, it is lost.
SILENCE_S = 90.0
_LOST_TIMERS = 2
_ASSERTION = re.compile(r"^qemu-system-\S+: \S+:\d+: \w+: Assertion .* failed\.$", re.MULTILINE)

Sink = Callable[[bytes], object]


@dataclass(frozen=True)
class Boot:
    """The files that a guest boots from. `modules` is the path of the modules under the guest's root."""

    emulator: assets.Emulator
    kernel: Path
    archive: bytes
    modules: Path
    board: qemu.Board = qemu.PC
    root: Path = Path("/")
    # Additional host directories, by the guest's mount tag.
    shares: tuple[tuple[str, Path], ...] = ()


def prepare_host_boot(kernel: Kernel) -> Boot:
    """Return the boot files of one of the bench's kernels, with this machine's file system as root."""
    image = assets.get_kernel_image(kernel)
    emulator = assets.get_emulator(read_config().qemu)
    return Boot(
        emulator, bootimage.get_boot_file(image.vmlinuz), initramfs.build_initramfs(image), image.modules
    )


@dataclass(frozen=True)
class Completed:
    """A finished command, with the exit status as a shell reports it."""

    status: int
    stdout: bytes
    stderr: bytes
    seconds: float


def build_guest_env() -> dict[str, str]:
    """Return the environment for commands: the caller's PATH and OPWATCH_ variables, without udev."""
    path = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/local/sbin:/usr/sbin:/sbin"
    env = {
        "PATH": path,
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "DM_DISABLE_UDEV": "1",
        "MDADM_NO_UDEV": "1",
    }
    passed = {k: v for k, v in os.environ.items() if k.startswith("OPWATCH_")}
    return env | passed


class Machine:
    """A guest from boot to power-off; `boot_s` is the time until the guest accepts the first command."""

    def __init__(
        self,
        kernel: Kernel,
        chosen: Sequence[devices.Device] = (),
        shape: Shape = DEFAULT_SHAPE,
        prepare: Callable[[Kernel], Boot] = prepare_host_boot,
    ) -> None:
        self.kernel = kernel
        self._prepare = prepare
        self.devices = tuple(chosen)
        self.shape = shape
        self.pong_timeout_s = 60.0
        self.boot_s = 0.0
        self.release = ""
        self._stack = contextlib.ExitStack()

    # Starting and stopping

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            boot = self._prepare(self.kernel)
            stack.enter_context(slots.hold_slot())
            self._boot_guest(stack, boot)
            self._settle_devices()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _boot_guest(self, stack: contextlib.ExitStack, boot: Boot) -> None:
        """Boot the guest, again if it hangs or panics before the first command; raise the last failure."""
        *early, last = BOOT_TIMEOUTS_S
        for timeout_s in early:
            with contextlib.ExitStack() as attempt:
                try:
                    self._start_guest(attempt, boot, timeout_s)
                except (GuestHung, GuestPanic) as failed:
                    print(f"vm: {failed}\nvm: started again", file=sys.stderr)
                else:
                    stack.push(attempt.pop_all())
                    return
        self._start_guest(stack, boot, last)

    def _start_guest(self, stack: contextlib.ExitStack, boot: Boot, timeout_s: float) -> None:
        self._decoder = protocol.Decoder()
        self._frames: list[Frame] = []
        self.folder = Path(tempfile.mkdtemp(prefix="opwatch-vm-"))
        stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "initramfs").write_bytes(boot.archive)
        devices.make_images(self.devices, self.folder)
        began = time.monotonic()
        args = qemu.build_base_args(self.shape, self.folder, boot.kernel, boot.modules, boot.board, boot.root)
        args += [word for tag, path in boot.shares for word in qemu.build_share_args(tag, path)]
        args += devices.build_qemu_args(self.devices, self.folder)
        self._launch_emulator(stack, boot.emulator, args)
        self.release = self._expect_frame(Kind.READY, timeout_s).payload.decode()
        self.boot_s = time.monotonic() - began

    def _launch_emulator(
        self, stack: contextlib.ExitStack, emulator: assets.Emulator, args: list[str]
    ) -> None:
        self._channel, channel_far = self._make_socket_pair(stack)
        monitor, monitor_far = self._make_socket_pair(stack)
        # The guest's own monitor. QEMU holds both ends, so that tests in the guest can unplug devices.
        inner, inner_far = self._make_socket_pair(stack)
        self.qmp = Qmp(monitor)
        fds = [channel_far.fileno(), monitor_far.fileno(), inner.fileno(), inner_far.fileno()]
        args = [*args, *qemu.build_channel_args(fds)]
        log = stack.enter_context((self.folder / "qemu.log").open("wb"))
        self._process = subprocess.Popen(
            [*emulator.argv, *args],
            env=os.environ | emulator.env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=fds,
        )
        stack.callback(self._end_process)
        for sock in (channel_far, monitor_far, inner, inner_far):
            sock.close()

    @staticmethod
    def _make_socket_pair(stack: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
        near, far = socket.socketpair()
        stack.callback(near.close)
        stack.callback(far.close)
        return near, far

    def _end_process(self) -> None:
        self._process.kill()
        self._process.wait()

    def _settle_devices(self) -> None:
        lines = devices.list_modprobes(self.devices)
        if not lines:
            return
        argv = ["sh", str(HERE / "settle.sh"), str(devices.count_visible(self.devices))]
        for line in lines:
            argv += [*line, "--"]
        done = self.run(argv, timeout_s=180)
        if done.status:
            raise BenchError(f"devices: {done.stderr.decode(errors='replace').strip()}")

    # The channel

    def read_console(self) -> str:
        """Return the output of the guest and of QEMU so far."""
        return self._read_output("qemu.log") + self._read_output("console")

    def _read_output(self, name: str) -> str:
        with contextlib.suppress(OSError):
            return (self.folder / name).read_text(errors="replace")
        return ""

    def _make_lost_error(self) -> GuestError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        console = self.read_console()
        code = self._process.poll()
        if any(mark in console for mark in _PANIC):
            return GuestPanic(f"kernel {self.kernel.name} panicked", console)
        if code == -signal.SIGABRT and _ASSERTION.search(self._read_output("qemu.log")):
            return EmulatorFailed(f"the emulator of kernel {self.kernel.name} gave up", console)
        return GuestLost(f"the guest with kernel {self.kernel.name} ended (QEMU: {code})", console)

    def _send_frame(self, frame: Frame) -> None:
        try:
            self._channel.sendall(frame.encode())
        except OSError:
            raise self._make_lost_error() from None

    def _next_frame(self, deadline: float) -> Frame | None:
        """Return the next frame, or None after the deadline."""
        while not self._frames:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self._channel.settimeout(left)
            try:
                data = self._channel.recv(1 << 16)
            except TimeoutError:
                return None
            except OSError:
                data = b""
            if not data:
                raise self._make_lost_error()
            self._frames += self._decoder.decode_frames(data)
        return self._frames.pop(0)

    def _expect_frame(self, kind: Kind, timeout_s: float) -> Frame:
        deadline = time.monotonic() + timeout_s
        while (frame := self._next_frame(deadline)) is not None:
            if frame.kind is kind:
                return frame
        self._channel.settimeout(None)
        raise GuestHung(
            f"kernel {self.kernel.name}: no {kind.name} within {timeout_s:g} s", self.read_console()
        )

    # Commands

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 300.0,
        cwd: Path = CHECKOUT,
        env: Mapping[str, str] | None = None,
        stdout: Sink | None = None,
        stderr: Sink | None = None,
    ) -> Completed:
        """Run a command to its end. Output goes to the sinks as it arrives; without a sink, to the result."""
        self._channel.settimeout(None)
        began = time.monotonic()
        self._send_frame(protocol.make_run_frame(argv, str(cwd), build_guest_env() | dict(env or {})))
        out, err = io.BytesIO(), io.BytesIO()
        sinks = {Kind.OUT: stdout or out.write, Kind.ERR: stderr or err.write}
        status = self._stream_output(sinks, began + timeout_s)
        if status is None:
            self._kill_hung(argv, timeout_s)
        assert status is not None
        return Completed(status, out.getvalue(), err.getvalue(), time.monotonic() - began)

    def _stream_output(self, sinks: Mapping[Kind, Sink], deadline: float) -> int | None:
        lost_before: int | None = None
        while (now := time.monotonic()) < deadline:
            frame = self._next_frame(min(deadline, now + SILENCE_S))
            if frame is None:
                lost = self._count_lost_timers()
                if lost_before is not None and lost - lost_before >= _LOST_TIMERS:
                    raise EmulatorFailed(f"kernel {self.kernel.name}: lost its timer", self.read_console())
                lost_before = lost if lost_before is None else lost_before
                continue
            lost_before = None
            if frame.kind is Kind.EXIT:
                return protocol.decode_exit_status(frame.payload)
            if frame.kind in sinks:
                sinks[frame.kind](frame.payload)
        return None

    def _count_lost_timers(self) -> int:
        return self._read_output("console").count(_LOST_TIMER)

    def _kill_hung(self, argv: Sequence[str], timeout_s: float) -> None:
        """Kill a command after its timeout. A guest that does not answer a ping has hung."""
        self._channel.settimeout(None)
        self._send_frame(Frame(Kind.PING))
        self._expect_frame(Kind.PONG, self.pong_timeout_s)
        self._send_frame(Frame(Kind.KILL))
        self._expect_frame(Kind.EXIT, self.pong_timeout_s)
        raise CommandTimeout(f"no end of {' '.join(argv)} within {timeout_s:g} s: killed")

    def read_file(self, path: str) -> bytes:
        """Return the content of a file in the guest."""
        done = self.run(["cat", path])
        if done.status:
            raise BenchError(done.stderr.decode(errors="replace").strip())
        return done.stdout

    def disk_bytes(self, node: str) -> int:
        """Return the space that the image of a block node occupies on the host: the oracle for discards."""
        return devices.get_image_path(self.folder, node).stat().st_blocks * 512

    def run_monitor_command(self, command: str, **arguments: object) -> object:
        """Run a command of QEMU's monitor, such as device_del."""
        return self.qmp.execute(command, **arguments)
