"""Options of a plan and of a sweep on simulated flash, and their conversion into requests."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from opwatch.errors import UsageError
from opwatch.foreign import read_bytes, starts_with
from opwatch.ftl import profiles
from opwatch.journal.file import FOLDER, MAX_BYTES
from opwatch.journal.state import SweepState, parse_journal
from opwatch.load.workload import find_workload
from opwatch.recording.reading.history import read_requests
from opwatch.recording.reading.opening import MAGIC
from opwatch.sinks.sweep.levels import make_result
from opwatch.sweep.fitted import PREFIX, fit_profile
from opwatch.sweep.levels import LevelScale, OpBase, OpLevel, OpShare, parse_levels
from opwatch.sweep.methods import find_method
from opwatch.sweep.model_jobs import make_host_jobs
from opwatch.sweep.model_load import HistoryLoad, ModelLoad, PatternLoad, VirtualLoad
from opwatch.sweep.plan import SweepPace
from opwatch.sweep.purges import PURGES
from opwatch.sweep.replay import prepare_requests
from opwatch.sweep.virtual import (
    ModelDrive,
    compute_flash_bytes,
    find_mapping_unit,
    find_used_bytes,
    make_load_model,
    make_model,
)
from opwatch.tools.arguments import Once, count_between, parse_byte_size, percentage_between
from opwatch.tools.runs.history_drive import require_swept_drive
from opwatch.trim.history.sectormap import SectorState

DEFAULT_LEVELS = "0,7,10,20,28,50%"
DEFAULT_METHOD, DEFAULT_WORKLOAD = "window", "random-4k"
# Defaults of the options that define levels.
LEVEL_DEFAULTS = {
    "op": None,
    "share": OpShare.USED.value,
    "fill": SweepPace().fill_passes,
    "round": SweepPace().round_ratio,
    "method": DEFAULT_METHOD,
    "sprandom": False,
    "workload": None,
}
# Rounds of a level with a skewed load, whose cold data take many drive writes to turn over.
_SKEWED_ROUNDS = 1000
MODEL_OPTIONS = ("base", "bs", "depth", "reads", "seed")


@dataclass(frozen=True, slots=True)
class VirtualSweep:
    """A requested sweep on simulated flash. `profile` describes the drive at its full size."""

    profile: profiles.Profile
    model: ModelDrive
    levels: tuple[OpLevel, ...]
    load: ModelLoad
    pace: SweepPace

    @property
    def endurance_bytes(self) -> int | None:
        """Return the bytes that the flash endures in total, by the erase cycles of the profile, or None."""
        cycles = self.profile.drive.get("endurance_cycles")
        return cycles * compute_flash_bytes(self.model) if cycles else None


def add_level_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the levels and their duration."""
    parser.add_argument(
        "--op",
        metavar="LEVELS",
        help=f"the levels: percentages (0,7,28%%), or sizes in use ({DEFAULT_LEVELS.replace('%', '%%')})",
    )
    parser.add_argument(
        "--share",
        choices=[share.value for share in OpShare],
        default=OpShare.USED.value,
        help="a percentage is a share of the used part (the default) or of the whole",
    )
    pace = SweepPace()
    parser.add_argument(
        "--fill",
        metavar="N",
        type=count_between(1, 10),
        default=pace.fill_passes,
        help=f"fill the used part this many times before the rounds ({pace.fill_passes})",
    )
    parser.add_argument(
        "--round",
        metavar="P%",
        type=percentage_between(1, 100),
        default=pace.round_ratio,
        help="bytes of a round, as a share of the used part (10%%)",
    )
    parser.add_argument(
        "--rounds",
        metavar="N",
        type=count_between(1, 1440),
        help=f"give up after this many rounds of a level ({pace.most_rounds}), or of a test (SNIA's number)",
    )


def add_load_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the method of setting a level, and the workload."""
    parser.add_argument(
        "--method",
        default=DEFAULT_METHOD,
        metavar="M",
        help="how a level is set (window; see opwatch sweep list)",
    )
    parser.add_argument(
        "--purge",
        metavar="WAY",
        help=f"how the drive is emptied before each level: {', '.join(way.name for way in PURGES)} (discard)",
    )
    parser.add_argument(
        "--sprandom",
        action="store_true",
        help="fill in one pass that leaves the drive as after long random writes (fio 3.41 or later)",
    )
    parser.add_argument(
        "--workload",
        metavar="W",
        help="the workload: a name (random-4k, zipf, rndwr, 4k-100-random or rdpct=0,xfersize=8k), a file "
        "(.toml, .fio, .vdb or .icf) or, with a model, a history of trim record",
    )


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the simulated drive and the workload. No option has a default, because all are refused with a real
    drive."""

    known = ", ".join(profiles.list_profiles())
    parser.add_argument(
        "--virtual",
        action=Once,
        metavar="PROFILE",
        help=f"simulate a drive, in virtual time: {known}, a .toml file, or {PREFIX}SWEEP, a drive that a "
        "sweep has measured",
    )
    parser.add_argument(
        "--base",
        choices=[base.value for base in OpBase],
        help="levels are relative to the visible size (the default) or to all of the drive's flash",
    )
    load = VirtualLoad()
    parser.add_argument(
        "--bs",
        metavar="SIZE",
        type=parse_byte_size,
        help="bytes per write (4K, or the mapping unit of the simulated drive)",
    )
    parser.add_argument(
        "--depth",
        metavar="N",
        type=count_between(1, 65536),
        help=f"outstanding I/Os ({load.queue_depth})",
    )
    parser.add_argument(
        "--reads",
        metavar="P%",
        type=percentage_between(0, 99),
        help="the share of I/Os that read (0%%)",
    )
    parser.add_argument(
        "--seed", metavar="N", type=count_between(1, 1 << 32), help="seed of the random offsets"
    )


