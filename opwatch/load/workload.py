"""A workload: the shape of requests, without their target and number. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib import resources
from pathlib import Path
from typing import Any

from opwatch.codec import decode
from opwatch.errors import BadInput, UsageError
from opwatch.fields import Fields
from opwatch.foreign import decode_text, read_bytes, require_table, split_lines
from opwatch.load.icf import parse_icf
from opwatch.load.options import check_option
from opwatch.load.plain import SYSBENCH_MODES, PlainLoad, parse_plain_load
from opwatch.load.vdbench import parse_vdbench
from opwatch.settings import parse_toml

_MAX_JOBS, _MAX_BYTES = 64, 1 << 16
_DEFAULTS = {
    "ioengine": "libaio",
    "direct": "1",
    "iodepth": "32",
    "bs": "4k",
    # Compressible or duplicate data would make a drive with compression or deduplication look too good.
    "refill_buffers": "1",
    # Requests are independent. With a map, fio would write every block once before any block twice.
    "norandommap": "1",
    # The default generator has 32 bits and cannot reach all 4 KiB blocks beyond 16 TiB.
    "random_generator": "tausworthe64",
}


@dataclass(frozen=True, slots=True)
class LoadJob:
    """One job: the fio options for the shape of requests, defaults included.

    `threads` threads run the job.
    """

    options: Mapping[str, str]

    @property
    def thread_count(self) -> int:
        return int(self.options.get("numjobs", "1"))

    @property
    def write_share(self) -> Fraction:
        """Return the written share of the job's bytes."""
        if self.options["rw"].partition(":")[0] in ("write", "randwrite"):
            return Fraction(1)
        if "rwmixwrite" in self.options:
            return Fraction(int(self.options["rwmixwrite"]), 100)
        return 1 - Fraction(int(self.options.get("rwmixread", "50")), 100)


# fio options that write a file's timestamps with its data, each with the harmless values.
_SYNCS = (("fsync", ("0",)), ("sync", ("none", "0", "dsync")))


@dataclass(frozen=True, slots=True)
class LoadPattern:
    """A named workload. `left_out` lists options of a user's file overridden by the sweep."""

    name: str
    description: str
    jobs: tuple[LoadJob, ...]
    left_out: tuple[str, ...] = ()

    @property
    def is_uniform(self) -> bool:
        """Return True if the random writes are meant to be uniform.

        Other workloads get no uniformity check.
        """
        return all(
            job.options["rw"].startswith("rand")
            and job.options.get("percentage_random", "100") == "100"
            and job.options.get("random_distribution", "random") == "random"
            for job in self.jobs
        )

    def to_plain(self) -> dict[str, Any]:
        """Return the workload as stored in a journal: the options of each job."""
        jobs = [dict(job.options) for job in self.jobs]
        return {"name": self.name, "description": self.description, "jobs": jobs}

    @classmethod
    def from_plain(cls, plain: object, where: str) -> LoadPattern:
        """Return the workload in a journal, checked like a user's before fio gets its options."""
        fields = Fields(require_table(plain, where), where)
        tables = decode(tuple[dict[str, str], ...], fields.table.get("jobs"), f"{where}: jobs")
        return _build_pattern(fields.read_text("name"), fields.read_text("description"), tables, where)


def require_reach(pattern: LoadPattern, round_ratio: float) -> None:
    """Raise UsageError if sequential rounds of `round_ratio` never reach the end of the data in use.

    fio starts each round, and each of its threads, at the first byte again.
    """
    in_order = [job for job in pattern.jobs if not job.options["rw"].startswith("rand")]
    threads = sum(job.thread_count for job in pattern.jobs)
    if in_order and (round_ratio < 1 or threads > 1 or in_order[0].write_share < 1):
        raise UsageError(
            f"{pattern.name}: it writes sequentially, and each round starts at the first byte, so the "
            "rest would never be written: use rw=write in one job of one thread with --round 100%, or "
            "randwrite"
        )


def require_data_only_writes(pattern: LoadPattern) -> None:
    """Raise UsageError if each write makes the file system write timestamps too.

    The figures would then cover both kinds of writes, and the file system's writes would be indistinguishable
    from other programs' writes.
    """
    for job in pattern.jobs:
        for key, harmless in _SYNCS:
            if (value := job.options.get(key, harmless[0])) not in harmless:
                raise UsageError(
                    f"{pattern.name}: with {key}={value} the filesystem adds its own write to each of "
                    "these writes: use fdatasync=N or sync=dsync, which write data only, or --method window"
                )


def list_workloads() -> list[str]:
    """Return the names of opwatch's own workloads."""
    folder = resources.files("opwatch.load").joinpath("workloads")
    return sorted(
        entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")
    )


def find_workload(text: str) -> LoadPattern:
    """Return the workload named by a user.

    The name is one of opwatch's, one of another tool's, or a file: .toml, or one of fio, vdbench or Iometer.
    """
    plain = parse_plain_loads(text)
    if plain:
        return make_pattern(require_single_load(plain, text), text)
    if text in list_workloads():
        raw = resources.files("opwatch.load").joinpath("workloads", f"{text}.toml").read_bytes()
        return parse_workload(raw, text)
    path = Path(text)
    if path.suffix not in (".toml", ".fio"):
        raise UsageError(
            f"unknown workload {text!r}: use one of {', '.join(list_workloads())}; a sysbench mode "
            f"({', '.join(SYSBENCH_MODES)}); SIZE-N-random or SIZE-N-random-N-read, such as "
            "4k-100-random; vdbench's rdpct=75,seekpct=100,xfersize=8k,threads=16; or a .toml, .fio, "
            ".vdb or .icf file"
        )
    raw = _read_file(path)
    return parse_workload(raw, text) if path.suffix == ".toml" else parse_job_file(raw, text)


