"""Named tuples compared with those of the standard library."""

from __future__ import annotations

import copy
import pickle
import typing

import pytest

from opwatch import named


class Place(named.NamedTuple):
    """A range of sectors."""

    device: str
    sector: int = 7
    length: int = 8

    @property
    def end(self) -> int:
        """Return the end of the range."""
        return self.sector + self.length

    def moved(self, by: int) -> Place:
        return self._replace(sector=self.sector + by)


class Model(typing.NamedTuple):
    """A range of sectors."""

    device: str
    sector: int = 7
    length: int = 8


class Named(Place):
    """A subclass without additional fields."""

    def moved(self, by: int) -> Place:
        return super().moved(2 * by)


def test_construction_matches_the_standard_library() -> None:
    assert tuple(Place("a")) == tuple(Model("a")) == ("a", 7, 8)
    assert tuple(Place("a", length=1)) == tuple(Model("a", length=1))
    assert Place("a", 1, 2) == ("a", 1, 2)
    assert hash(Place("a")) == hash(Model("a"))


@pytest.mark.parametrize("wrong", [{}, {"device": "a", "other": 1}, {"sector": 1}])
def test_a_wrong_call_is_refused_in_the_same_words(wrong: dict[str, typing.Any]) -> None:
    with pytest.raises(TypeError) as expected:
        Model(**wrong)
    with pytest.raises(TypeError) as refused:
        Place(**wrong)
    assert str(refused.value).replace("Place", "Model") == str(expected.value)


def test_its_own_names_and_doc_stay() -> None:
    assert Place._fields == Model._fields
    assert Place._field_defaults == Model._field_defaults
    assert (Place.__doc__, Place.__module__) == (Model.__doc__, Model.__module__)
    assert repr(Place("a")) == repr(Model("a")).replace("Model", "Place")
    assert Place("a")._asdict() == Model("a")._asdict()
    assert Place._make(("b", 1, 2)).end == 3


def test_overriding_method_can_call_the_inherited_method() -> None:
    assert Place("a").moved(1) == ("a", 8, 8)
    assert Named("a").moved(1) == ("a", 9, 8)
    assert isinstance(Named("a"), Place)


def test_an_instance_takes_no_further_name() -> None:
    with pytest.raises(AttributeError):
        Place("a").further = 1  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        Place("a").sector = 1  # type: ignore[misc]


def test_copy_and_pickle_keep_type_and_value() -> None:
    place = Place("a", 1)
    assert copy.deepcopy(place) == place
    again = pickle.loads(pickle.dumps(place))
    assert again == place
    assert type(again) is Place


def test_pattern_matching_is_by_position() -> None:
    match Place("a", 1):
        case Place(device, sector):
            assert (device, sector) == ("a", 1)
        case _:
            pytest.fail("it is not matched")
