"""Random stacks: the same of a seed on every machine, and smaller ones of what contradicts itself."""

from __future__ import annotations

import pytest

from tests.stacks.recipe import ARRAYS, LAYERS, MODULES, Recipe, recipe, smaller

ALL = {*LAYERS, *ARRAYS}


def test_a_seed_is_a_stack() -> None:
    stacks = [recipe(seed, ALL) for seed in range(300)]
    assert stacks == [recipe(seed, sorted(ALL)) for seed in range(300)]
    assert {name for one in stacks for name in one.layers} == ALL
    for one in stacks:
        assert 1 <= len(one.layers) <= 3
        assert max(one.layers.count(name) for name in ("thin", "reflink")) <= 1
        # An array stands on files in memory.
        assert not set(one.layers[:-1]) & ARRAYS.keys()


def test_nothing_that_a_machine_has_not() -> None:
    plain = {"loop", "file-ext4"}
    assert {name for seed in range(50) for name in recipe(seed, plain).layers} == plain
    assert plain.isdisjoint(MODULES)


@pytest.mark.parametrize("seed", range(20))
def test_shrinking_comes_to_an_end(seed: int) -> None:
    def weight(one: Recipe) -> tuple[int, bool, int, int]:
        return len(one.layers), one.filesystem != "ext4", one.deleted, one.offset

    one = recipe(seed, ALL)
    for less in smaller(one):
        assert all(now <= was for now, was in zip(weight(less), weight(one), strict=True))
        assert weight(less) != weight(one)
