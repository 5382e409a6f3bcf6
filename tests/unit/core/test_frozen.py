"""Frozen classes compared with `dataclasses` for the same body."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any, ClassVar

import pytest

from opwatch.frozen import asdict, field, frozen, names_of, replace


@frozen
class Point:
    x: int
    y: int = 2
    marks: list[str] = field(default_factory=list)
    LIMIT: ClassVar[int] = 9

    @property
    def total(self) -> int:
        return self.x + self.y


@frozen
class Named(Point):
    name: str = "nobody"
    calls: dict[str, int] = field(default_factory=dict, init=False)


@frozen
class Even:
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError(f"{self.number} is odd")


@frozen
class Nothing: ...


@frozen
class Shouted:
    word: str

    def __repr__(self) -> str:
        return self.word.upper()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shouted) and other.word.lower() == self.word.lower()

    def __hash__(self) -> int:
        return hash(self.word.lower())


@dataclasses.dataclass(frozen=True, slots=True)
class Twin:
    x: int
    y: int = 2
    marks: list[str] = dataclasses.field(default_factory=list)


def test_a_value_is_made_as_a_dataclass_is() -> None:
    for arguments, named in (((1,), {}), ((1, 3), {}), ((1,), {"marks": ["a"]}), ((), {"y": 5, "x": 4})):
        ours, theirs = Point(*arguments, **named), Twin(*arguments, **named)
        assert asdict(ours) == dataclasses.asdict(theirs)
        assert repr(ours) == repr(theirs).replace("Twin", "Point")
    assert Point(1).total == 3
    assert Point.LIMIT == 9


@pytest.mark.parametrize("kind", [Point, Twin])
@pytest.mark.parametrize(
    ("arguments", "named", "said"),
    [
        ((), {}, "missing 1 required positional argument: 'x'"),
        ((1,), {"x": 2}, "got multiple values for argument 'x'"),
        ((1,), {"z": 2}, "got an unexpected keyword argument 'z'"),
        ((1, 2, [], 4), {}, "takes from 2 to 4 positional arguments but 5 were given"),
    ],
)
def test_a_wrong_call_is_refused_by_name(
    kind: type, arguments: tuple[Any, ...], named: dict[str, Any], said: str
) -> None:
    for _ in "first", "later":
        with pytest.raises(TypeError, match=said):
            kind(*arguments, **named)


@pytest.mark.parametrize("made_before", [0, 1, 100])
def test_a_value_is_the_same_however_many_were_made_before(made_before: int) -> None:
    """The first instances are made by a different code path than later ones."""

    @frozen
    class Fresh(Named):
        size: int = 7

        def __post_init__(self) -> None:
            self.calls["looked at"] = self.size

    for x in range(made_before):
        Fresh(x)
    own = Fresh(1, name="a", size=8)
    assert (own.x, own.y, own.marks, own.name, own.size) == (1, 2, [], "a", 8)
    assert own.calls == {"looked at": 8}
    assert Fresh(1).marks is not Fresh(1).marks
    for arguments, named in (((), {}), ((1,), {"x": 2}), ((1,), {"calls": {}}), ((1, 2, [], "a", 5, 6), {})):
        with pytest.raises(TypeError, match=r"__init__\(\)"):
            Fresh(*arguments, **named)
        assert Fresh(2, 3) == Fresh(x=2, y=3)


def test_default_factories_run_per_instance() -> None:
    first, second = Named(1), Named(1)
    first.marks.append("a")
    first.calls["f"] = 1
    assert (second.marks, second.calls) == ([], {})


def test_fields_outside_the_constructor_are_not_part_of_the_value() -> None:
    first, second = Named(1), Named(1)
    first.calls["f"] = 1
    assert first == second
    assert "calls" not in repr(first)
    assert "calls" not in asdict(first)
    assert replace(first, name="a").calls == {}
    with pytest.raises(TypeError, match="calls"):
        Named(1, calls={})  # type: ignore[call-arg]


def test_a_value_does_not_change() -> None:
    point = Point(1)
    for name in ("x", "other"):
        with pytest.raises(AttributeError, match=f"Point does not change: {name}"):
            setattr(point, name, 5)
    with pytest.raises(AttributeError, match="Point does not change: x"):
        del point.x
    assert not hasattr(point, "__dict__")


def test_values_are_compared_by_class_and_columns() -> None:
    assert Point(1, marks=[]) == Point(1)
    assert Point(1) != Point(2)
    assert Point(1) != Named(1)
    assert Even(2) != Twin(2)  # type: ignore[comparison-overlap]
    assert len({Even(2), Even(2), Even(4)}) == 2
    assert (Nothing(), hash(Nothing())) == (Nothing(), hash(Nothing()))
    with pytest.raises(TypeError, match="unhashable"):
        hash(Point(1))


def test_an_inherited_column_comes_first() -> None:
    assert names_of(Named(1)) == ("x", "y", "marks", "name")
    assert asdict(Named(1, 2, ["a"], "b")) == {"x": 1, "y": 2, "marks": ["a"], "name": "b"}


def test_methods_defined_by_the_class_are_kept() -> None:
    assert repr(Shouted("a")) == "A"
    assert Shouted("a") == Shouted("A")
    assert len({Shouted("a"), Shouted("A")}) == 1


def test_post_init_checks_the_complete_value() -> None:
    assert Even(2).number == 2
    for _ in "first", "later":
        with pytest.raises(ValueError, match="3 is odd"):
            Even(3)
    with pytest.raises(ValueError, match="5 is odd"):
        replace(Even(2), number=5)


def test_a_value_is_copied_with_changes() -> None:
    point = Point(1, marks=["a"])
    assert replace(point, x=3) == Point(3, marks=["a"])
    with pytest.raises(TypeError, match="z"):
        replace(point, z=3)  # type: ignore[call-arg]


def test_values_within_values_are_plain_too() -> None:
    inner = Even(2)
    outer = Point(1, marks=[inner, (inner,), {"a": inner}])  # type: ignore[list-item]
    plain = {"number": 2}
    assert asdict(outer)["marks"] == [plain, (plain,), {"a": plain}]


def test_a_value_goes_through_copy_and_pickle() -> None:
    for value in (Named(1, name="a"), Nothing(), Even(4)):
        assert copy.copy(value) == value
        assert copy.deepcopy(value) == value
        assert pickle.loads(pickle.dumps(value)) == value


def test_functions_of_dataclasses_accept_frozen_classes() -> None:
    point = Point(1, marks=["a"])
    assert dataclasses.is_dataclass(point)
    assert [column.name for column in dataclasses.fields(Named)] == ["x", "y", "marks", "name"]
    assert dataclasses.asdict(point) == {"x": 1, "y": 2, "marks": ["a"]}
    assert dataclasses.replace(point, y=7) == Point(1, 7, ["a"])


def test_a_value_is_matched_by_place() -> None:
    match Point(1, 5):
        case Point(x, y):
            assert (x, y) == (1, 5)
