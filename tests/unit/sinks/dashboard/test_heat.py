"""The heat map: rows of latencies, and that every counted request is drawn."""

from __future__ import annotations

import pytest

from opwatch.sinks.dashboard.compact_interval import compact_interval, find_bucket
from opwatch.sinks.dashboard.heat import (
    LEVELS,
    Column,
    build_column,
    choose_scale,
    draw_axis,
    draw_heat_map,
    draw_legend,
)
from opwatch.sinks.dashboard.rows import Heat, Line, Row, measure_row
from opwatch.sinks.dashboard.spark import draw_spark_rows
from opwatch.sinks.tones import Tone
from tests.unit.sinks.test_jsonl import make_observation
from tests.unit.support.samples import Op


def list_heat(rows: list[Row]) -> list[list[Heat | None]]:
    """Return the heat of every cell."""
    return [[tone if isinstance(tone, Heat) else None for text, tone in row for _ in text] for row in rows]


@pytest.mark.parametrize("height", [1, 2, 5, 9, 40])
@pytest.mark.parametrize("spread", [[1000], [1000, 10**9], [900, 10_000, 10**6]])
def test_each_bucket_fits_into_a_single_cell(height: int, spread: list[int]) -> None:
    columns = [Column({find_bucket(value): 1 for value in spread}, None, None)]
    scale = choose_scale(columns, 2 * height)
    assert scale is not None
    lit = [set(scale.find_cells(bucket)) for bucket in columns[0].buckets]
    assert all(lit)
    assert all(0 <= cell < 2 * height for some in lit for cell in some)
    # If there are more cells than buckets, no cell between two adjacent buckets stays empty.
    first, last = scale.low * 4, scale.high * 4
    whole = [cell for bucket in range(first, last) for cell in scale.find_cells(bucket)]
    assert set(whole) == set(range(2 * height))


def test_map_shows_newest_right_and_slowest_top() -> None:
    quick = Column({find_bucket(1000): 900}, 1000.0, 1000.0)
    slow = Column({find_bucket(1000): 1, find_bucket(500_000): 1}, 1000.0, 500_000.0)
    rows = draw_heat_map([quick, slow], 10, 8).rows
    assert [measure_row(row) for row in rows] == [10] * 8
    grid = list_heat(rows)
    assert all(row[:8] == [None] * 8 for row in grid)
    assert grid[0][8] == Heat(0, 0)
    assert grid[0][9] is not None and grid[0][9].line is Line.P99
    assert max(max(cell.upper, cell.lower) for row in grid if (cell := row[8])) == LEVELS
    # One request among nine hundred is barely warm, but visible.
    assert max(max(cell.upper, cell.lower) for row in grid if (cell := row[9])) == 1


def test_overlapping_lines_are_drawn_as_p99() -> None:
    rows = draw_heat_map([Column({find_bucket(1000): 5}, 1000.0, 1001.0)], 1, 4).rows
    lines = [cell.line for row in list_heat(rows) for cell in row if cell]
    assert lines.count(Line.P99) == 1
    assert Line.P50 not in lines


def test_column_merges_several_intervals() -> None:
    moments = [
        compact_interval(make_observation(read=Op([1000] * 99, [4096] * 99))),
        compact_interval(make_observation(write=Op([1000], [4096]))),
        compact_interval(make_observation(read=Op([10**6] * 2, [4096] * 2))),
    ]
    column = build_column(moments, "read")
    assert column.buckets == {find_bucket(1000): 99, find_bucket(10**6): 2}
    assert column.p50 is not None and column.p99 is not None
    assert find_bucket(int(column.p50)) == find_bucket(1000)
    assert find_bucket(int(column.p99)) == find_bucket(10**6)
    assert build_column(moments[1:2], "read").buckets == {}


def test_map_is_drawn_without_any_request() -> None:
    empty = draw_heat_map([], 7, 3)
    assert [measure_row(row) for row in empty.rows] == [7] * 3


def test_scale_is_none_when_no_request_is_in_the_map() -> None:
    empty = draw_heat_map([Column({}, None, None)] * 5, 7, 3)
    assert empty.scale is None
    assert empty.hottest == 0
    assert not any(
        "┤" in text and any(char.isdigit() for char in text) for text, _ in draw_axis(empty.scale, 3)
    )
    assert draw_legend(empty.hottest) == []


def test_legend_has_every_level_and_the_count_of_the_hottest_cell() -> None:
    quick = Column({find_bucket(1000): 900, find_bucket(1200): 50}, 1000.0, 1000.0)
    slow = Column({find_bucket(1000): 1, find_bucket(900_000_000): 1}, 1000.0, 5000.0)
    # A map with few rows has several buckets per cell.
    shown = draw_heat_map([quick, slow], 10, 2)
    lit = [max(cell.upper, cell.lower) for row in list_heat(shown.rows) for cell in row if cell]
    assert max(lit) == LEVELS
    assert shown.hottest == 950
    pieces = draw_legend(shown.hottest)
    assert [tone for _, tone in pieces if isinstance(tone, Heat)] == [
        Heat(n, n) for n in range(1, LEVELS + 1)
    ]
    words = "".join(text for text, tone in pieces if isinstance(tone, Tone)).split()
    assert words[:2] == ["1", "950"]


def test_cursor_is_drawn_in_the_empty_cells_of_its_column_only() -> None:
    quick = Column({find_bucket(1000): 9, find_bucket(500_000): 1}, None, None)
    plain, marked = draw_heat_map([quick] * 4, 6, 6), draw_heat_map([quick] * 4, 6, 6, cursor=1)
    for bare, row in zip(plain.rows, marked.rows, strict=True):
        assert measure_row(row) == 6
        [before], [after] = list_heat([bare]), list_heat([row])
        assert before[:3] + before[4:] == after[:3] + after[4:]
        text = "".join(text for text, _ in row)
        is_empty = before[3] == Heat(0, 0)
        assert (text[3] == "│") is is_empty
        assert after[3] == (None if is_empty else before[3])


def test_bars_are_as_high_as_values() -> None:
    [row] = draw_spark_rows([0, 1, 4, 8, None], 6, 1, Tone.BAR)
    assert row == [("  ▁▄█ ", Tone.BAR)]
    upper, lower = draw_spark_rows([8, 16], 2, 2, Tone.BAR)
    assert (upper[0][0], lower[0][0]) == (" █", "██")
    assert draw_spark_rows([], 3, 1, Tone.BAR) == [[("   ", Tone.BAR)]]
    # A value just above zero differs visibly from zero.
    assert draw_spark_rows([1, 10**9], 2, 1, Tone.BAR)[0][0][0] == "▁█"
