"""`opwatch drive create|list|info|fault|destroy`: the simulated SSD as a real block device."""

from __future__ import annotations

import argparse
import stat
import textwrap
from fractions import Fraction
from pathlib import Path
from typing import Any

from opwatch import SCHEMA
from opwatch.drive import life
from opwatch.drive.nodes import guess_node, is_record_current
from opwatch.drive.place import DriveFolder, list_drives
from opwatch.drive.process import explain_unreachable
from opwatch.drive.spec import FAULTS, parse_fault, parse_name, parse_op, parse_owners, physical_bytes
from opwatch.errors import OpwatchError, PermissionMissing, RefusedError, UsageError
from opwatch.ftl import profiles
from opwatch.ftl.drive import Tie
from opwatch.quantities import parse_size
from opwatch.sinks.terminal import open_stdout, print_message
from opwatch.tools.command_list import COMMANDS
from opwatch.units import format_capacity

_SIZE, _OP = "4G", "7%"
# The map has 32 bits per flash unit; the spare area needs some of the values.
_MAX_UNITS = 1 << 31


def add_arguments(parser: argparse.ArgumentParser) -> None:
    purposes = COMMANDS["drive"].verbs
    group = parser.add_subparsers(dest="verb", required=True, metavar="|".join(purposes))
    verbs = {verb: group.add_parser(verb, help=purpose) for verb, purpose in purposes.items()}
    _add_create(verbs["create"])
    verbs["info"].add_argument(
        "name", nargs="?", metavar="NAME", help="may be left out if there is one drive"
    )
    for verb in (verbs["list"], verbs["info"]):
        verb.add_argument("--json", action="store_true", help='print one JSON document, "schema":"opwatch/1"')
    fault = verbs["fault"]
    fault.formatter_class, fault.epilog = argparse.RawDescriptionHelpFormatter, _format_fault_help()
    fault.add_argument("name", metavar="NAME")
    fault.add_argument("faults", nargs="+", metavar="FAULT")
    destroy = verbs["destroy"]
    destroy.add_argument("name", nargs="?", metavar="NAME")
    destroy.add_argument("--all", action="store_true", help="remove every drive")
    destroy.add_argument(
        "--no-save",
        action="store_true",
        help="do not write the drive to its --state file; unsaved contents are lost",
    )


def _format_fault_help() -> str:
    lines = ["faults:"]
    for name, what in FAULTS.items():
        lines += [f"  {name}", *textwrap.wrap(what, 72, initial_indent=" " * 6, subsequent_indent=" " * 6)]
    return "\n".join(lines)


def _add_create(create: argparse.ArgumentParser) -> None:
    create.formatter_class = argparse.RawDescriptionHelpFormatter
    create.epilog = _format_fault_help()
    create.add_argument("--size", metavar="SIZE", help=f"the user size, which the host sees ({_SIZE})")
    create.add_argument(
        "--op",
        metavar="N%",
        help=f"over-provisioning (T-U)/U: spare area as a share of the user size ({_OP.replace('%', '%%')})",
    )
    create.add_argument(
        "--profile",
        metavar="P",
        help=f"a drive by name ({', '.join(profiles.list_profiles())}) or a .toml file, scaled to "
        "--size; --op replaces its over-provisioning",
    )
    create.add_argument(
        "--tie",
        choices=("latest", "oldest"),
        help="among equally empty superblocks, collect the one that became so last (the default), or "
        "the one that was closed first",
    )
    create.add_argument("--name", metavar="N", help="the drive's name (sim0, sim1, ...)")
    create.add_argument(
        "--no-data",
        action="store_true",
        help="keep no contents: data reads as a pattern; a drive of 1 TiB takes less than 2.5 GiB of memory",
    )
    create.add_argument(
        "--memory",
        metavar="SIZE",
        help="refuse a drive whose contents and tables could take more memory than this (available memory)",
    )
    create.add_argument(
        "--state",
        metavar="FILE",
        type=Path,
        help="load contents and wear from this file if it exists, and save them there on destroy",
    )
    _add_behaviour(create)


def _add_behaviour(create: argparse.ArgumentParser) -> None:
    """Add the options for the timing and the faults of a drive."""
    create.add_argument(
        "--timing",
        choices=("off", "real"),
        default="off",
        help="answer at once (off, the default), or when a drive with these dies and channels would (real)",
    )
    create.add_argument(
        "--owners",
        action="append",
        default=[],
        metavar="NAME=START-END",
        help="count the NAND bytes of this part of the drive separately, in truth.json and drive info; may "
        "be given several times",
    )
    create.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="FAULT",
        help="make the drive faulty; may be given several times",
    )


def _parse_user_bytes(text: str, unit: int) -> int:
    user = parse_size(text)
    if user > _MAX_UNITS * unit:
        raise UsageError(
            f"--size {text} is too large: at most {_MAX_UNITS * unit >> 40}T with units of {unit} bytes"
        )
    if user % unit or user < 1 << 20:
        raise UsageError(f"--size {text} must be a multiple of {unit} bytes, and at least 1M")
    return user


