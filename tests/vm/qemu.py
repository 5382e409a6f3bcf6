"""QEMU's arguments: the machine, the host's files, the channels. Devices are in devices.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CHANNELS = ("agent", "monitor", "inner", "qmp")

# loglevel: what a test wants to see is in dmesg, and a serial port under emulation is slow.
# oops: a fault in the kernel, for instance in a BPF program, must not go unseen.
_COMMAND_LINE = (
    "console=ttyS0 loglevel=4 panic=-1 oops=panic mitigations=off nokaslr tsc=reliable "
    "random.trust_cpu=on rdinit=/init"
)


@dataclass(frozen=True)
class Shape:
    """How big the guest is."""

    cpus: int = 2
    memory_mib: int = 3072


DEFAULT_SHAPE = Shape()


def base_args(shape: Shape, folder: Path, kernel: Path, modules: Path) -> list[str]:
    """The machine, its kernel and the host's files, read-only."""
    args = ["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]
    args += ["-machine", "q35,smm=off,vmport=off,hpet=off", "-accel", "tcg,thread=multi"]
    args += ["-cpu", "max,la57=off", "-smp", str(shape.cpus), "-m", f"{shape.memory_mib}M"]
    args += ["-kernel", str(kernel), "-initrd", str(folder / "initramfs")]
    args += ["-append", f"{_COMMAND_LINE} OPW_MODULES={modules}"]
    args += ["-serial", f"file:{folder / 'console'}"]
    share = "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap"
    return [*args, "-fsdev", share, "-device", "virtio-9p-pci,fsdev=root,mount_tag=root"]


def channel_args(fds: Sequence[int]) -> list[str]:
    """The agent's channel, the host's monitor, and a monitor whose client is the guest."""
    args = []
    for name, fd in zip(CHANNELS, fds, strict=True):
        args += ["-chardev", f"socket,id={name},fd={fd}"]
    args += ["-mon", "chardev=monitor,mode=control", "-mon", "chardev=inner,mode=control"]
    args += ["-device", "virtio-serial-pci"]
    args += ["-device", "virtserialport,chardev=agent,name=opwatch.agent"]
    return [*args, "-device", "virtserialport,chardev=qmp,name=opwatch.qmp"]
