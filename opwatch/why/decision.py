"""Decide which causes the evidence proves, which cannot be told apart, and what remains unknown. Pure.

A wrong cause is worse than none: a candidate is named only if it was measured directly, or coincides with the
slow intervals beyond chance. Candidates with similar scores for the same intervals are named together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, compress

from opwatch import units
from opwatch.compare.spacing import find_spacing
from opwatch.why.candidate import CHANCE, Candidate, CauseName
from opwatch.why.causes import list_rules
from opwatch.why.collection import NO_EXTRA_NAND
from opwatch.why.layers import DEVICE_LAYERS, StackLayer
from opwatch.why.slowness import SAME_RATIO, Slowness, find_peaks
from opwatch.why.statistics.axis import Axis, find_axis
from opwatch.why.statistics.matching import Match, match_witnesses
from opwatch.why.waiting_owners import name_waiting_owners
from opwatch.why.waits import BEFORE_THE_DEVICE, UNKNOWN_GROUPS

# A candidate above this probability is not even a rival.
_RIVAL_CHANCE = 0.05
# Scores within this ratio are too similar to prefer one.
RIVAL_RATIO = 2.0
MIN_SCORE = 0.25
# A smaller share of the excess is part of the unknown rest.
MIN_SHARE = 0.1
_OVERLAP = 0.5
_TOLERANCE = 1
_MIN_PERIODIC = 6
# A period is sought in the episodes and in their peaks.
_PERIOD_TESTS = 2
# A regular witness of regular episodes: its least score, and the share of the episodes with it.
_SAME_PERIOD, _MOSTLY = 0.35, 0.8
_NO_DRIVE_TIME = (
    "the drive and the path to it cannot be told apart: the drive's own latency (log D0h) is unknown"
)
_NO_OWNERS = "requests were not counted by owner: record with --by cgroup (or process)"
# Causes that are a load; without owners, it may be a neighbour's.
_OF_A_LOAD = {CauseName.SATURATION, CauseName.LARGE_REQUESTS, CauseName.READ_BEHIND_WRITE, CauseName.FLUSHES}
# Layers whose time may be the drive's own.
_DRIVE_SIDE = (StackLayer.QUEUE, StackLayer.DEVICE, StackLayer.DRIVE)
_DEVICE_SIDE = (*DEVICE_LAYERS, StackLayer.QUEUE)


@dataclass(frozen=True, slots=True)
class JudgedCandidate:
    """A candidate with the result of its test. `score` is 0 to 1; `p` is None if it was measured directly;
    `refused` is the reason why it is not named, None if it may be."""

    candidate: Candidate
    score: float
    p: float | None
    episodes: int
    matched: int
    alone: int
    refused: str | None

    @property
    def is_rival(self) -> bool:
        """Return whether it explains the slow intervals well enough to cast doubt on another cause."""
        if self.candidate.excluded or self.score < MIN_SCORE:
            return False
        return self.p is None or self.p <= _RIVAL_CHANCE


@dataclass(frozen=True, slots=True)
class NamedCause:
    """A cause, or several that cannot be told apart, with its share of the excess time."""

    found: tuple[JudgedCandidate, ...]
    share: float
    layer: StackLayer

    @property
    def is_certain(self) -> bool:
        return len(self.found) == 1


@dataclass(frozen=True, slots=True)
class CauseVerdict:
    """The causes of an operation's slowness, largest share first. With `unknown`, the shares add up to 1.

    `needs` say what would decide the unknown rest; `tested` has every candidate with its score.
    """

    causes: tuple[NamedCause, ...]
    unknown: float
    needs: tuple[str, ...]
    tested: tuple[JudgedCandidate, ...]


def decide_causes(slowness: Slowness) -> CauseVerdict:
    """Return the causes of an operation's slow intervals."""
    total = math.fsum(slowness.total_excess.values())
    causes: list[NamedCause] = []
    tested: list[JudgedCandidate] = []
    needs: list[str] = []
    groups: dict[StackLayer | None, list[int]] = {}
    for number in range(len(slowness.episodes)):
        groups.setdefault(slowness.find_layer(number), []).append(number)
    for layer, numbers in groups.items():
        part = select_episodes(slowness, numbers)
        if math.fsum(part.total_excess.values()) < MIN_SHARE * total:
            continue
        if layer is None:
            needs.append("no layer has half of the excess time in some episodes")
            continue
        found = judge_candidates(part, layer)
        tested += found
        named = _name_causes(part, layer, found, total)
        causes += named
        if not named or sum(cause.share for cause in named) * total < 0.5 * math.fsum(
            part.total_excess.values()
        ):
            needs += _list_needs(part, layer, found)
    causes = _join_layers(causes)
    names = {one.candidate.name for cause in causes for one in cause.found}
    if slowness.disk.owners is None and names & _OF_A_LOAD:
        needs.append(_NO_OWNERS)
    unknown = 1.0 - math.fsum(cause.share for cause in causes)
    return CauseVerdict(tuple(causes), unknown, tuple(dict.fromkeys(needs)), tuple(tested))


