"""Tuples whose places have names, as `typing.NamedTuple` makes them, without its price at a start: all of
typing is imported there, and annotations are compiled, the first in the time of importing ten modules."""

from __future__ import annotations

from collections import namedtuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:

    class _NamedTupleType(type):
        """Makes of a class body with annotations a tuple; what else stands there is the tuple's own."""

        def __new__(mcs, name: str, bases: tuple[type, ...], body: dict[str, object]) -> type:
            if not bases:
                return super().__new__(mcs, name, bases, body)
            places = body.get("__annotations__", {})
            defaults = [body.pop(place) for place in places if place in body]
            made = namedtuple(name, places, defaults=defaults, module=body["__module__"])
            return type(name, (made,), body | {"__slots__": ()})

    class NamedTuple(metaclass=_NamedTupleType):
        """What such a class comes from."""


__all__ = ["NamedTuple"]
