"""The list of commands. Each is a module or package of that name in `commands`, imported when called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_MACHINE, _RECORDINGS = "this machine", "recordings"
_WRITES, _EXPERIMENTS = "write amplification and trims", "experiments"


class CommandEntry(NamedTuple):
    """A command: its heading in the overview, its purpose, and its verbs with their purposes.

    `runs_program`: it runs the program after `--`. `modules` maps the verbs whose module has another name.
    """

    group: str
    help: str
    verbs: Mapping[str, str] = {}
    runs_program: bool = False
    modules: Mapping[str, str] = {}


# The overview lists them in this order.
COMMANDS = {
    "watch": CommandEntry(
        _MACHINE,
        "show latency, rates and sizes of every block operation, live (the default)",
        runs_program=True,
    ),
    "top": CommandEntry(
        _MACHINE, "rank processes or control groups by their I/O on all disks, the largest first"
    ),
    "devices": CommandEntry(_MACHINE, "list block devices: their layers, queue limits and discard support"),
    "doctor": CommandEntry(_MACHINE, "show what is missing for tracing, and the command that fixes it"),
    "exporter": CommandEntry(
        _MACHINE, "serve metrics of all disks and their drives to Prometheus, over HTTP or HTTPS"
    ),
    "overhead": CommandEntry(_MACHINE, "measure what tracing costs on this machine"),
    "completion": CommandEntry(_MACHINE, "print the completion script of a shell: bash, zsh or fish"),
    "record": CommandEntry(_RECORDINGS, "keep everything that a watch knows in a file", runs_program=True),
    "note": CommandEntry(_RECORDINGS, "add a note to a recording while it is written"),
    "replay": CommandEntry(
        _RECORDINGS, "show a recording as it was live: all or a part of it, in the same or longer intervals"
    ),
    "dump": CommandEntry(_RECORDINGS, "export recordings as CSV, JSON lines, OpenMetrics or Parquet"),
    "import": CommandEntry(_RECORDINGS, "convert a measurement of fio, iostat or blktrace into a recording"),
    "flight": CommandEntry(
        _RECORDINGS,
        "continuously keep the last few minutes of a watch, and dump them into a recording",
        {
            "dump": "write the contents of the ring into a recording",
            "archive": "write the rows that wait in the ring's folder into an archive",
            "note": "add a note, with its time, to the ring of a running recorder",
            "status": "show what the ring covers, and whether a recorder writes to it",
        },
    ),
    "why": CommandEntry(
        _RECORDINGS, "explain what made requests slow: drive, kernel, another owner or load, or unknown"
    ),
    "report": CommandEntry(
        _RECORDINGS, "make one page of recordings: sentences, tables and plots, as HTML, Markdown or JSON"
    ),
    "compare": CommandEntry(
        _RECORDINGS, "compare recordings: which differences are real, and which cannot be decided"
    ),
    "counters": CommandEntry(
        _WRITES, "read bytes written by the host and to NAND, and wear, from counters with proven units"
    ),
    "waf": CommandEntry(
        _WRITES,
        "measure the write amplification of an interval or a command, with its error",
        runs_program=True,
    ),
    "writes": CommandEntry(
        _WRITES,
        "show where written bytes get amplified, from programs over the file system down to NAND",
        runs_program=True,
    ),
    "trim": CommandEntry(
        _WRITES,
        "show whether trims reach the drive: check (predict), audit (trim and follow), stale, record",
        {
            "audit": "trim, and follow the discards layer by layer down to the drive",
            "check": "predict whether a trim reaches the drive, which layer stops it, and how much gets "
            "through",
            "record": "follow writes and discards, so that trim stale is exact",
            "stale": "estimate how much free space the drive still holds as data",
        },
        runs_program=True,
    ),
    "drive": CommandEntry(
        _EXPERIMENTS,
        "simulate SSDs that are real block devices: create, list, info, fault, destroy",
        {
            "create": "make a drive and print its device",
            "list": "list every drive, and whether it is alive",
            "info": "show what a drive really wrote, and why",
            "fault": "apply faults to a running drive",
            "destroy": "remove a drive, or what a dead drive left behind",
        },
    ),
    "sweep": CommandEntry(
        _EXPERIMENTS,
        "measure a drive at levels of over-provisioning, in a proven steady state: plan, run, resume",
        {
            "plan": "show the steps, bytes and time of a sweep, and what prevents it; writes nothing",
            "run": "measure a drive at levels of over-provisioning (destroys its data), or simulate that",
            "resume": "continue a sweep that was stopped by a signal, a crash or a loss of power",
            "advise": "answer how much over-provisioning a sweep shows to be enough, and what more would buy",
            "list": "list methods, SNIA's tests, published experiments, simulated drives, and sweeps started "
            "here",
            "show": "print the table of a sweep, test or experiment from its JSON document",
        },
        # A module called `run` would replace the function of that name in the package.
        modules={"run": "begin"},
    ),
}