def _join_layers(causes: Sequence[NamedCause]) -> list[NamedCause]:
    """Return each cause once, the largest share first. A cause that acts in several layers has the sum of its
    shares, and the evidence of the layer with the largest one."""
    joined: dict[tuple[CauseName, ...], NamedCause] = {}
    for cause in sorted(causes, key=lambda cause: -cause.share):
        names = tuple(sorted(one.candidate.name for one in cause.found))
        first = joined.get(names)
        joined[names] = replace(first, share=first.share + cause.share) if first else cause
    return sorted(joined.values(), key=lambda cause: -cause.share)


def select_episodes(slowness: Slowness, numbers: Sequence[int]) -> Slowness:
    """Return the slowness with these episodes only."""
    slow = [False] * len(slowness.slow)
    for number in numbers:
        for at in slowness.episodes[number].places:
            slow[at] = slowness.slow[at]
    return replace(
        slowness,
        slow=slow,
        left_out=[was and not still for was, still in zip(slowness.slow, slow, strict=True)],
        episodes=[slowness.episodes[number] for number in numbers],
        excess=[slowness.excess[number] for number in numbers],
    )


def judge_candidates(slowness: Slowness, layer: StackLayer) -> list[JudgedCandidate]:
    """Return every candidate of a layer with its score, best first."""
    found = [
        name_waiting_owners(one, slowness, layer)
        for rule in list_rules(slowness, layer)
        if (one := rule(slowness))
    ]
    # Slow intervals of other layers say nothing about a candidate of this one, neither for nor against it.
    kept = [not out for out in slowness.left_out or [False] * len(slowness.slow)]
    slow, matches = list(compress(slowness.slow, kept)), dict[str, Match]()
    # Excluded candidates cannot be named, so they do not make the test of the others stricter.
    for is_excluded in (False, True):
        flags = {
            one.name.value: list(compress(one.flags, kept))
            for one in found
            if not one.is_direct and (one.excluded is not None) is is_excluded
        }
        matches |= match_witnesses(slow, flags, _TOLERANCE)
    tested = [_judge_candidate(slowness, one, matches.get(one.name.value)) for one in found]
    if layer in _DRIVE_SIDE and not any(one.refused is None for one in tested):
        periodic = _find_periodic(slowness)
        if periodic:
            periodic = _refuse_without_nand(periodic, found)
            tested = [_support_by_period(one, periodic) for one in tested]
        if periodic and not any(one.refused is None for one in tested):
            tested.append(periodic)
    return sorted(tested, key=lambda one: -one.score)


def _refuse_without_nand(periodic: JudgedCandidate, found: Iterable[Candidate]) -> JudgedCandidate:
    """Return a period in bytes as refused if the drive counts its NAND bytes, and collected nothing."""
    is_collection = periodic.candidate.name is CauseName.GARBAGE_COLLECTION and periodic.refused is None
    if is_collection and any(one.excluded == NO_EXTRA_NAND for one in found):
        return replace(periodic, refused=NO_EXTRA_NAND)
    return periodic


def _support_by_period(one: JudgedCandidate, periodic: JudgedCandidate) -> JudgedCandidate:
    """Return garbage collection as proved if its NAND bursts come with nearly all of the regular episodes.

    Shifting the bursts shows nothing if both are regular; but that two works of the drive have the same
    period is unlikely.
    """
    is_same = (
        one.candidate.name is CauseName.GARBAGE_COLLECTION
        and one.candidate.excluded is None
        and one.score >= _SAME_PERIOD
        and one.matched >= _MOSTLY * max(one.episodes, _MIN_PERIODIC)
        and periodic.p is not None
        and periodic.p <= CHANCE
        and periodic.candidate.name is CauseName.GARBAGE_COLLECTION
    )
    if not is_same or one.refused is None:
        return one
    candidate = replace(one.candidate, evidence=f"{one.candidate.evidence}; {periodic.candidate.evidence}")
    return replace(one, candidate=candidate, p=periodic.p, refused=None)


