"""The alert rules: promtool accepts them, and its tests of them pass.

make test-fleet
"""

from __future__ import annotations

import subprocess

from tests.requirements import skip_or_fail

from .alerts import FAULTS, RULES
from .engines import EngineMissingError, find_program


def run_promtool(*arguments: object) -> str:
    """Return the output of promtool, which has to succeed."""
    try:
        program = find_program("promtool")
    except EngineMissingError as error:
        skip_or_fail("fleet", str(error))
    argv = [program, *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=RULES.parent, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_the_rules() -> None:
    assert f"{RULES.read_text().count('expr:')} rules found" in run_promtool("check", "rules", RULES.name)


def test_rules_fire_and_stay_silent_as_their_tests_say() -> None:
    run_promtool("test", "rules", "opwatch.rules.test.yml")


def test_each_alert_has_a_test_and_is_simulated() -> None:
    names = {line.split()[-1] for line in RULES.read_text().splitlines() if "- alert:" in line}
    tests = (RULES.parent / "opwatch.rules.test.yml").read_text()
    assert {name for name in names if f"alertname: {name}" not in tests} == set()
    assert names == FAULTS.keys()
