"""A recorded history whose requests have owners, as a model with few owners. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from opwatch.errors import NotEnoughData
from opwatch.ftl.recorded import SECTOR
from opwatch.sweep.history.advice import RecordedSystem
from opwatch.sweep.history.system import build_system
from opwatch.trim.history.requests import RecordedRequests, is_freeing
from opwatch.trim.history.saved import DiskFreeSpace

# Owners by name. All others are one, because each owner doubles the number of replays.
MAX_NAMED = 7
REST = "rest"


@dataclass(frozen=True, slots=True)
class OwnedHistory:
    """A recorded disk whose model's changes have owners, numbered from 1 in the order of `names`.

    `host_bytes` is what each owner wrote during the history.
    """

    system: RecordedSystem
    names: tuple[str, ...]
    host_bytes: tuple[int, ...]


def build_owned_history(
    name: str, recorded: RecordedRequests, free: DiskFreeSpace | None, names: Mapping[int, str]
) -> OwnedHistory:
    """Return the model of a history with its largest writers as owners, and the rest as one.

    `names` are the owners' names by their place. Raise NotEnoughData if the history has no owners, or if no
    model of it can be built.
    """
    if len(recorded.owners) != len(recorded.kinds):
        raise NotEnoughData(
            f"{name}: the history has no owners of requests, because an earlier release recorded it: record "
            "again with opwatch trim record"
        )
    written: Counter[int] = Counter()
    for owner, length, kind in zip(recorded.owners, recorded.lengths, recorded.kinds, strict=True):
        written[owner] += 0 if is_freeing(kind) else length * SECTOR
    known = [(owner, count) for owner, count in written.most_common() if owner in names and count]
    named = [owner for owner, _ in known[:MAX_NAMED]]
    number_of = {owner: number for number, owner in enumerate(named, 1)}
    host_bytes = [written[owner] for owner in named]
    rest_bytes = sum(written.values()) - sum(host_bytes)
    chosen = [names[owner] for owner in named]
    if len(number_of) < len(written):
        chosen.append(REST)
        host_bytes.append(rest_bytes)
    numbers = bytes(number_of.get(owner, len(named) + 1) for owner in recorded.owners)
    return OwnedHistory(build_system(name, recorded, free, numbers), tuple(chosen), tuple(host_bytes))
