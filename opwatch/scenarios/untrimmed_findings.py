"""Compare the results on an untrimmed drive with the author's results. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from opwatch import units
from opwatch.ftl.profiles import Profile
from opwatch.scenarios.claims import Judgement, MeasuredValue, ScenarioEvidence
from opwatch.scenarios.scenario import Scenario
from opwatch.scenarios.untrimmed import UntrimmedRun, UntrimmedSetup

# A drive that moves more than this share of its free flash while idle does not match the prediction. A run
# that wrote this much more than predicted has no cliff.
NEAR_RATIO = 0.02
# A drive that keeps no more than this share of its speed has collapsed.
COLLAPSED_RATIO = 0.5
# A shorter round on a device mostly measures a buffer and other processes.
_MIN_ROUND_S = 1.0


def make_findings(
    scenario: Scenario, runs: Sequence[UntrimmedRun], setup: UntrimmedSetup, profile: Profile
) -> Judgement:
    """Return the author's results and the prediction, each with a verdict."""
    evidence, cache = _make_evidence(runs), runs[0].foretold.cache_bytes
    published, cliff = setup.published_cliff_bytes, runs[0].cliff_bytes
    ratio = [] if cliff is None else [MeasuredValue(cliff / max(published, 1))]
    texts = {
        "published cliff": _format_gb(published),
        "hidden flash": _format_gb(profile.drive["physical_bytes"] - profile.drive["user_bytes"]),
        "cache": _format_gb(cache),
        "source": profile.source,
    }
    evidence = replace(
        evidence,
        amounts={**evidence.amounts, "cliff / published": ratio},
        texts={**evidence.texts, **texts},
        flags={**evidence.flags, "cache": cache is not None},
    )
    return scenario.judge(evidence, "model")


def make_device_findings(scenario: Scenario, runs: Sequence[UntrimmedRun], *, is_timed: bool) -> Judgement:
    """Return the verdicts for runs on a device.

    The author's account of free blocks is omitted, because it applies to another drive.
    """
    evidence, shortest = _make_evidence(runs), min(one.seconds for run in runs for one in run.rounds)
    flags = {
        "no timing": not is_timed and runs[0].cliff_bytes is not None,
        "short rounds": is_timed and shortest < _MIN_ROUND_S,
    }
    evidence = replace(
        evidence,
        texts={**evidence.texts, "shortest round": f"{shortest:.2g}"},
        flags={**evidence.flags, **flags},
    )
    return scenario.judge(evidence, "drive")


def _compute_kept(run: UntrimmedRun) -> float | None:
    """Return the speed at the end, relative to the first round; None if that one has the cliff already."""
    return run.last_rate / run.fresh_rate if run.fresh_rate else None


def _make_evidence(runs: Sequence[UntrimmedRun]) -> ScenarioEvidence:
    ratios = [run.error_ratio for run in runs]
    kept, other = _compute_kept(runs[0]), _compute_kept(runs[1])
    has_cache = runs[0].foretold.cache_bytes is not None
    is_by_cache = has_cache and runs[0].cliff_bytes is None and kept is not None and kept <= COLLAPSED_RATIO
    has_other_fallen = other is not None and other <= COLLAPSED_RATIO
    idle = max(run.idle_bytes / run.foretold.room_bytes for run in runs)
    without = [
        run.name
        for run in runs
        if run.cliff_bytes is None and run.written_bytes > (1 + NEAR_RATIO) * run.foretold.cliff_bytes
    ]
    texts = {
        "moved while idle": f"{100 * idle:.0f}",
        "run without a cliff": next(iter(without), ""),
        "cache": "",
        "source": "",
        "kept in A": "" if kept is None else f"{kept:.2f}",
        "kept in B": "" if other is None else f"{other:.2f}",
    }
    for letter, run in zip("AB", runs, strict=False):
        texts[f"written in {letter}"] = _format_gb(run.written_bytes)
        texts[f"predicted in {letter}"] = _format_gb(run.foretold.cliff_bytes)
        texts[f"cliff in {letter}"] = _format_gb(run.cliff_bytes)
    flags = {
        "no cliff in A": runs[0].cliff_bytes is None and not is_by_cache,
        "A fell by its cache": is_by_cache,
        "cliff in the first round": kept is None,
        "cliff in B": runs[1].cliff_bytes is not None,
        "B fell by its cache": has_cache and has_other_fallen,
        "B fell": has_other_fallen,
        "moved while idle": idle > NEAR_RATIO,
        "cliff did not come": bool(without),
    }
    return ScenarioEvidence(
        amounts={
            "kept speed": [MeasuredValue(kept)],
            "cliff / predicted": [MeasuredValue(1 + ratio) for ratio in ratios if ratio is not None],
        },
        texts=texts,
        flags=flags,
    )


def _format_gb(n_bytes: float | None) -> str:
    return "" if n_bytes is None else units.format_capacity(round(n_bytes))
