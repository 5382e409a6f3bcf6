"""Named tuples like `typing.NamedTuple`, but with a lower start-up cost.

The original imports all of typing and compiles the annotations; the first class takes as long as importing
ten modules.
"""

from __future__ import annotations

from collections import namedtuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:

    class _NamedTupleType(type):
        """Turns a class body with annotations into a named tuple; other attributes become its methods."""

        def __new__(mcs, name: str, bases: tuple[type, ...], body: dict[str, object]) -> type:
            if not bases:
                return super().__new__(mcs, name, bases, body)
            places = body.get("__annotations__", {})
            defaults = [body.pop(place) for place in places if place in body]
            made = namedtuple(name, places, defaults=defaults, module=body["__module__"])
            return type(name, (made,), body | {"__slots__": ()})

    class NamedTuple(metaclass=_NamedTupleType):
        """Base class of such tuples."""


__all__ = ["NamedTuple"]
