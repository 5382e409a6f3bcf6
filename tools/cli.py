"""The command line, and the only place that turns an error into a message and an exit status."""

from __future__ import annotations

import argparse
import os
import sys

from opwatch import __version__
from opwatch.errors import OpwatchError, ProbeRejected, UsageError
from opwatch.sinks.terminal import OutputLost, discard_stdout, print_message
from opwatch.sinks.wrapping import wrap_text
from opwatch.times import parse_time
from opwatch.tools.arguments import Parser, suggest_name
from opwatch.tools.command import Command, import_without_gc
from opwatch.tools.command_list import COMMANDS
from opwatch.tools.config_file import find_defaults

_EXAMPLES = {
    "sudo opwatch": "all disks, with a table per second",
    "sudo opwatch --dev nvme0n1 --slow 10ms": "one disk, and who issued the requests over 10 ms",
    "sudo opwatch -o run.opw --dev nvme0n1 -- fio job.fio": "run a command, watch and record until it ends",
    "opwatch replay run.opw 1m": "show that recording in intervals of a minute",
    "sudo opwatch waf --dev nvme0n1 --for 10m": "the write amplification of ten minutes, with its error",
}


def _format_overview() -> str:
    """Return the commands by purpose, and examples for new users."""
    lines = ["commands (opwatch help COMMAND shows its options):"]
    for group in dict.fromkeys(entry.group for entry in COMMANDS.values()):
        lines.append(f" {group}")
        for name, entry in COMMANDS.items():
            lines += wrap_text(entry.help, f"  {name:<10} ") if entry.group == group else []
    lines += ["", "examples:"]
    for line, purpose in _EXAMPLES.items():
        lines += [f"  {line}", *wrap_text(purpose, "      ")]
    lines.append("")
    lines += wrap_text(
        "Without a command, opwatch watches. A program after -- is run, and watched until it ends."
    )
    return "\n".join(lines)


def _make_parser(name: str, command: Command) -> argparse.ArgumentParser:
    parser = Parser(
        prog="opwatch" if name == "watch" else f"opwatch {name}",
        description="\n".join(wrap_text(COMMANDS[name].help)),
        epilog=_format_overview() if name == "watch" else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-V", "--version", action="version", version=f"opwatch {__version__}")
    command.add_arguments(parser)
    return parser


def _split_command(words: list[str]) -> tuple[str, list[str]]:
    """Return the command and its arguments. `help CMD` means `CMD --help`."""
    if words[:1] == ["help"]:
        asked = [word for word in words[1:] if not word.startswith("-")]
        return _split_command([*asked, "--help"])
    if not words or words[0].startswith("-"):
        return "watch", words
    if words[0] in COMMANDS:
        return words[0], words[1:]
    try:
        parse_time(words[0])
    except UsageError:
        close = suggest_name(words[0], [*COMMANDS, "help"]) or "; opwatch help lists the commands"
        raise UsageError(
            f"{words[0]!r} is neither a command nor an interval{close} (a device goes after --dev)"
        ) from None
    return "watch", words


def _show_manual(words: list[str]) -> bool:
    """Open the man page of `help COMMAND`, and return whether it was shown. Only a terminal has a pager."""
    if words[:1] != ["help"] or not sys.stdout.isatty():
        return False
    # Imported on demand, because no other command needs it.
    from opwatch.tools.manual import list_paths, open_page

    path = " ".join(words[1:])
    return path in list_paths() and open_page(path)


def parse(argv: list[str]) -> tuple[Command, argparse.Namespace]:
    """Return the command and its arguments. args.command holds the words after `--`."""
    before, behind = argv, None
    if "--" in argv:
        split = argv.index("--")
        before, behind = argv[:split], argv[split + 1 :]
    name, rest = _split_command(before)
    command: Command = import_without_gc(f"opwatch.tools.commands.{name}")
    parser = _make_parser(name, command)
    if behind == []:
        parser.error("there is no command after --")
    if behind and not COMMANDS[name].runs_program:
        parser.error(f"{name} takes no command after --")
    # Options may stand between positional arguments, as in `replay FILE --json 60`.
    defaults = find_defaults(name, parser)
    defaults.set_plain(parser)
    args = parser.parse_args(rest) if COMMANDS[name].verbs else parser.parse_intermixed_args(rest)
    if not getattr(args, "verb", None):
        defaults.fill_lists(args)
    args.command = behind
    return command, args


def report_error(error: OpwatchError) -> int:
    """Print an error; return its exit status."""
    print_message(str(error))
    for line in error.log.strip().split("\n")[-15:] if error.log else ():
        print_message(line, head="  ")
    if isinstance(error, ProbeRejected):
        print_message(
            "the kernel rejected a program of opwatch. This is a bug: please report it with the lines above "
            "and the output of opwatch doctor."
        )
    return error.exit_status


def _open_closed_streams() -> None:
    """Open /dev/null in place of a closed standard stream, so that none of our files gets the stream's
    number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is the stream's
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))


def main(argv: list[str] | None = None) -> int:
    """Run a command and return the exit status."""
    _open_closed_streams()
    words = sys.argv[1:] if argv is None else argv
    try:
        if _show_manual(words):
            return 0
        command, args = parse(words)
        return command.run(args)
    except OutputLost as error:
        discard_stdout()
        return report_error(error)
    except OpwatchError as error:
        return report_error(error)
    except BrokenPipeError:
        discard_stdout()
        return 0
    except OSError as error:
        # A path of the command line that cannot be looked at. Without a path the error is a bug of opwatch.
        if not isinstance(error.filename, str | bytes):
            raise
        return report_error(OpwatchError(f"{os.fsdecode(error.filename)}: {error.strerror}"))
    except KeyboardInterrupt:
        return 130
