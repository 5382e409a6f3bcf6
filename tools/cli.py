"""The command line. The only place that turns an error into a message and an exit status."""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys

from opwatch import __version__
from opwatch.errors import OpwatchError, ProbeRejected
from opwatch.tools.command import Command

# Command -> what it is for. Each lives in the module of its name, imported when it is called.
COMMANDS = {
    "watch": "latency, rates and sizes of every block operation, live (the default)",
    "devices": "every block device: what it stands on, its queue limits, discard support",
    "doctor": "what this machine lacks for opwatch, and the command that mends it",
    "overhead": "what tracing costs on this machine",
    "drive": "a simulated SSD as a real block device: create, list, info, fault, destroy",
    "trim": "whether trims reach the drive: audit, check (foretell), stale (what it still holds), record",
    "counters": "bytes written by host and to NAND, and wear, from firmware counters with proven units",
    "waf": "write amplification of an interval or a command, with its error",
}
# Those that run what stands behind `--`.
_RUN_COMMANDS = ("watch", "waf", "trim")


def _overview() -> str:
    lines = ["commands (each has its own --help):"]
    lines += [f"  {name:<10} {purpose}" for name, purpose in COMMANDS.items()]
    lines.append("")
    lines.append("Without a command: opwatch watch. What stands behind -- is run, and watched till it ends.")
    return "\n".join(lines)


def _parser(name: str, command: Command) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="opwatch" if name == "watch" else f"opwatch {name}",
        description=COMMANDS[name],
        epilog=_overview() if name == "watch" else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"opwatch {__version__}")
    command.add_arguments(parser)
    return parser


def parse(argv: list[str]) -> tuple[Command, argparse.Namespace]:
    """The command and its arguments; what stands behind `--` is args.command."""
    before, behind = argv, None
    if "--" in argv:
        split = argv.index("--")
        before, behind = argv[:split], argv[split + 1 :]
    name, rest = ("watch", before)
    if before and before[0] in COMMANDS:
        name, rest = before[0], before[1:]
    command: Command = importlib.import_module(f"opwatch.tools.{name}")
    parser = _parser(name, command)
    if behind == []:
        parser.error("there is no command behind --")
    if behind and name not in _RUN_COMMANDS:
        parser.error(f"{name} takes no command behind --")
    args = parser.parse_args(rest)
    args.command = behind
    return command, args


def report(error: OpwatchError) -> int:
    """Say what went wrong; returns the exit status for it."""
    print(f"opwatch: {error}", file=sys.stderr)
    if isinstance(error, ProbeRejected):
        tail = "\n".join(error.log.strip().splitlines()[-15:])
        print(
            f"{tail}\nopwatch: the kernel refused our program. This is a bug in opwatch: please report "
            "it with the lines above and the output of opwatch doctor.",
            file=sys.stderr,
        )
    return error.exit_status


def _stand_in_for_closed_streams() -> None:
    """A standard stream that was closed at the start: its number must not go to a file of ours."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))


def _abandon_output() -> None:
    """What Python would flush on its way out has nowhere to go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit status."""
    _stand_in_for_closed_streams()
    try:
        command, args = parse(sys.argv[1:] if argv is None else argv)
        status = command.run(args)
        sys.stdout.flush()
    except OpwatchError as error:
        return report(error)
    except BrokenPipeError:
        _abandon_output()
        return 0
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO, errno.EDQUOT) or error.filename:
            raise
        print(f"opwatch: cannot write the output: {error.strerror}", file=sys.stderr)
        _abandon_output()
        return 1
    except KeyboardInterrupt:
        return 130
    return status
