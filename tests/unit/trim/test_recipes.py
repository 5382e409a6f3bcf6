"""Random stacks: reproducible from a seed, and reduced if a test on them fails."""

from __future__ import annotations

import pytest

from tests.stacks.recipe import (
    ARRAYS,
    FAULTS,
    FILESYSTEMS,
    LAYERS,
    MODULES,
    Recipe,
    generate_smaller,
    make_recipe,
)

ALL = {*LAYERS, *ARRAYS, *FILESYSTEMS, *FAULTS}


def test_seed_reproduces_a_stack() -> None:
    stacks = [make_recipe(seed, ALL) for seed in range(300)]
    assert stacks == [make_recipe(seed, sorted(ALL)) for seed in range(300)]
    parts = {name for one in stacks for name in (*one.layers, one.filesystem, one.fault)}
    assert parts == ALL | {""}
    assert {len(one.layers) for one in stacks} == {1, 2, 3, 4}
    for one in stacks:
        kinds = [name.partition("-")[0] for name in one.layers]
        assert max(kinds.count(name) for name in ("thin", "bcache", "reflink")) <= 1
        # Arrays are built only on files in memory, so they are the lowest layer.
        assert not set(one.layers[:-1]) & ARRAYS.keys()
        assert one.options in FILESYSTEMS[one.filesystem]


def test_recipes_use_only_available_features() -> None:
    plain = {"loop", "file-ext4"}
    stacks = [make_recipe(seed, plain) for seed in range(50)]
    assert {name for one in stacks for name in one.layers} == plain
    assert {one.filesystem.partition("-")[0] for one in stacks} == {"ext4"}
    assert {one.fault for one in stacks} == {""}
    assert plain.isdisjoint(MODULES)


@pytest.mark.parametrize("seed", range(40))
def test_shrinking_terminates(seed: int) -> None:
    def compute_weight(one: Recipe) -> tuple[int, ...]:
        plain = one.options in ("", "nodiscard")
        return (
            len(one.layers),
            one.fault != "",
            one.drive != "",
            one.filesystem != "ext4",
            not plain,
            one.scattered,
            one.deleted,
            one.offset,
        )

    one = make_recipe(seed, ALL)
    for less in generate_smaller(one):
        assert all(now <= was for now, was in zip(compute_weight(less), compute_weight(one), strict=True))
        assert compute_weight(less) != compute_weight(one)
