"""QEMU's arguments for the machine, the host's files and the channels. Devices are in devices.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CHANNELS = ("agent", "monitor", "inner", "qmp")

# loglevel: tests read dmesg, and an emulated serial port is slow. oops: a kernel fault, for instance in a BPF
# program, must not go unnoticed.
_COMMAND_LINE = (
    "{words} loglevel=4 panic=-1 oops=panic mitigations=off nokaslr tsc=reliable "
    "random.trust_cpu=on rdinit=/init"
)


@dataclass(frozen=True)
class Shape:
    """The guest's CPUs and memory."""

    cpus: int = 2
    memory_mib: int = 3072
    # Maximum number of CPUs. The kernel reserves room for their numbers, as on a large machine.
    most_cpus: int = 0

    @property
    def smp_argument(self) -> str:
        return f"{self.cpus},maxcpus={self.most_cpus}" if self.most_cpus else str(self.cpus)


DEFAULT_SHAPE = Shape()


@dataclass(frozen=True)
class Board:
    """The emulated machine. `words` are for its kernel's command line."""

    machine: str
    cpu: str
    words: str


# no_timer_check: while booting, a kernel waits for ten timer ticks within a period that a busy host may
# exceed, and then panics. A kernel that detects a virtual machine skips this check, but plain emulation goes
# undetected.
# erms, fsrm: if the CPU has fast string instructions, memory is copied byte by byte, which takes 2.6 times
# longer under emulation than by words.
PC = Board(
    "q35,smm=off,vmport=off,hpet=off", "max,la57=off,erms=off,fsrm=off", "console=ttyS0 no_timer_check"
)
# QEMU's newer CPU models sign every pointer, which is slow to emulate.
ARM = Board("virt", "cortex-a72", "console=ttyAMA0")


def build_base_args(
    shape: Shape, folder: Path, kernel: Path, modules: Path, board: Board = PC, root: Path = Path("/")
) -> list[str]:
    """Return the arguments for the machine, the kernel and a read-only root (by default the host's)."""
    args = ["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]
    args += ["-machine", board.machine, "-accel", "tcg,thread=multi"]
    args += ["-cpu", board.cpu, "-smp", shape.smp_argument, "-m", f"{shape.memory_mib}M"]
    args += ["-kernel", str(kernel), "-initrd", str(folder / "initramfs")]
    args += ["-append", f"{_COMMAND_LINE.format(words=board.words)} OPW_MODULES={modules}"]
    args += ["-serial", f"file:{folder / 'console'}"]
    return [*args, *build_share_args("root", root)]


def build_share_args(tag: str, path: Path) -> list[str]:
    """Return the arguments for a read-only host directory that the guest mounts by its tag."""
    share = f"local,id={tag},path={path},security_model=none,readonly=on,multidevs=remap"
    return ["-fsdev", share, "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]


def build_channel_args(fds: Sequence[int]) -> list[str]:
    """Return the arguments for the agent's channel, the host's monitor, and a monitor that the guest uses."""
    args = []
    for name, fd in zip(CHANNELS, fds, strict=True):
        args += ["-chardev", f"socket,id={name},fd={fd}"]
    args += ["-mon", "chardev=monitor,mode=control", "-mon", "chardev=inner,mode=control"]
    args += ["-device", "virtio-serial-pci"]
    args += ["-device", "virtserialport,chardev=agent,name=opwatch.agent"]
    return [*args, "-device", "virtserialport,chardev=qmp,name=opwatch.qmp"]
