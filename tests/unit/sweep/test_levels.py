from __future__ import annotations

import pytest

from opwatch.errors import UsageError
from opwatch.sweep.levels import LevelScale, OpShare, parse_levels
from opwatch.sweep.methods import METHODS, find_method

GIB = 1 << 30
SCALE = LevelScale(100 * GIB)


def test_single_percent_sign_covers_every_level() -> None:
    levels = parse_levels("0,7,10,20,28,50%", SCALE)
    assert [level.label for level in levels] == ["0 %", "7 %", "10 %", "20 %", "28 %", "50 %"]
    assert levels[0].usable_bytes == SCALE.capacity_bytes
    for level, ratio in zip(levels, (0.0, 0.07, 0.10, 0.20, 0.28, 0.50), strict=True):
        assert level.usable_bytes % SCALE.align_bytes == 0
        assert level.of_used_ratio == pytest.approx(ratio, abs=1e-4)
        assert level.of_whole_ratio == pytest.approx(ratio / (1 + ratio), abs=1e-4)


def test_share_of_the_whole_gives_different_bytes() -> None:
    [whole] = parse_levels("28%", LevelScale(100 * GIB, OpShare.WHOLE))
    [used] = parse_levels("28%", SCALE)
    assert whole.of_whole_ratio == pytest.approx(0.28, abs=1e-4)
    assert whole.usable_bytes < used.usable_bytes


def test_bytes_and_percentages_may_be_mixed() -> None:
    levels = parse_levels("90G,7%,7.5%", SCALE)
    assert levels[0].usable_bytes == 90 * GIB
    assert [level.label for level in levels] == ["90G", "7 %", "7.5 %"]


def test_flash_of_a_level_may_be_unknown() -> None:
    [unknown] = parse_levels("7%", SCALE)
    assert unknown.alpha is None and unknown.spare_bytes is None
    [known] = parse_levels("0%", SCALE, flash_bytes=128 * GIB)
    assert known.alpha == 1.28 and known.spare_bytes == 28 * GIB


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", r"\blevel\b"),
        ("0,7", r"\b0: .*\bpercentage\b"),
        ("7,x%", r"x%.*\bpercentage\b"),
        ("7,,10%", r"\blevel\b"),
        ("-7%", r"-7%.*\bpercentage\b"),
        ("1001%", r"1001%.*\blarge\b"),
        ("101G", r"\b101G\b.*\bimpossible\b"),
        ("0,7,7.0%", r"\bsame\b"),
        ("7%,100G,0%", r"\bsame\b"),
        (",".join(["1"] * 65) + "%", r"\b64\b"),
    ],
)
def test_invalid_levels_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        parse_levels(text, SCALE)


def test_level_of_the_whole_capacity_is_refused() -> None:
    with pytest.raises(UsageError, match="--op 100% "):
        parse_levels("100%", LevelScale(100 * GIB, OpShare.WHOLE))


def test_a_level_needs_flash_to_move_data_with() -> None:
    with pytest.raises(UsageError, match=f"--op 0%: .*{100 * GIB} bytes"):
        parse_levels("0%", SCALE, flash_bytes=100 * GIB)


def test_methods_are_found_by_name() -> None:
    assert find_method("window").is_persistent is False
    assert len({method.name for method in METHODS}) == len(METHODS)
    with pytest.raises(UsageError, match="available: window, partition"):
        find_method("magic")
