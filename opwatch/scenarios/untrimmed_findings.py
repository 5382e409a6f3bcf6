"""Compare the results on an untrimmed drive with the author's results. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from opwatch import units
from opwatch.ftl.profiles import Profile
from opwatch.scenarios.claims import Finding, MeasuredValue, ScenarioEvidence, judge_claims
from opwatch.scenarios.scenario import Scenario
from opwatch.scenarios.untrimmed import UntrimmedRun, UntrimmedSetup

# A drive that moves more than this share of its free flash while idle does not match the prediction. A run
# that wrote this much more than predicted has no cliff.
NEAR_RATIO = 0.02
# A shorter round on a device mostly measures a buffer and other processes.
_MIN_ROUND_S = 1.0


def make_findings(
    scenario: Scenario, runs: Sequence[UntrimmedRun], setup: UntrimmedSetup, profile: Profile
) -> tuple[Finding, ...]:
    """Return the author's results and the prediction, each with a verdict."""
    untrimmed, published = runs[0], setup.published_cliff_bytes
    amounts, texts = _make_amounts(runs), _make_texts(runs)
    if untrimmed.cliff_bytes is not None:
        amounts["cliff / published"] = [MeasuredValue(untrimmed.cliff_bytes / max(published, 1))]
        hidden = _format_gb(profile.drive["physical_bytes"] - profile.drive["user_bytes"])
        texts |= {"cliff": _format_gb(untrimmed.cliff_bytes), "hidden flash": hidden}
        if untrimmed.foretold.cache_bytes is not None:
            texts["cache or flash"] = (
                f"after {texts['cliff']}: besides the unwritten addresses, this drive has {hidden} of flash "
                f"that it never shows. Its cache is full after {_format_gb(untrimmed.foretold.cache_bytes)}; "
                "the author could not see which of the two it was, and this profile's cache is no evidence "
                f"({profile.source})"
            )
    texts["published cliff"] = _format_gb(published)
    return judge_claims(scenario.claims, ScenarioEvidence(amounts, texts=texts), "model")


def make_device_findings(
    scenario: Scenario, runs: Sequence[UntrimmedRun], *, is_timed: bool
) -> tuple[Finding, ...]:
    """Return the verdicts for runs on a device.

    The author's account of free blocks is omitted, because it applies to another drive.
    """
    texts = _make_texts(runs)
    shortest = min(one.seconds for run in runs for one in run.rounds)
    if not is_timed and runs[0].cliff_bytes is not None:
        texts["no speed"] = (
            "this drive answers immediately, however much it moves: create it with --timing real"
        )
    elif is_timed and shortest < _MIN_ROUND_S:
        texts["no speed"] = (
            f"a round of {shortest:.2g} s is too short for a speed: take a larger drive or fewer rounds"
        )
    return judge_claims(scenario.claims, ScenarioEvidence(_make_amounts(runs), texts=texts), "drive")


def _make_amounts(runs: Sequence[UntrimmedRun]) -> dict[str, Sequence[MeasuredValue]]:
    fresh, ratios = runs[0].fresh_rate, [run.error_ratio for run in runs]
    return {
        "kept speed": [MeasuredValue(runs[0].last_rate / fresh if fresh else None)],
        "cliff / predicted": [MeasuredValue(1 + ratio) for ratio in ratios if ratio is not None],
    }


def _make_texts(runs: Sequence[UntrimmedRun]) -> dict[str, str]:
    untrimmed, shrunk = runs[:2]
    texts = {
        "written in B": _format_gb(shrunk.written_bytes),
        "predicted in B": _format_gb(shrunk.foretold.cliff_bytes),
    }
    if untrimmed.cliff_bytes is None:
        texts["no cliff in A"] = (
            f"the rounds wrote {_format_gb(untrimmed.written_bytes)}, and the cliff is predicted after "
            f"{_format_gb(untrimmed.foretold.cliff_bytes)}: take more or longer rounds "
            "(--set rounds=, round_s=)"
        )
    elif untrimmed.fresh_rate is None:
        texts["cliff in the first round"] = "the cliff came within the first round: take shorter rounds"
    if shrunk.cliff_bytes is not None:
        texts["cliff in B"] = f"it collapses after {_format_gb(shrunk.cliff_bytes)}"
    idle = max(run.idle_bytes / run.foretold.room_bytes for run in runs)
    if idle > NEAR_RATIO:
        texts["moved while idle"] = (
            f"the drive moved {100 * idle:.0f} % of its free flash between rounds, while idle; the "
            "prediction is for drives that move data only when they have to"
        )
    for run in runs:
        if run.cliff_bytes is None and run.written_bytes > (1 + NEAR_RATIO) * run.foretold.cliff_bytes:
            texts.setdefault("cliff did not come", f"{run.name}: it did not come")
    return texts


def _format_gb(n_bytes: float) -> str:
    return units.format_capacity(round(n_bytes))
