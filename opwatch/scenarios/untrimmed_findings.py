"""Compare the results on an untrimmed drive with the author's results. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from opwatch import units
from opwatch.ftl.profiles import Profile
from opwatch.scenarios.scenario import Finding, ScenarioVerdict
from opwatch.scenarios.untrimmed import UntrimmedRun, UntrimmedSetup

# Maximum relative distance of the cliff from its prediction.
NEAR_RATIO = 0.02
# The author's collapse: less than this share of the initial speed.
_COLLAPSE_RATIO = 0.5
# A shorter round on a device mostly measures a buffer and other processes.
_MIN_ROUND_S = 1.0


def make_findings(
    runs: Sequence[UntrimmedRun], setup: UntrimmedSetup, profile: Profile
) -> tuple[Finding, ...]:
    """Return the author's results and the prediction, each with a verdict."""
    untrimmed, shrunk = runs[:2]
    return (
        _check_collapse(untrimmed),
        _check_trimmed(shrunk),
        _check_prediction(runs),
        _check_published_cliff(untrimmed, setup, profile),
    )


def make_device_findings(runs: Sequence[UntrimmedRun], *, is_timed: bool) -> tuple[Finding, ...]:
    """Return the verdicts for runs on a device.

    The author's account of free blocks is omitted, because it applies to another drive.
    """
    untrimmed, shrunk = runs[:2]
    collapse = _check_collapse(untrimmed)
    if not is_timed and untrimmed.cliff_bytes is not None:
        why = "this drive answers immediately, however much it moves: create it with --timing real"
        collapse = Finding(collapse.what, ScenarioVerdict.UNTOLD, why)
    shortest = min(one.seconds for run in runs for one in run.rounds)
    if is_timed and shortest < _MIN_ROUND_S:
        why = f"a round of {shortest:.2g} s is too short for a speed: use a larger drive or fewer rounds"
        collapse = Finding(collapse.what, ScenarioVerdict.UNTOLD, why)
    return (collapse, _check_trimmed(shrunk), _check_prediction(runs))


def _check_collapse(run: UntrimmedRun) -> Finding:
    what = "untrimmed, it collapses"
    if run.cliff_bytes is None:
        return Finding(
            what,
            ScenarioVerdict.UNTOLD,
            f"the rounds wrote {_format_gb(run.written_bytes)}, and the cliff is predicted after "
            f"{_format_gb(run.foretold.cliff_bytes)}: use more or longer rounds (--set rounds=, round_s=)",
        )
    if run.fresh_rate is None:
        return Finding(
            what, ScenarioVerdict.UNTOLD, "the cliff came within the first round: use shorter rounds"
        )
    kept = run.last_rate / run.fresh_rate
    verdict = ScenarioVerdict.REPRODUCED if kept < _COLLAPSE_RATIO else ScenarioVerdict.NOT_REPRODUCED
    return Finding(what, verdict, f"at the end it has {kept:.2f} of the speed of its first round")


def _check_trimmed(run: UntrimmedRun) -> Finding:
    what = "trimmed and shrunk, it does not"
    if run.cliff_bytes is not None:
        return Finding(
            what, ScenarioVerdict.NOT_REPRODUCED, f"it collapses after {_format_gb(run.cliff_bytes)}"
        )
    return Finding(
        what,
        ScenarioVerdict.REPRODUCED,
        f"the same rounds wrote {_format_gb(run.written_bytes)}; it would collapse after "
        f"{_format_gb(run.foretold.cliff_bytes)}",
    )


def _check_prediction(runs: Sequence[UntrimmedRun]) -> Finding:
    what = "the cliff came where predicted"
    idle = max((run.idle_bytes / run.foretold.room_bytes for run in runs), default=0.0)
    if idle > NEAR_RATIO:
        why = f"the drive moved {100 * idle:.0f} % of its free flash between rounds, while idle"
        return Finding(
            what,
            ScenarioVerdict.UNTOLD,
            f"{why}; the prediction is for drives that move data only when they have to",
        )
    errors = [abs(run.error_ratio) for run in runs if run.error_ratio is not None]
    early = [
        run for run in runs if run.error_ratio is None and run.written_bytes > 1.02 * run.foretold.cliff_bytes
    ]
    if early:
        return Finding(what, ScenarioVerdict.NOT_REPRODUCED, f"{early[0].name}: it did not come")
    if not errors:
        return Finding(what, ScenarioVerdict.UNTOLD, "no run wrote that much")
    verdict = ScenarioVerdict.REPRODUCED if max(errors) <= NEAR_RATIO else ScenarioVerdict.NOT_REPRODUCED
    return Finding(what, verdict, f"{100 * max(errors):.2g} % off; {100 * NEAR_RATIO:g} % is allowed")


def _check_published_cliff(run: UntrimmedRun, setup: UntrimmedSetup, profile: Profile) -> Finding:
    """Check whether the collapse occurs at the end of the author's free blocks."""
    published = setup.published_cliff_bytes
    what = f"shortly after {_format_gb(published)}, the blocks that were free"
    if run.cliff_bytes is None:
        return Finding(what, ScenarioVerdict.UNTOLD, "it did not come")
    if published <= run.cliff_bytes <= 1.5 * published:
        return Finding(what, ScenarioVerdict.REPRODUCED, f"after {_format_gb(run.cliff_bytes)}")
    hidden = profile.drive["physical_bytes"] - profile.drive["user_bytes"]
    why = (
        f"after {_format_gb(run.cliff_bytes)}: besides the unwritten addresses, this drive has "
        f"{_format_gb(hidden)} of hidden flash"
    )
    cache = run.foretold.cache_bytes
    if cache is None:
        return Finding(what, ScenarioVerdict.NOT_REPRODUCED, why)
    why += (
        f". Its cache is full after {_format_gb(cache)}; the author could not see which of the two it "
        f"was, and this profile's cache is no evidence ({profile.source})"
    )
    return Finding(what, ScenarioVerdict.UNTOLD, why)


def _format_gb(n_bytes: float) -> str:
    return units.format_capacity(round(n_bytes))