def _choose_sizes(args: argparse.Namespace, loading: bool) -> dict[str, int]:
    """Return user and physical size, or nothing if the state file defines them."""
    if loading and args.size is None and args.op is None:
        return {}
    if loading and (args.size is None or args.op is None):
        raise UsageError(
            f"{args.state} defines the drive: leave out --size and --op, or give both to check them "
            "against the file"
        )
    user = _parse_user_bytes(args.size or _SIZE, 4096)
    return {"user_bytes": user, "physical_bytes": physical_bytes(user, parse_op(args.op or _OP))}


def build_config(args: argparse.Namespace, loading: bool) -> dict[str, int]:
    """Return every number passed to the server. With a state file, a profile sets the timing only."""
    if args.tie is None:
        return _combine_sizes_and_profile(args, loading)
    if loading:
        raise UsageError(f"--tie {args.tie}: leave it out, because {args.state} defines the drive")
    return _combine_sizes_and_profile(args, loading) | {"tie": int(Tie[args.tie.upper()])}


def _combine_sizes_and_profile(args: argparse.Namespace, loading: bool) -> dict[str, int]:
    if args.profile is None:
        return _choose_sizes(args, loading)
    profile = profiles.load_profile(args.profile)
    timing = {f"service.{key}": value for key, value in profile.timing.items()}
    if loading:
        return _choose_sizes(args, loading) | timing
    iu_bytes = profile.drive.get("iu_bytes", 4096)
    user = _parse_user_bytes(args.size or _SIZE, iu_bytes)
    if user != profile.drive["user_bytes"]:
        profile = profile.scale_to(user)
    config = dict(profile.drive) | {"user_bytes": user}
    if args.op is not None:
        config["physical_bytes"] = physical_bytes(user, parse_op(args.op), iu_bytes)
    return config | timing


def _create_drive(args: argparse.Namespace) -> int:
    state = args.state.absolute() if args.state else None
    if state and not state.parent.is_dir():
        raise UsageError(f"--state {args.state}: there is no folder {state.parent}")
    loading = bool(state and _has_saved_state(state))
    config = build_config(args, loading)
    owners = parse_owners(args.owners, config.get("user_bytes"))
    wanted = life.DriveSpec(
        name=parse_name(args.name) if args.name is not None else None,
        config=config,
        faults=tuple(parse_fault(text, creating=True) for text in args.fault),
        no_data=args.no_data,
        state=state,
        memory_bytes=None if args.memory is None else parse_size(args.memory),
        words=(*(("timing",) if args.timing == "real" else ()), *(f"owner={one.words}" for one in owners)),
    )
    open_stdout().write_line(life.create_drive(wanted).device)
    return 0


def _has_saved_state(path: Path) -> bool:
    """Return whether a state file exists that can be loaded.

    Other file types are refused: a FIFO would block forever, and a save would replace a link.
    """
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    if stat.S_ISLNK(mode):
        raise RefusedError(f"--state {path} is a link, which saving would replace: name the file itself")
    if not stat.S_ISREG(mode):
        raise RefusedError(f"--state {path} is not a regular file: name another one")
    return True


def _build_status(place: DriveFolder) -> dict[str, Any]:
    record = place.read_record()
    try:
        alive = place.is_alive()
    except PermissionMissing:
        # Without root, only the folder names and the loop devices are readable.
        return {"name": place.name, "device": guess_node(place), "status": "unknown", "is_here": None}
    return {
        "name": place.name,
        "device": record.device if record and is_record_current(record) else None,
        "status": "alive" if alive else "dead",
        "is_here": not alive or explain_unreachable(place, "drive list") is None,
    }


def _list_drives(args: argparse.Namespace) -> int:
    drives = [_build_status(place) for place in list_drives()]
    if args.json:
        open_stdout().write_json({"schema": SCHEMA, "type": "drives", "drives": drives})
        return 0
    for drive in drives:
        where = ", not mounted here" if drive["is_here"] is False else ""
        open_stdout().write_line(f"{drive['name']:<16} {drive['device'] or '-':<12} {drive['status']}{where}")
    if any(drive["status"] == "unknown" for drive in drives):
        print_message("only root can see whether these drives are alive: sudo opwatch drive list")
    if not drives:
        print_message("no drives; opwatch drive create makes one")
    return 0


def describe_drive(place: DriveFolder) -> dict[str, Any]:
    """Return all facts about a live drive, as `drive info --json` prints them."""
    truth = life.read_true_counters(place)
    record = place.read_record()
    host = truth["host_write_bytes"]
    description = {
        "schema": SCHEMA,
        "type": "drive",
        **_build_status(place),
        "log_dir": str(place.mount),
        "state": record.state if record else None,
        "no_data": record.no_data if record else None,
        "memory_bytes": life.read_memory_bytes(record) if record else None,
        "host_bytes": host,
        "nand_bytes": truth["nand_write_bytes"],
        "waf": truth["nand_write_bytes"] / host if host else None,
    }
    if not host:
        description["waf_reason"] = "the host has written nothing"
    spare = truth["physical_bytes"] - truth["user_bytes"]
    description["op_of_user_ratio"] = spare / truth["user_bytes"]
    description["op_of_physical_ratio"] = spare / truth["physical_bytes"] if truth["physical_bytes"] else None
    return description | truth


