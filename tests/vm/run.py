"""python3 -m tests.vm.run --kernel 6.12 [--devices nvme-ocp,null-blk] -- COMMAND...

Exit status: the command's own; 124 when it ran out of time, 125 when the bench or the guest failed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.vm import config, devices
from tests.vm.boot.machine import Machine
from tests.vm.boot.qemu import Shape
from tests.vm.errors import BenchError


def _make_parser() -> argparse.ArgumentParser:
    known = devices.read_devices()
    lines = "\n".join(f"  {d.name:22}{d.what}" for d in known.values())
    parser = argparse.ArgumentParser(
        prog="python3 -m tests.vm.run",
        description="Runs a command of this machine's userspace on another kernel, in QEMU.",
        epilog=f"devices:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kernel", default="6.12", help="a name of kernels.toml (%(default)s)")
    parser.add_argument("--devices", default="", help="comma-separated names, see below")
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--most-cpus", type=int, default=0, help="for how many there is room")
    parser.add_argument("--memory", type=int, default=3072, metavar="MIB")
    parser.add_argument("--timeout", type=float, default=600.0, metavar="SECONDS")
    parser.add_argument("command", nargs="+")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command in a guest and return the exit status."""
    options = _make_parser().parse_args(arguments)
    names = [name for name in options.devices.split(",") if name]
    try:
        kernel = config.read_config().find_kernel(options.kernel)
        chosen = devices.choose_devices(names, devices.read_devices())
        with Machine(kernel, chosen, Shape(options.cpus, options.memory, options.most_cpus)) as machine:
            print(f"vm: {machine.release} up after {machine.boot_s:.1f} s", file=sys.stderr)
            done = machine.run(
                options.command,
                timeout_s=options.timeout,
                stdout=lambda data: (sys.stdout.buffer.write(data), sys.stdout.flush()),
                stderr=lambda data: (sys.stderr.buffer.write(data), sys.stderr.flush()),
            )
            return done.status
    except BenchError as error:
        print(f"vm: {error}", file=sys.stderr)
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main())
