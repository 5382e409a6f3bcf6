"""Learn the units of SATA drives from rows, and report the expected accuracy.

    python -m tests.learning ROWS [OUT]

ROWS is a file with one drive per line as JSON (.jsonl, .jsonl.gz), or a folder of such files. OUT is the file
for the rules. Without OUT, the rules of the package and the accuracy tables in docs/method-waf.md are
written. The result does not depend on the order of the drives, on time or on chance.
"""

from __future__ import annotations

import sys
from pathlib import Path

from opwatch.counters.catalogue.families import Catalogue, load_catalogue
from opwatch.counters.catalogue.fingerprints import PACKAGED, UnitRule, UnitRules, find_core_ids, format_rule
from tests.learning.judge import KINDS, Verdicts, run_perturbations, run_validations
from tests.learning.learn import learn_rules
from tests.learning.rows import read_rows
from tests.learning.truth import find_sound_sectors, is_shown_by_attribute
from tests.section import Section

KEPT_BACK, CHANGED = (Section("method-waf.md", name) for name in ("held out", "changed"))
_HEAD = """\
# Learned by `make learn-counters` from device statistics of real drives; do not edit. Each rule names the
# attribute that counts host writes, its unit, and how many drives agree, for one set of attribute ids.
# Contested sets give no number. `core` excludes the ids that all vendors use.
# From the public collections linuxhw/EnterpriseDrive and bsdhw/SMART by the Linux Hardware and BSD Hardware
# projects, CC-BY-4.0.
"""


def format_rules(rules: UnitRules) -> str:
    """Format the rules as a file. Rules of whole sets that their core implies are left out."""
    exact = {
        ids: rule
        for ids, rule in rules.exact.items()
        if not ((core := rules.core.get(find_core_ids(ids))) and _is_implied(core, rule))
    }
    parts = [_HEAD]
    for kind, some in (("core", rules.core), ("exact", exact)):
        rows = sorted(format_rule(ids, rule) for ids, rule in some.items())
        parts.append("".join([f"\n{kind} = [\n", *(f'    "{row}",\n' for row in rows), "]\n"]))
    return "".join(parts)


def _is_implied(core: UnitRule, rule: UnitRule) -> bool:
    """Return whether the core's rule implies the rule of the whole set."""
    same = (core.of, core.unit) == (rule.of, rule.unit) and core.step >= rule.step
    return same and set(core.not_firmware) >= set(rule.not_firmware)


def format_table(what: str, verdicts: dict[str, Verdicts]) -> str:
    """Return a table of verdicts for docs/method-waf.md."""
    head = [f"| {what} | drives | right | wrong | no number |", "| --- | --- | --- | --- | --- |"]
    rows = [
        " | ".join(
            (f"| {name}", f"{one.drive_count:,}", *(f"{one.compute_share(kind):.2%}" for kind in KINDS))
        )
        + " |"
        for name, one in verdicts.items()
    ]
    return "\n".join([*head, *rows]).replace("%", " %")


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        drives = list(read_rows(Path(sys.argv[1])))
    except (OSError, ValueError, LookupError) as error:
        print(
            f"{sys.argv[1]}: not rows of drives ({error!r}); tests/learning/rows.py describes the format",
            file=sys.stderr,
        )
        return 2
    catalogue = load_catalogue(system=Path("/nonexistent"))
    kept_back = run_validations(drives, catalogue)
    rules = learn_rules(drives)
    (Path(sys.argv[2]) if len(sys.argv) > 2 else PACKAGED).write_text(format_rules(rules))
    changed = run_perturbations(drives, Catalogue(catalogue.entries, rules))
    shown = sum(
        is_shown_by_attribute(drive, sectors) for drive in drives if (sectors := find_sound_sectors(drive))
    )
    tables = format_table("held out", kept_back), format_table("changed", changed)
    for section, rows in zip((KEPT_BACK, CHANGED), tables, strict=True):
        if len(sys.argv) < 3:
            section.write_body(rows)
    print("\n\n".join(tables))
    print(f"\n{shown} of these drives have an attribute that equals the host writes in one of the units")
    for name, verdicts in (*kept_back.items(), *changed.items()):
        worst = ", ".join(
            f"{model} {firmware} ({n})" for (model, firmware), n in verdicts.wrong.most_common(12)
        )
        print(f"\nwrong of {name}: {worst or 'none'}")
    print(f"\n{len(rules.exact)} sets of attributes, {len(rules.core)} by the ids that distinguish firmwares")
    return 0


if __name__ == "__main__":
    sys.exit(main())