def _judge_candidate(slowness: Slowness, one: Candidate, match: Match | None) -> JudgedCandidate:
    episodes = len(slowness.episodes)
    if match is None:
        covered = _count_covered(slowness, one.flags)
        score = covered / max(sum(slowness.slow), 1)
        refused = one.excluded or ("it acted in few slow intervals" if score < MIN_SCORE else None)
        return JudgedCandidate(
            one, score, p=None, episodes=episodes, matched=episodes, alone=0, refused=refused
        )
    near = _widen(one.flags)
    matched = sum(
        any(slowness.slow[at] and near[at] for at in episode.places) for episode in slowness.episodes
    )
    refused = one.excluded or match.reason
    if refused is None and not match.is_beyond_chance(one.chance):
        refused = "coincidence cannot be excluded"
    elif refused is None and match.score < MIN_SCORE:
        refused = "it acted in few slow intervals, or often without effect"
    return JudgedCandidate(
        one,
        match.score,
        p=match.adjusted_p,
        # Here a gap of one interval does not end an episode, as in the rest of the answer.
        episodes=episodes,
        matched=matched,
        alone=match.alone,
        refused=refused,
    )


def list_onsets(slowness: Slowness) -> tuple[list[float], list[float], float]:
    """Return when each episode starts: in seconds, and in bytes written until then; and all bytes written."""
    disk, writes = slowness.disk, slowness.disk.ops.get("write")
    totals = [0.0, *accumulate(writes.bytes if writes else [0.0] * len(disk))]
    begin_ns = disk.begins_ns[0]
    seconds = [(disk.begins_ns[episode.begin] - begin_ns) / 1e9 for episode in slowness.episodes]
    return seconds, [totals[episode.begin] for episode in slowness.episodes], totals[-1]


def _find_periodic(slowness: Slowness) -> JudgedCandidate | None:
    """Return the drive's own work if the episodes, or else their peaks, are regular in time or in bytes
    written; else None."""
    tried = [_test_period(slowness, part) for part in (slowness, find_peaks(slowness))]
    found = [one for one in tried if one]
    return next((one for one in found if one.refused is None), found[0] if found else None)


def _test_period(slowness: Slowness, part: Slowness) -> JudgedCandidate | None:
    """Return the drive's own work if the episodes of a part of the slowness are regular, else None."""
    disk, episodes = part.disk, part.episodes
    writes = disk.ops.get("write")
    grows = writes is not None and part.find_ratio(writes.issued) > SAME_RATIO
    if len(episodes) < _MIN_PERIODIC or grows or disk.seams:
        # Episodes with more writes are those of the load, and parts of a run have only some of the episodes.
        return None
    seconds, onsets, written = list_onsets(part)
    answer = find_axis(seconds, onsets)
    is_time = answer.axis is Axis.SECONDS
    positions, end = (seconds, disk.seconds) if is_time else (onsets, written)
    spacing = find_spacing(positions, 0.0, end, end / len(disk)) if end > 0 else None
    if spacing is None:
        return None
    p = min(_PERIOD_TESTS * spacing.p, 1.0)
    name = CauseName.HOUSEKEEPING if is_time else CauseName.GARBAGE_COLLECTION
    every = (
        f"every {spacing.period:.3g} s, whatever the write rate"
        if is_time
        else f"every {units.format_capacity(round(spacing.period))} written"
    )
    is_unknown = answer.axis is Axis.UNKNOWN
    every += ", at a constant rate" if is_unknown else "" if is_time else ", whatever the rate"
    refused = answer.reason if is_unknown else None
    if refused is None and p > CHANCE:
        refused = "coincidence cannot be excluded"
    check = (
        "no setting of the host stops this; ask the vendor, or move the work to a quiet time"
        if is_time
        else "leave more spare area (opwatch sweep advise), or trim free space (opwatch trim audit)"
    )
    one = Candidate(name, slowness.slow, f"slow {every}", check)
    score = spacing.hits / max(spacing.events, spacing.cycles, 1)
    return JudgedCandidate(
        one, score, p=p, episodes=len(episodes), matched=spacing.hits, alone=0, refused=refused
    )


def _widen(flags: Sequence[bool]) -> list[bool]:
    """Return flags that are also set next to a set flag."""
    last = len(flags) - 1
    return [
        flags[at] or flags[max(at - _TOLERANCE, 0)] or flags[min(at + _TOLERANCE, last)]
        for at in range(len(flags))
    ]


def _count_covered(slowness: Slowness, flags: Sequence[bool]) -> int:
    return sum(slow and flag for slow, flag in zip(slowness.slow, _widen(flags), strict=True))


