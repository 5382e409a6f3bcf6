"""What recordings offer to complete: names of their phases, and fields of their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

from opwatch.errors import OpwatchError
from opwatch.recording.reading.phases import list_phases
from opwatch.recording.reading.reader import RecordedRun
from opwatch.samples.observation import Observation
from opwatch.samples.presenter import RunPresenter
from opwatch.sinks.jsonl import build_observation_document


def _list_paths(tree: Mapping[str, object], before: str = "") -> Iterator[str]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _list_paths(value, f"{before}{name}.")
        else:
            yield before + name


def _list_fields(run: RecordedRun) -> list[str]:
    """Return the fields of the first interval."""
    presenter = RunPresenter()
    for entry in run.iter_entries():
        for news in presenter.process_entry(entry):
            if isinstance(news, Observation):
                return list(_list_paths(build_observation_document(news)))
    return []


def _list_phases(run: RecordedRun) -> list[str]:
    return [phase.name for phase in list_phases(run)]


OFFERS: Mapping[str, Callable[[RecordedRun], list[str]]] = {"phases": _list_phases, "fields": _list_fields}


def list_recorded(offer: str, files: Iterable[Path]) -> list[str]:
    """Return the words of an offer in all recordings, without the recordings that cannot be read."""
    words: dict[str, None] = {}
    for path in files:
        try:
            with closing(RecordedRun(path)) as run:
                words |= dict.fromkeys(OFFERS[offer](run))
        except (OpwatchError, OSError):
            continue
    return list(words)