def _read_file(path: Path) -> bytes:
    try:
        return read_bytes(path, _MAX_BYTES)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def parse_plain_loads(text: str) -> list[PlainLoad]:
    """Return the loads of a name or file of sysbench, Iometer or vdbench; an empty list for others."""
    path = Path(text)
    if path.suffix == ".vdb":
        return parse_vdbench(_read_file(path), text)
    if path.suffix == ".icf":
        return parse_icf(_read_file(path), text)
    plain = parse_plain_load(text)
    return [plain] if plain else []


def require_single_load(loads: Sequence[PlainLoad], where: str) -> PlainLoad:
    """Return the only load. Raises UsageError if there are several."""
    if len(loads) != 1:
        known = ", ".join(load.name for load in loads[:_MAX_JOBS])
        raise UsageError(f"{where}: it has {len(loads)} loads ({known}), but one is needed: keep one")
    return loads[0]


def make_pattern(load: PlainLoad, where: str) -> LoadPattern:
    """Return the load as a workload for a sweep, which has to write."""
    if load.rdpct == 100:
        raise UsageError(f"{where}: it only reads, but a sweep needs writes; scenario mixed-io accepts it")
    kind = "write" if load.rdpct == 0 else "rw"
    options = {"rw": f"rand{kind}" if load.seekpct else kind, "bs": str(load.xfersize)}
    if load.rdpct:
        options["rwmixread"] = str(load.rdpct)
    if 0 < load.seekpct < 100:
        options["percentage_random"] = str(load.seekpct)
    if load.threads:
        options["iodepth"] = str(load.threads)
    description = f"{load.rdpct} % reads, {load.seekpct} % random, {load.xfersize} bytes"
    return _build_pattern(load.name, description, [options], where)


def parse_workload(raw: bytes, where: str) -> LoadPattern:
    """Parse a workload in TOML: a description, and a table [[job]] with options for each job."""
    fields = Fields(parse_toml(raw, where), where)
    unknown = set(fields.table) - {"description", "job"}
    if unknown:
        raise fields.make_error(f"{min(unknown)!r:.60} is unknown; available: description and [[job]]")
    tables = [
        _parse_job_options(table, f"{where}: job {at}") for at, table in enumerate(fields.read_list("job"), 1)
    ]
    name = Path(where).stem
    return _build_pattern(name, fields.read_optional("description", fields.read_text) or name, tables, where)


def _parse_job_options(table: Any, where: str) -> dict[str, str]:  # noqa: ANN401
    """Return the options of one job as fio would read them."""
    if not isinstance(table, dict):
        raise BadInput(f"{where} is not a table of options")
    words = {}
    for key, value in table.items():
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            value = {True: "1", False: "0"}.get(value) if isinstance(value, bool) else None
        if value is None:
            raise BadInput(f"{where}: {key!r:.60} is neither text nor a number")
        words[key] = str(value)
    return words


def parse_job_file(raw: bytes, where: str) -> LoadPattern:
    """Parse a fio job file: [global] applies to the jobs after it, and each other section is a job."""
    common: dict[str, str] = {}
    jobs: list[dict[str, str]] = []
    section: dict[str, str] | None = None
    for number, line in enumerate(split_lines(decode_text(raw)), 1):
        words = line.partition(";")[0].partition("#")[0].strip()
        if not words:
            continue
        if words.startswith("[") and words.endswith("]"):
            section = common if words == "[global]" else dict(common)
            if section is not common:
                jobs.append(section)
            continue
        if words.startswith("include "):
            raise BadInput(f"{where}: line {number}: {words!r:.60}: copy its contents into this file")
        if section is None:
            raise BadInput(f"{where}: line {number}: {words!r:.60} is in no section")
        key, _, value = words.partition("=")
        section[key.strip()] = value.strip()
    return _build_pattern(Path(where).stem, f"from {where}", jobs, where)


def _require_same_range(tables: Sequence[Mapping[str, str]], where: str) -> None:
    """Raise BadInput if jobs write to different parts or files: the sweep gives all jobs the same range."""
    for table in tables:
        for key in ("offset", "offset_increment"):
            if table.get(key, "0").strip("0%") != "":
                raise BadInput(
                    f"{where}: {key}={table[key]!r:.60} limits a job to a part of the drive, but each job "
                    "gets all bytes in use: describe hot and cold parts by random_distribution=zoned:..."
                )
    for key in ("filename", "size", "filesize"):
        values = list(dict.fromkeys(table.get(key, "") for table in tables))
        if len(values) > 1:
            first, second = (value or "none" for value in values[:2])
            raise BadInput(
                f"{where}: jobs differ in {key} ({first:.60}, {second:.60}), but each job gets all bytes "
                "in use"
            )


def _build_pattern(
    name: str, description: str, tables: Sequence[Mapping[str, str]], where: str
) -> LoadPattern:
    if not 1 <= len(tables) <= _MAX_JOBS:
        raise BadInput(f"{where}: it has {len(tables)} jobs, not 1 to {_MAX_JOBS}")
    _require_same_range(tables, where)
    jobs, left_out = [], set()
    for table in tables:
        options = dict(_DEFAULTS)
        for key, value in table.items():
            option = check_option(key, value, where)
            if option is None:
                left_out.add(key)
            else:
                options[option[0]] = option[1]
        if "rw" not in options:
            raise BadInput(f"{where}: a job has no rw, which is required")
        jobs.append(LoadJob(options))
        if not 1 <= jobs[-1].thread_count <= _MAX_JOBS or not 0 < jobs[-1].write_share <= 1:
            raise BadInput(f"{where}: a job needs 1 to {_MAX_JOBS} threads, and must write")
    return LoadPattern(name, description, tuple(jobs), tuple(sorted(left_out)))