def make_pace(args: argparse.Namespace) -> SweepPace:
    if args.sprandom and args.fill != SweepPace().fill_passes:
        raise UsageError("--fill does not work with --sprandom, which fills in one pass")
    most = args.rounds or SweepPace().most_rounds
    if most < SweepPace().least_rounds:
        raise UsageError(f"--rounds {most}: a verdict on a level needs at least {SweepPace().least_rounds}")
    return SweepPace(fill_passes=args.fill, round_ratio=args.round, most_rounds=most, sprandom=args.sprandom)


def refuse_inapplicable(args: argparse.Namespace, names: Sequence[str], only_with: str) -> None:
    """Raise UsageError for options that do not apply here."""
    given = [name for name in names if getattr(args, name) not in (None, False, [])]
    if given:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(f"{options}: only with {only_with}")


def load_profile(text: str) -> profiles.Profile:
    """Return the drive profile of a name, a file, or a sweep that measured a real drive."""
    if not text.startswith(PREFIX):
        return profiles.load_profile(text)
    state = _read_measured(text)
    return fit_profile(make_result(state, state.list_outcomes()), text.removeprefix(PREFIX))


def _read_measured(text: str) -> SweepState:
    """Return the sweep that `--virtual fitted:SWEEP` names."""
    name = text.removeprefix(PREFIX)
    path = Path(name) if "/" in name else FOLDER / f"{name}.journal"
    try:
        state = parse_journal(read_bytes(path, MAX_BYTES), str(path))
    except OSError as error:
        raise UsageError(
            f"--virtual {text}: {path}: {error.strerror}; give the name of a sweep (opwatch sweep list) or "
            "the path of its journal"
        ) from error
    if state.request.test:
        raise UsageError(f"--virtual {text}: this is an SNIA test, which has no levels to fit a drive to")
    return state


def make_virtual_sweep(args: argparse.Namespace) -> VirtualSweep:
    """Return the sweep requested by `--virtual`. Raise UsageError if impossible."""
    if find_method(args.method).name != DEFAULT_METHOD:
        raise UsageError(f"--method {args.method}: on a simulated drive only {DEFAULT_METHOD} works")
    profile = load_profile(args.virtual)
    unit = find_mapping_unit(profile)
    load = _make_load(args, unit)
    if isinstance(load, VirtualLoad):
        model = make_model(profile, load.io_bytes)
    else:
        model = make_load_model(profile, load)
    flash = compute_flash_bytes(model)
    visible = profile.drive["user_bytes"]
    base = OpBase(args.base or OpBase.VISIBLE)
    scale = LevelScale(flash if base is OpBase.FLASH else visible, OpShare(args.share), base, unit)
    levels = parse_levels(args.op or DEFAULT_LEVELS, scale, flash)
    for level in levels:
        # A window rounded to the model's unit must not exceed the visible size.
        if level.usable_bytes > visible + unit:
            raise UsageError(
                f"--op {level.label} uses {level.usable_bytes} bytes, but the visible size is only {visible}"
            )
    if isinstance(load, PatternLoad):
        for level in levels:
            make_host_jobs(load.pattern, find_used_bytes(model, level))
    pace = make_pace(args)
    if not load.is_uniform and args.rounds is None:
        pace = replace(pace, most_rounds=_SKEWED_ROUNDS)
    return VirtualSweep(profile, model, levels, load, pace)


def _make_load(args: argparse.Namespace, unit_bytes: int) -> ModelLoad:
    usual = VirtualLoad()
    seed = args.seed or usual.seed
    if args.workload is None:
        bs, depth = args.bs or unit_bytes, args.depth or usual.queue_depth
        return VirtualLoad(bs, depth, args.reads or usual.read_ratio, seed)
    refuse_inapplicable(args, ["bs", "reads"], "a load of one size, not with --workload")
    if _is_history(args.workload):
        refuse_inapplicable(args, ["seed"], "random offsets: a history is repeated as it was")
        return _make_history_load(args)
    return PatternLoad(find_workload(args.workload), args.depth, seed)


def _is_history(text: str) -> bool:
    """Return whether a workload names a recording, by its suffix or its first bytes."""
    return text.endswith(".history") or starts_with(Path(text), MAGIC)


def _make_history_load(args: argparse.Namespace) -> HistoryLoad:
    path = Path(args.workload)
    saved, recorded = read_requests(path)
    if args.virtual.startswith(PREFIX):
        measured = _read_measured(args.virtual).disk_identity
        require_swept_drive(saved.drive, measured, str(path), args.virtual)
    # Each repetition begins as the recording ended.
    requests = prepare_requests(recorded, saved.map.collect_extents(SectorState.TRIMMED))
    if not requests.written_bytes:
        raise UsageError(f"{path}: the history has no writes, only trims: record while data are written")
    return HistoryLoad(requests, path.name, args.depth or VirtualLoad().queue_depth)
