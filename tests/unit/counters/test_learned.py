"""Learned units: the rules, their answers, and learning from invented drives."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.counters.catalogue.families import Catalogue, load_catalogue
from opwatch.counters.catalogue.fingerprints import UnitRule, UnitRules, load_packaged_rules, parse_rules
from opwatch.counters.evidence import Attribute, Evidence, Statistics
from opwatch.counters.prove.report import make_report
from opwatch.counters.reading import CounterReading, DriveFacts, Proof
from opwatch.errors import UsageError
from tests.learning.__main__ import format_rules, main
from tests.learning.judge import cross_validate, run_perturbations
from tests.learning.learn import learn_rules
from tests.learning.rows import drop_statistics, read_rows
from tests.learning.truth import find_sound_sectors, find_wrapped_sectors, is_right

ROWS = Path(__file__).parents[2] / "fixtures" / "good" / "smart_rows" / "drives.jsonl"
MIB32, GIB, TB = 1 << 25, 1 << 30, 10**12
IDS = (5, 9, 12, 160, 161, 163, 164, 165, 166, 241)


def make_evidence(
    number: int,
    unit: int = MIB32,
    ids: tuple[int, ...] = IDS,
    model: str = "ACME",
    firmware: str | None = None,
) -> Evidence:
    """A drive with `number` TB written."""
    written = number * TB + number * 7_000_000
    raws = {key: written // unit if key == 241 else 100 for key in ids}
    attributes = tuple(Attribute(key, "Unknown_Attribute", raw, str(raw), 100) for key, raw in raws.items())
    return Evidence(
        DriveFacts("ata", f"{model} {number % 3}", firmware, capacity_bytes=TB, lba_bytes=512),
        attributes=attributes,
        statistics=Statistics({(1, 0x18): written // 512, (1, 0x20): written // 65536}),
        power_on_hours=20_000,
    )


FLEET = [make_evidence(number) for number in range(1, 13)]


def get_host_reading(evidence: Evidence, rules: UnitRules) -> CounterReading:
    return make_report(evidence, Catalogue((), rules)).readings["host_written"]


def test_units_that_drives_agree_on_become_a_rule() -> None:
    rules = learn_rules(FLEET)
    assert rules == learn_rules(reversed(FLEET))
    assert rules.find_rule(frozenset(IDS)) == UnitRule(241, MIB32, 12, 3)
    reading = get_host_reading(drop_statistics(make_evidence(50, model="OTHER")), rules)
    assert reading.proof is Proof.LEARNED and reading.quantum == MIB32
    sectors = find_sound_sectors(make_evidence(50))
    assert reading.value and sectors and is_right(reading.value, sectors, MIB32)
    assert re.search(r"\b12 drives .*\b3 models", reading.source)


def test_units_that_drives_disagree_on_are_contested() -> None:
    rules = learn_rules([*FLEET, make_evidence(20, GIB)])
    assert rules.exact[frozenset(IDS)].is_contested
    for ids in (IDS, (*IDS, 169)):
        reading = get_host_reading(drop_statistics(make_evidence(50, ids=ids)), rules)
        assert reading.value is None and reading.reason


def test_nearly_equal_attribute_sets_share_a_rule() -> None:
    rules = learn_rules(make_evidence(number) for number in range(1, 31))
    assert get_host_reading(drop_statistics(make_evidence(50, ids=(*IDS, 169))), rules).value
    assert get_host_reading(drop_statistics(make_evidence(50, ids=(1, 2, 3, *IDS))), rules).value
    # Too many differing attributes, or too few in total, to identify the firmware.
    assert (
        get_host_reading(drop_statistics(make_evidence(50, ids=(*IDS, 169, 170, 171, 172))), rules).value
        is None
    )
    assert get_host_reading(drop_statistics(make_evidence(50, ids=(5, 9, 165, 241))), rules).value is None


def test_few_drives_of_a_brand_give_no_rule_for_others() -> None:
    few = learn_rules(FLEET[:9])
    assert few.find_rule(frozenset(IDS)) == UnitRule(241, MIB32, 9, 3, brand="ACME")
    assert parse_rules(format_rules(few).encode(), "x").core == few.core
    assert get_host_reading(drop_statistics(make_evidence(50)), few).value
    assert get_host_reading(drop_statistics(make_evidence(50, model="OTHER")), few).value is None
    # Two brands are enough for a rule about every brand.
    both = learn_rules([*FLEET[:4], make_evidence(7, model="OTHER")])
    assert get_host_reading(drop_statistics(make_evidence(50, model="THIRD")), both).value
    # A merely similar attribute set needs 30 drives.
    assert (
        get_host_reading(drop_statistics(make_evidence(50, ids=(*IDS, 169))), learn_rules(FLEET)).value
        is None
    )


def wrap_statistics(good: Evidence) -> Evidence:
    """The drive with device statistics modulo 2^32 sectors, written in commands of 4 KiB."""
    assert good.statistics
    sectors = good.statistics.values[1, 0x18]
    return replace(good, statistics=Statistics({(1, 0x18): sectors % (1 << 32), (1, 0x20): sectors // 8}))


def test_wrapped_statistics_prove_a_unit() -> None:
    rows = [wrap_statistics(make_evidence(number)) for number in (10, 20, 30, 40)]
    assert not any(find_sound_sectors(row) for row in rows) and all(find_wrapped_sectors(row) for row in rows)
    assert learn_rules(rows).find_rule(frozenset(IDS)) == learn_rules(
        make_evidence(number) for number in (10, 20, 30, 40)
    ).find_rule(frozenset(IDS))
    # An attribute that matches the statistics in no unit proves nothing.
    assert find_wrapped_sectors(wrap_statistics(make_lagging_evidence(40, 0.3))) is None


def test_a_firmware_that_counts_in_another_unit_has_no_learned_number() -> None:
    fleet = [make_evidence(number, firmware="GOOD") for number in range(1, 151)]
    odd = wrap_statistics(make_evidence(40, GIB, firmware="S0110A0"))
    rules = learn_rules([*fleet, odd])
    rule = rules.find_rule(frozenset(IDS))
    assert rule and rule.unit == MIB32 and rule.not_firmware == ("S0110A0",) and rule.share < 1
    assert parse_rules(format_rules(rules).encode(), "x").core == rules.core
    assert get_host_reading(drop_statistics(odd), rules).value is None
    assert get_host_reading(drop_statistics(make_evidence(50, firmware="NEW")), rules).value
    # A firmware name that the file format cannot store makes the whole set contested.
    assert (
        learn_rules([*fleet, wrap_statistics(make_evidence(40, GIB, firmware="S 1: 2"))]).find_rule(
            frozenset(IDS)
        )
        is None
    )


@pytest.mark.parametrize("firmware", ["S0110A0", "R1210A0", "R1029A0"])
def test_firmwares_of_an_unproven_unit_have_no_number(firmware: str) -> None:
    catalogue = load_catalogue(system=Path("/nonexistent"))
    ids = (
        5,
        9,
        12,
        160,
        161,
        163,
        164,
        165,
        166,
        167,
        168,
        169,
        175,
        176,
        177,
        178,
        181,
        182,
        232,
        241,
        242,
        245,
    )
    for name, is_known in ((firmware, False), ("U1013A0", True)):
        evidence = make_evidence(30, MIB32, ids, firmware=name)
        alone = make_report(drop_statistics(evidence), catalogue).readings["host_written"]
        assert (alone.value is not None) is is_known
        assert make_report(evidence, catalogue).readings["host_written"].proof is Proof.SPEC


def test_the_step_of_a_counter_is_learned() -> None:
    assert learn_rules(FLEET).find_rule(frozenset(IDS)) == UnitRule(241, MIB32, 12, 3)
    coarse = [
        replace(
            one,
            attributes=tuple(
                replace(a, raw=(a.raw or 0) // 64 * 64) if a.id == 241 else a for a in one.attributes
            ),
        )
        for one in FLEET[4:]
    ]
    rules = learn_rules(coarse)
    rule = rules.find_rule(frozenset(IDS))
    assert rule and rule.step == 64 and rule.quantum_bytes == 64 * MIB32
    assert parse_rules(format_rules(rules).encode(), "x").core == rules.core
    assert get_host_reading(drop_statistics(coarse[0]), rules).quantum == 64 * MIB32
    # Drives without device statistics determine the step too; a few even counts are chance.
    assert learn_rules([*coarse, drop_statistics(make_evidence(7))]).find_rule(frozenset(IDS)) == replace(
        rule, step=1
    )
    even = [
        make_evidence(number)
        for number in range(1, 100)
        if not (make_evidence(number).attributes[-1].raw or 1) % 2
    ]
    few = learn_rules(even[:4]).find_rule(frozenset(IDS))
    assert few and few.step == 1


def test_host_bytes_below_the_erase_count_are_refused() -> None:
    """The erase count of a firmware that counts GiB, with a counter misread as 32 MiB."""
    ids = (5, 9, 12, 160, 161, 163, 165, 166, 167, 241)
    rules = learn_rules(make_evidence(number, MIB32, ids) for number in range(1, 13))

    def get_worn_reading(average: int, smallest: int = 342) -> CounterReading:
        counts = {165: 10421, 166: smallest, 167: average}
        good = make_evidence(2, MIB32, ids)
        changed = tuple(replace(one, raw=counts.get(one.id, one.raw)) for one in good.attributes)
        return get_host_reading(drop_statistics(replace(good, attributes=changed)), rules)

    # 2 TB on 1 TB; the manufacturer's tests take 150 erases.
    assert get_worn_reading(240).value
    refused = get_worn_reading(1065)
    assert refused.value is None and "1065 erases" in (refused.reason or "")
    # Without the smallest count the average has another meaning.
    assert get_worn_reading(1065, smallest=0).value


def make_lagging_evidence(number: int, share: float, ids: tuple[int, ...] = IDS) -> Evidence:
    """A drive with an attribute that lags behind."""
    good = make_evidence(number, ids=ids)
    attributes = tuple(
        replace(one, raw=round((one.raw or 0) * (1 - share))) if one.id == 241 else one
        for one in good.attributes
    )
    return replace(good, attributes=attributes)


def test_slightly_older_page_does_not_suggest_another_unit() -> None:
    assert learn_rules([*FLEET, make_lagging_evidence(40, 0.008)]).find_rule(frozenset(IDS)) == UnitRule(
        241, MIB32, 13, 3
    )
    assert learn_rules([*FLEET, make_lagging_evidence(40, 0.08)]).find_rule(frozenset(IDS)) is None


def test_few_current_drives_do_not_clear_a_lagging_set() -> None:
    in_time = [make_evidence(number, ids=(1, *IDS)) for number in range(20, 25)]
    others = [make_lagging_evidence(number, 0.08) for number in range(30, 33)]
    assert learn_rules([*FLEET, *in_time]).find_rule(frozenset((1, *IDS))) is not None
    rules = learn_rules([*FLEET, *in_time, *others])
    assert rules.exact[frozenset((1, *IDS))].is_contested and rules.find_rule(frozenset((1, *IDS))) is None


def test_host_bytes_above_the_largest_erase_count_are_refused() -> None:
    ids = (5, 9, 12, 160, 161, 163, 165, 166, 167, 241)
    rules = learn_rules(make_evidence(number, GIB, ids) for number in range(1, 13))

    def get_worn_reading(largest: int, smallest: int) -> CounterReading:
        counts = {165: largest, 166: smallest, 167: 30}
        changed = tuple(
            replace(attribute, raw=counts.get(attribute.id, attribute.raw))
            for attribute in make_evidence(150, GIB, ids).attributes
        )
        return get_host_reading(
            drop_statistics(replace(make_evidence(150, GIB, ids), attributes=changed)), rules
        )

    # 150 TB on 1 TB.
    assert get_worn_reading(50, 10).value and get_worn_reading(43, 10).value
    refused = get_worn_reading(42, 10)
    assert refused.value is None and "42 erases" in (refused.reason or "")
    # Counts that are out of order are ignored.
    assert get_worn_reading(42, 31).value


@pytest.mark.parametrize("factor", [0.1, 2, 10])
def test_statistics_that_contradict_the_rule_are_refused(factor: float) -> None:
    good = make_evidence(50)
    assert good.statistics
    values = {where: round(value * factor) for where, value in good.statistics.values.items()}
    reading = get_host_reading(replace(good, statistics=Statistics(values)), learn_rules(FLEET))
    assert reading.value is None and reading.reason


def test_learned_number_must_be_possible_for_the_drive() -> None:
    rules, good = learn_rules(FLEET), make_evidence(60)
    worn = Attribute(167, "Unknown_Attribute", 11, "11", 100)
    for changed in (
        replace(good, power_on_hours=1),
        replace(good, drive=replace(good.drive, capacity_bytes=10**9)),
        replace(good, attributes=(*good.attributes, make_evidence(70).attributes[-1])),
        # 60 TB are 54 capacities per erase.
        replace(
            good,
            drive=replace(good.drive, capacity_bytes=10**11),
            attributes=(*good.attributes, worn),
        ),
    ):
        assert get_host_reading(drop_statistics(changed), rules).value is None


def test_the_catalogue_has_no_number_where_others_count_differently() -> None:
    entry = load_catalogue(system=Path("/nonexistent"))
    fake = make_evidence(50, ids=(*IDS[:3], 169, 170, 171, 172, 177, 241), model="Samsung SSD 870 EVO")
    named = replace(fake, drive=replace(fake.drive, model="Samsung SSD 870 EVO 1TB"), power_on_hours=400)
    others = [
        make_evidence(number, ids=tuple(attribute.id for attribute in fake.attributes))
        for number in range(1, 13)
    ]
    catalogued = make_report(drop_statistics(named), Catalogue(entry.entries, UnitRules())).readings[
        "host_written"
    ]
    assert catalogued.value is not None and catalogued.proof is Proof.CATALOGUE
    contradicted = make_report(
        drop_statistics(named), Catalogue(entry.entries, learn_rules(others))
    ).readings["host_written"]
    assert contradicted.value is None and "model" in (contradicted.reason or "")


def test_statistics_that_repeat_an_attribute_are_ignored() -> None:
    copied = replace(make_evidence(50), statistics=Statistics({(1, 0x18): 35250, (1, 0x20): 35250}))
    assert find_sound_sectors(copied) is None
    reading = make_report(copied, Catalogue((), UnitRules())).readings["host_written"]
    assert reading.value is None and "standard" in (reading.reason or "")


def test_rules_survive_a_round_trip() -> None:
    rules = learn_rules(
        [
            *FLEET,
            *(make_evidence(number, GIB, (*IDS, 231, 233)) for number in range(1, 6)),
            make_evidence(9, 512),
        ]
    )
    assert parse_rules(format_rules(rules).encode(), "x").core == rules.core
    packaged = load_packaged_rules()
    assert len(packaged.core) > 50
    for rule in (*packaged.core.values(), *packaged.exact.values()):
        assert rule.is_contested or (
            rule.drives >= 3 and rule.share >= 0.99 and rule.of in (225, 233, 235, 241, 246, 251)
        )


@pytest.mark.parametrize(
    "text",
    [
        'core = ["241 x 512, 10 drives, 2 models, 1.0: 5 999"]',
        'core = ["241 x 512, 10 drives, 2 models, 1.0: 0"]',
        'core = ["0 x 512, 10 drives, 2 models, 1.0: 5"]',
        'core = ["241 x 9999999999999, 10 drives, 2 models, 1.0: 5"]',
        'core = ["241 x 512"]',
        'core = ["241 x 512 in steps of 0, 10 drives, 2 models, 1.0: 5"]',
        'core = ["241 x 1073741824 in steps of 9999, 10 drives, 2 models, 1.0: 5"]',
        'core = ["241 x 512, 10 drives, 2 models, 1.0, not : 5"]',
        'core = ["241 x 512, 10 drives, 2 models, 1.0, only acme: 5"]',
        'core = ["241 x 512, 10 drives, 2 models, 1.0: 9 241"]',
        "core = [241]",
        "core = 241",
        'near = ["241 x 512, 10 drives, 2 models, 1.0: 5"]',
        'core = ["contested, 3 drives, 1 models, 0.5: 5", "contested, 3 drives, 1 models, 0.5: 5"]',
        "what",
    ],
)
def test_invalid_rules_name_the_place(text: str) -> None:
    with pytest.raises(UsageError, match=r"mine\.toml"):
        parse_rules(text.encode(), "mine.toml")


def test_cross_validation_holds_back_the_tested_drives() -> None:
    drives = [make_evidence(number, model=f"BRAND {number}") for number in range(1, 40)]
    by_parity = cross_validate(drives, Catalogue(()), lambda one: (one.attributes[-1].raw or 0) % 5)
    assert (by_parity.counts["right"], by_parity.counts["wrong"]) == (39, 0)
    changed = run_perturbations(drives, Catalogue((), learn_rules(drives)))
    assert all(one.compute_share("wrong") == 0 for name, one in changed.items() if "no attribute" not in name)


def test_command_writes_rules_and_prints_expected_accuracy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = tmp_path / "rules.toml"
    monkeypatch.setattr("sys.argv", ["learning", str(ROWS), str(rules)])
    assert main() == 0
    assert "| unseen models |" in capsys.readouterr().out
    assert (
        parse_rules(rules.read_bytes(), "it")
        == learn_rules(read_rows(ROWS))
        == learn_rules(read_rows(ROWS.parent))
    )
    monkeypatch.setattr("sys.argv", ["learning", str(rules)])
    assert main() == 2
    assert str(rules) in capsys.readouterr().err