def _overlap(slowness: Slowness, one: JudgedCandidate, other: JudgedCandidate) -> float:
    """Return the share of the slow intervals with `other` that also have `one`."""
    first, second = _widen(one.candidate.flags), _widen(other.candidate.flags)
    both = sum(slow and a and b for slow, a, b in zip(slowness.slow, first, second, strict=True))
    return both / max(_count_covered(slowness, other.candidate.flags), 1)


def _drop_explained(slowness: Slowness, found: Iterable[JudgedCandidate]) -> list[JudgedCandidate]:
    """Return the candidates without those that an accepted one explains."""
    rivals = [one for one in found if one.is_rival]
    accepted = [one for one in rivals if one.refused is None]

    def is_explained(one: JudgedCandidate) -> bool:
        return any(
            one.candidate.name in origin.candidate.explains
            and origin is not one
            and one.candidate.name is not origin.candidate.name
            and origin.score * RIVAL_RATIO >= one.score
            and _overlap(slowness, origin, one) >= _OVERLAP
            for origin in accepted
        )

    return [one for one in rivals if not is_explained(one)]


def _name_causes(
    slowness: Slowness, layer: StackLayer, found: Sequence[JudgedCandidate], total: float
) -> list[NamedCause]:
    """Return the causes of the episodes of a layer. Each episode belongs to its best cause."""
    rivals = _drop_explained(slowness, found)
    groups: list[tuple[JudgedCandidate, ...]] = []
    for one in rivals:
        if one.refused is not None or any(one in group for group in groups):
            continue
        near = [
            other
            for other in rivals
            if other is not one
            and other.score * RIVAL_RATIO >= one.score
            and _overlap(slowness, one, other) >= _OVERLAP
            and _overlap(slowness, other, one) >= _OVERLAP
        ]
        groups.append((one, *near))
    shares = [0.0] * len(groups)
    for number, episode in enumerate(slowness.episodes):
        for place, group in enumerate(groups):
            flags = _widen(group[0].candidate.flags)
            if any(slowness.slow[at] and flags[at] for at in episode.places):
                shares[place] += _sum_layer(slowness, number, layer) / total
                break
    return [
        NamedCause(group, share, layer)
        for group, share in zip(groups, shares, strict=True)
        if share >= MIN_SHARE
    ]


def _sum_layer(slowness: Slowness, number: int, layer: StackLayer) -> float:
    """Return the excess of an episode that a cause of this layer explains."""
    parts = slowness.excess[number]
    # Requests queue behind a slow device.
    layers = (
        _DEVICE_SIDE
        if layer is StackLayer.QUEUE
        else (layer, StackLayer.QUEUE)
        if layer in DEVICE_LAYERS
        else (layer,)
    )
    return min(max(math.fsum(parts.get(one, 0.0) for one in layers), 0.0), math.fsum(parts.values()))


def _list_needs(slowness: Slowness, layer: StackLayer, found: Sequence[JudgedCandidate]) -> list[str]:
    """Return what would decide the cause of the rest."""
    disk, drive = slowness.disk, slowness.drive
    # The same cause can be named in other layers.
    kind = f"{layer.value} episode" if any(slowness.left_out) else "episode"
    where = f" in {kind}s" if any(slowness.left_out) else ""
    needs = []
    if len(slowness.episodes) < 3:
        count = len(slowness.episodes)
        needs.append(f"only {count} {kind}{'s' if count > 1 else ''} (3 needed): record longer")
    if layer in BEFORE_THE_DEVICE:
        needs += [f"{one.candidate.name.value}{where}: {one.refused}" for one in found if one.refused]
    if layer is StackLayer.ADMISSION and not any(
        one.groups is not None for one in disk.list_settings() or ()
    ):
        needs.append(UNKNOWN_GROUPS)
    if layer not in _DEVICE_SIDE:
        return needs
    if disk.owners is None:
        needs.append(_NO_OWNERS)
    if "write" in disk.ops and (drive is None or drive.nand_per_s is None):
        reason = drive.reason if drive and drive.reason else "the drive was not polled"
        needs.append(f"NAND bytes are unknown ({reason}): record with --waf 1s if the drive counts them")
    if drive is None or drive.throttled is None:
        needs.append("thermal throttling is unknown: the drive's log 02h was not recorded")
    needs += [
        f"{one.candidate.name.value}{where}: {one.refused}"
        for one in found
        if one.refused
        and one.score >= MIN_SCORE
        and (one.candidate.is_direct or one.refused != one.candidate.excluded)
    ]
    if layer is StackLayer.DEVICE:
        needs.append(_NO_DRIVE_TIME)
    if layer is StackLayer.DRIVE:
        needs.append("the time is the drive's own, and nothing that it reports coincides with it")
    return needs