def _format_percent(part: int, whole: int) -> str:
    return f"{float(Fraction(100 * part, whole)):.2f} %" if whole else "-"


def _show_info(args: argparse.Namespace) -> int:
    info = describe_drive(life.find_drive(args.name))
    if args.json:
        open_stdout().write_json(info)
        return 0
    out = open_stdout()
    user, physical = info["user_bytes"], info["physical_bytes"]
    spare = physical - user
    waf = "-" if info["waf"] is None else f"{info['waf']:.4f}"
    out.write_line(f"drive      {info['name']} at {info['device']}, serial {info['serial']}")
    out.write_line(f"user       {user} bytes ({format_capacity(user)})")
    out.write_line(f"physical   {physical} bytes ({format_capacity(physical)}), without the reserve")
    out.write_line(
        f"OP         {_format_percent(spare, user)} as (T-U)/U, {_format_percent(spare, physical)} as (T-U)/T"
    )
    out.write_line(
        f"valid      {info['valid_bytes']} bytes ({_format_percent(info['valid_bytes'], user)} of user)"
    )
    out.write_line(f"host       {info['host_bytes']} bytes written, {info['host_read_bytes']} read")
    out.write_line(f"trimmed    {info['trim_bytes']} bytes, {info['trim_ignored_bytes']} of them ignored")
    out.write_line(f"NAND       {info['nand_bytes']} bytes written: {_format_causes(info)}")
    for owner in info.get("owners", ()):
        out.write_line(
            f"owner      {owner['name'] or '(all else)'}: {owner['host_write_bytes']} bytes written, "
            f"{owner['nand_write_bytes']} on NAND"
        )
    out.write_line(
        f"WAF        {waf}{'  (' + info['waf_reason'] + ')' if info['waf'] is None else ' since new'}"
    )
    spread = f"per superblock {info['erase_min']} to {info['erase_max']}"
    out.write_line(f"erases     {info['erases']}; {spread}, mean {info['erase_avg_milli'] / 1000:.1f}")
    if info.get("timing"):
        out.write_line(f"timing     {_format_punctuality(info)}")
    out.write_line(f"memory     {info['memory_bytes'] if info['memory_bytes'] is not None else '-'} bytes")
    if not (info.get("io_flusher", 1) and info.get("memory_locked", 1)):
        out.write_line("caution    the server lacks CAP_SYS_RESOURCE or CAP_IPC_LOCK: it may wait for")
        out.write_line("           itself when memory is short")
    out.write_line(f"log pages  {info['log_dir']}")
    return 0


def _format_punctuality(info: dict[str, Any]) -> str:
    """Return a line that tells whether the drive model or the host limited the latencies."""
    timed, late = info["answers_timed"], info["answers_late"]
    if not late:
        return f"real: none of {timed} answers was late"
    worst = info["answers_late_max_ns"] / 1e6
    share = f"{_format_percent(late, timed)} of {timed} answers"
    return f"real: the host was the limit for {share}, at most {worst:.3g} ms late"


def _format_causes(info: dict[str, Any]) -> str:
    names = ("host", "gc", "rmw", "fold", "wear", "rebuild")
    parts = [(name, info[f"nand_write_{name}_bytes"]) for name in names]
    return ", ".join(f"{name} {n}" for name, n in parts if n) or "none yet"


def _inject_faults(args: argparse.Namespace) -> int:
    place = life.find_drive(parse_name(args.name))
    life.read_true_counters(place, "drive fault")
    for fault in [parse_fault(text) for text in args.faults]:
        life.inject_fault(place, fault)
    return 0


def _destroy_drives(args: argparse.Namespace) -> int:
    if args.all == (args.name is not None):
        raise UsageError("name the drive to destroy, or use --all")
    failed: OpwatchError | None = None
    for name in [place.name for place in list_drives()] if args.all else [parse_name(args.name)]:
        try:
            for note in life.destroy_drive(name, save=not args.no_save):
                print_message(note)
        except OpwatchError as error:
            # With --all, a drive in use does not prevent removing the others.
            if not args.all:
                raise
            print_message(str(error))
            failed = error
    if args.all:
        life.require_root("drive destroy")
        for note in life.detach_abandoned():
            print_message(note)
    return failed.exit_status if failed else 0


_VERBS = {
    "create": _create_drive,
    "list": _list_drives,
    "info": _show_info,
    "fault": _inject_faults,
    "destroy": _destroy_drives,
}


def run(args: argparse.Namespace) -> int:
    return _VERBS[args.verb](args)
