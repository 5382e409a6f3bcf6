"""QEMU's arguments: the machine, the host's files, the channels. Devices are in devices.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CHANNELS = ("agent", "monitor", "inner", "qmp")

# loglevel: what a test wants to see is in dmesg, and a serial port under emulation is slow.
# oops: a fault in the kernel, for instance in a BPF program, must not go unseen.
_COMMAND_LINE = (
    "{words} loglevel=4 panic=-1 oops=panic mitigations=off nokaslr tsc=reliable "
    "random.trust_cpu=on rdinit=/init"
)


@dataclass(frozen=True)
class Shape:
    """How big the guest is."""

    cpus: int = 2
    memory_mib: int = 3072
    # CPUs that could be added: the kernel makes room for their numbers, as for those of a large machine.
    most_cpus: int = 0

    @property
    def smp(self) -> str:
        return f"{self.cpus},maxcpus={self.most_cpus}" if self.most_cpus else str(self.cpus)


DEFAULT_SHAPE = Shape()


@dataclass(frozen=True)
class Board:
    """Which machine is emulated. `words` are for its kernel."""

    machine: str
    cpu: str
    words: str


# no_timer_check: while it boots, a kernel waits for ten ticks in a time that a busy host may not give it, and
# panics. It is left out where a kernel knows that it is in a virtual machine, which it does not know here.
PC = Board("q35,smm=off,vmport=off,hpet=off", "max,la57=off", "console=ttyS0 no_timer_check")
# Newer processors that QEMU knows sign every pointer, which takes long without one.
ARM = Board("virt", "cortex-a72", "console=ttyAMA0")


def base_args(
    shape: Shape, folder: Path, kernel: Path, modules: Path, board: Board = PC, root: Path = Path("/")
) -> list[str]:
    """The machine, its kernel and the files of its root (the host's, if no others), read-only."""
    args = ["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]
    args += ["-machine", board.machine, "-accel", "tcg,thread=multi"]
    args += ["-cpu", board.cpu, "-smp", shape.smp, "-m", f"{shape.memory_mib}M"]
    args += ["-kernel", str(kernel), "-initrd", str(folder / "initramfs")]
    args += ["-append", f"{_COMMAND_LINE.format(words=board.words)} OPW_MODULES={modules}"]
    args += ["-serial", f"file:{folder / 'console'}"]
    return [*args, *share_args("root", root)]


def share_args(tag: str, path: Path) -> list[str]:
    """A folder of the host, read-only, that the guest can mount by its tag."""
    share = f"local,id={tag},path={path},security_model=none,readonly=on,multidevs=remap"
    return ["-fsdev", share, "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]


def channel_args(fds: Sequence[int]) -> list[str]:
    """The agent's channel, the host's monitor, and a monitor whose client is the guest."""
    args = []
    for name, fd in zip(CHANNELS, fds, strict=True):
        args += ["-chardev", f"socket,id={name},fd={fd}"]
    args += ["-mon", "chardev=monitor,mode=control", "-mon", "chardev=inner,mode=control"]
    args += ["-device", "virtio-serial-pci"]
    args += ["-device", "virtserialport,chardev=agent,name=opwatch.agent"]
    return [*args, "-device", "virtserialport,chardev=qmp,name=opwatch.qmp"]
