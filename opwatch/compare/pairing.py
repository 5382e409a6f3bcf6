"""Choose the disks of the runs to compare with each other. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opwatch.compare.sampling import DiskCourse, SampledRun
from opwatch.errors import NotEnoughData, UsageError

_SEPARATOR = "/"


@dataclass(frozen=True, slots=True)
class DiskPairs:
    """Rows with one disk of each run; `notes` list the omitted disks."""

    rows: tuple[tuple[DiskCourse, ...], ...]
    notes: tuple[str, ...] = ()


def _identity(run: SampledRun, course: DiskCourse) -> tuple[str, str] | None:
    """Return model and serial number, or None if the disk's drive was not sampled."""
    for look in run.looks.get(course.drive or "", ()):
        if look.drive.serial:
            return look.drive.model or "", look.drive.serial
    return None


def _busy(run: SampledRun) -> dict[str, DiskCourse]:
    return {name: course for name, course in run.disks.items() if course.ops}


def _names(run: SampledRun) -> str:
    return ", ".join(_busy(run)) or "none with requests"


def _asked(runs: Sequence[SampledRun], words: str, files: Sequence[str]) -> tuple[DiskCourse, ...]:
    """Return the disks for a --dev argument: one name for all runs, or one name per run in order."""
    names = words.split(_SEPARATOR)
    names = names * len(runs) if len(names) == 1 else names
    if len(names) != len(runs):
        raise UsageError(
            f"--dev {words} names {len(names)} disks of {len(runs)} recordings: one name for all, or one of "
            f"each, as in {_SEPARATOR.join(['sda', *['sdb'] * (len(runs) - 1)])}"
        )
    row = []
    for run, name, file in zip(runs, names, files, strict=True):
        if name not in run.disks:
            raise UsageError(f"{file} has no disk {name!r}: it has {', '.join(run.disks) or 'none'}")
        row.append(run.disks[name])
    return tuple(row)


def paired(runs: Sequence[SampledRun], asked: Sequence[str], files: Sequence[str]) -> DiskPairs:
    """Return rows of the requested disks; by default the only disk of each run, or disks matched by identity,
    then by name."""
    if asked:
        return DiskPairs(tuple(_asked(runs, words, files) for words in asked))
    for run, file in zip(runs, files, strict=True):
        if not _busy(run):
            raise NotEnoughData(f"{file}: there were no requests")
    if all(len(_busy(run)) == 1 for run in runs):
        return DiskPairs((tuple(next(iter(_busy(run).values())) for run in runs),))
    rows = [row for course in _busy(runs[0]).values() if (row := _partners(runs, course))]
    if not rows:
        there = "; ".join(f"{file} has {_names(run)}" for file, run in zip(files, runs, strict=True))
        example = _SEPARATOR.join(next(iter(_busy(run))) for run in runs)
        raise UsageError(f"the recordings have no disk in common: {there}. Say which: --dev {example}")
    return DiskPairs(tuple(rows), tuple(_left_out(runs, rows, files)))


def _partners(runs: Sequence[SampledRun], course: DiskCourse) -> tuple[DiskCourse, ...] | None:
    """Return a disk of the first run with its counterparts in the others, or None if a run has no
    counterpart."""
    identity, row = _identity(runs[0], course), [course]
    for run in runs[1:]:
        same = [other for other in _busy(run).values() if identity and _identity(run, other) == identity]
        # The same name may now belong to another drive; a name is no match if both drives report their
        # identity.
        named = _busy(run).get(course.device)
        if not same and named and not (identity and _identity(run, named)):
            same = [named]
        if not same:
            return None
        row.append(same[0])
    return tuple(row)


def _left_out(
    runs: Sequence[SampledRun], rows: Sequence[tuple[DiskCourse, ...]], files: Sequence[str]
) -> list[str]:
    notes = []
    for place, (run, file) in enumerate(zip(runs, files, strict=True)):
        alone = [name for name, course in _busy(run).items() if all(course is not row[place] for row in rows)]
        if alone:
            notes.append(f"{', '.join(alone)} of {file}: not in the other recordings, left out")
    return notes
