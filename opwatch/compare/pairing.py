"""Choose the disks of the runs to compare with each other. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opwatch.compare.sampling import DiskTimeline, SampledRun
from opwatch.errors import NotEnoughData, UsageError

_SEPARATOR = "/"


@dataclass(frozen=True, slots=True)
class DiskPairs:
    """Rows with one disk of each run; `notes` list the omitted disks."""

    rows: tuple[tuple[DiskTimeline, ...], ...]
    notes: tuple[str, ...] = ()


def _find_identity(run: SampledRun, course: DiskTimeline) -> tuple[str, str] | None:
    """Return model and serial number, or None if the disk's drive was not sampled."""
    for look in run.looks.get(course.drive or "", ()):
        if look.drive.serial:
            return look.drive.model or "", look.drive.serial
    return None


def _find_busy_disks(run: SampledRun) -> dict[str, DiskTimeline]:
    return {name: course for name, course in run.disks.items() if course.ops}


def _format_busy_disks(run: SampledRun) -> str:
    return ", ".join(_find_busy_disks(run)) or "none with requests"


def _find_requested_disks(
    runs: Sequence[SampledRun], words: str, files: Sequence[str]
) -> tuple[DiskTimeline, ...]:
    """Return the disks for a --dev argument: one name for all runs, or one name per run in order."""
    names = words.split(_SEPARATOR)
    names = names * len(runs) if len(names) == 1 else names
    if len(names) != len(runs):
        raise UsageError(
            f"--dev {words} names {len(names)} disks for {len(runs)} recordings: give one name for all, or "
            f"one per recording, for example {_SEPARATOR.join(['sda', *['sdb'] * (len(runs) - 1)])}"
        )
    row = []
    for run, name, file in zip(runs, names, files, strict=True):
        if name not in run.disks:
            raise UsageError(f"{file} has no disk {name!r}; its disks: {', '.join(run.disks) or 'none'}")
        row.append(run.disks[name])
    return tuple(row)


def pair_disks(runs: Sequence[SampledRun], asked: Sequence[str], files: Sequence[str]) -> DiskPairs:
    """Return rows of the requested disks; by default the only disk of each run, or disks matched by identity,
    then by name."""
    if asked:
        return DiskPairs(tuple(_find_requested_disks(runs, words, files) for words in asked))
    for run, file in zip(runs, files, strict=True):
        if not _find_busy_disks(run):
            raise NotEnoughData(f"{file} has no requests")
    if all(len(_find_busy_disks(run)) == 1 for run in runs):
        return DiskPairs((tuple(next(iter(_find_busy_disks(run).values())) for run in runs),))
    rows = [row for course in _find_busy_disks(runs[0]).values() if (row := _find_counterparts(runs, course))]
    if not rows:
        there = "; ".join(
            f"{file} has {_format_busy_disks(run)}" for file, run in zip(files, runs, strict=True)
        )
        example = _SEPARATOR.join(next(iter(_find_busy_disks(run))) for run in runs)
        raise UsageError(f"the recordings have no disk in common: {there}. Choose them: --dev {example}")
    return DiskPairs(tuple(rows), tuple(_describe_omitted(runs, rows, files)))


def _find_counterparts(runs: Sequence[SampledRun], course: DiskTimeline) -> tuple[DiskTimeline, ...] | None:
    """Return a disk of the first run with its counterparts in the others, or None if a run has no
    counterpart."""
    identity, row = _find_identity(runs[0], course), [course]
    for run in runs[1:]:
        same = [
            other
            for other in _find_busy_disks(run).values()
            if identity and _find_identity(run, other) == identity
        ]
        # The same name may now belong to another drive; a name is no match if both drives report their
        # identity.
        named = _find_busy_disks(run).get(course.device)
        if not same and named and not (identity and _find_identity(run, named)):
            same = [named]
        if not same:
            return None
        row.append(same[0])
    return tuple(row)


def _describe_omitted(
    runs: Sequence[SampledRun], rows: Sequence[tuple[DiskTimeline, ...]], files: Sequence[str]
) -> list[str]:
    notes = []
    for place, (run, file) in enumerate(zip(runs, files, strict=True)):
        alone = [
            name
            for name, course in _find_busy_disks(run).items()
            if all(course is not row[place] for row in rows)
        ]
        if alone:
            notes.append(f"{', '.join(alone)} of {file}: not in the other recordings, not compared")
    return notes
