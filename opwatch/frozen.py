"""Immutable value classes like `dataclass(frozen=True, slots=True)`, but with a lower start-up cost.

dataclasses compiles six functions per class and imports `inspect`, which took a third of the time of a trim
check. Here only the constructor of a class with many instances is compiled. Functions of `dataclasses` accept
the instances; the module is imported on first use of `__dataclass_fields__`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from operator import attrgetter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import asdict, replace
    from typing import Any, NoReturn, TypeVar, dataclass_transform

    _T = TypeVar("_T")

__all__ = ["asdict", "field", "frozen", "names_of", "replace"]


# Compiling a constructor takes as long as about twenty calls of the generic one; most classes have fewer
# instances.
_MANY = 16


class _Made:
    """Placeholder in a class for a value that every instance creates separately."""

    __slots__ = ("factory", "init")

    def __init__(self, factory: Callable[[], object], init: bool) -> None:
        self.factory, self.init = factory, init


class _Columns:
    """The columns of a class: annotated constructor arguments, and values created by factories."""

    __slots__ = ("defaults", "made", "taken", "values")

    def __init__(self) -> None:
        self.taken: dict[str, str] = {}
        self.made: dict[str, _Made] = {}
        self.defaults: dict[str, object] = {}
        self.values: Callable[[object], object] = lambda _: ()


def field(*, default_factory: Callable[[], _T], init: bool = True) -> _T:
    """Work like dataclasses.field(). Fields with init=False are not part of the value: not compared, shown or
    copied."""
    made: Any = _Made(default_factory, init)
    return made  # type: ignore[no-any-return]


def names_of(instance: object) -> tuple[str, ...]:
    """Return the field names of a value in class order. Also works for classes of `dataclasses`."""
    names: tuple[str, ...] = instance.__match_args__  # type: ignore[attr-defined]
    return names


def _columns(kind: type) -> _Columns:
    columns: _Columns = kind.__columns__  # type: ignore[attr-defined]
    return columns


def _plain(value: object) -> object:
    if hasattr(value.__class__, "__columns__"):
        return asdict(value)  # type: ignore[call-overload]
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        plain = map(_plain, value)
        return value._make(plain) if hasattr(value, "_make") else value.__class__(plain)
    return value


if not TYPE_CHECKING:

    def replace(instance: object, /, **changes: object) -> object:
        """Work like dataclasses.replace()."""
        kept = {name: getattr(instance, name) for name in names_of(instance) if name not in changes}
        return instance.__class__(**kept, **changes)

    def asdict(instance: object) -> dict[str, object]:
        """Work like dataclasses.asdict() for frozen classes, except that other values are not copied."""
        return {name: _plain(getattr(instance, name)) for name in names_of(instance)}


class _Fields:
    """The attribute by which `dataclasses` recognizes its classes; computed on first access."""

    def __get__(self, instance: object, owner: type) -> object:
        dataclasses = importlib.import_module("dataclasses")
        columns, typed = _columns(owner), []
        for name, kind in columns.taken.items():
            default = columns.defaults.get(name, dataclasses.MISSING)
            given = (
                {"default_factory": default.factory} if isinstance(default, _Made) else {"default": default}
            )
            typed.append((name, kind, dataclasses.field(**given)))
        fields = dataclasses.make_dataclass(owner.__name__, typed).__dataclass_fields__
        type.__setattr__(owner, "__dataclass_fields__", fields)
        return fields


def _compiled(kind: type) -> Callable[..., None]:
    """Compile a constructor like a handwritten one: equally fast, and error messages name the arguments."""
    columns = _columns(kind)
    arguments, lines = ["self"], []
    for name in columns.taken:
        arguments.append(f"{name}=defaults[{name!r}]" if name in columns.defaults else name)
        made = isinstance(columns.defaults.get(name), _Made)
        value = f"{name}.factory() if {name}.__class__ is Made else {name}" if made else name
        lines.append(f" put(self, {name!r}, {value})")
    lines += [f" put(self, {name!r}, made[{name!r}].factory())" for name in columns.made]
    if hasattr(kind, "__post_init__"):
        lines.append(" self.__post_init__()")
    scope: dict[str, Any] = {"put": object.__setattr__, "defaults": columns.defaults, "made": columns.made}
    scope["Made"] = _Made
    exec("\n".join([f"def __init__({', '.join(arguments)}):", *(lines or [" pass"])]), scope)
    constructor: Callable[..., None] = scope["__init__"]
    return constructor


def _constructor(kind: type) -> Callable[..., None]:
    """Return a generic constructor for the first instances, which needs no compilation.

    The compiled constructor replaces it after _MANY instances, and on a wrong call, to raise the proper
    error.
    """
    columns, put = _columns(kind), object.__setattr__
    taken, is_looked_at = tuple(columns.taken), hasattr(kind, "__post_init__")
    left = _MANY

    def __init__(self: object, *arguments: object, **named: object) -> None:
        nonlocal left
        left -= 1
        placed = dict(zip(taken, arguments, strict=False))
        values = columns.defaults | placed | named
        wrong = len(arguments) > len(taken) or values.keys() != columns.taken.keys() or placed.keys() & named
        if wrong or left < 0:
            compiled = _compiled(kind)
            type.__setattr__(kind, "__init__", compiled)
            return compiled(self, *arguments, **named)
        for name, value in (values | columns.made).items():
            put(self, name, value.factory() if value.__class__ is _Made else value)
        if is_looked_at:
            self.__post_init__()  # type: ignore[attr-defined]
        return None

    return __init__


def _repr(self: object) -> str:
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names_of(self))
    return f"{self.__class__.__qualname__}({values})"


def _compared(values: Callable[[object], object]) -> dict[str, object]:
    def __eq__(self: object, other: object) -> object:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: object) -> int:
        return hash(values(self))

    return {"__eq__": __eq__, "__hash__": __hash__}


def _refuse(self: object, name: str, *_: object) -> NoReturn:
    raise AttributeError(f"{self.__class__.__qualname__} does not change: {name}")


def _reduce(self: object) -> tuple[object, ...]:
    return self.__class__, tuple(getattr(self, name) for name in names_of(self))


_METHODS: dict[str, object] = {
    "__repr__": _repr,
    "__setattr__": _refuse,
    "__delattr__": _refuse,
    "__reduce__": _reduce,
    "__dataclass_fields__": _Fields(),
}


def _columns_of(body: type) -> _Columns:
    """Return the columns of a class, after the columns of its base classes."""
    columns = _Columns()
    for base in reversed(body.__mro__[1:]):
        if inherited := base.__dict__.get("__columns__"):
            columns.taken.update(inherited.taken)
            columns.made.update(inherited.made)
            columns.defaults.update(inherited.defaults)
    for name, kind in body.__annotations__.items():
        default = body.__dict__.get(name, columns)
        if isinstance(default, _Made) and not default.init:
            columns.made[name] = default
        elif not kind.startswith("ClassVar"):
            columns.taken[name] = kind
            if default is not columns:
                columns.defaults[name] = default
    if columns.taken:
        columns.values = attrgetter(*columns.taken)
    return columns


if not TYPE_CHECKING:

    def dataclass_transform(**_: object) -> Callable[[object], object]:
        """Runtime stub: the decorator only informs type checkers."""
        return lambda decorator: decorator


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(body: type[_T]) -> type[_T]:
    """Return the class with slots and a constructor for the annotations of the class and its bases."""
    columns = _columns_of(body)
    names = {*columns.taken, *columns.made}
    written = {name: value for name, value in body.__dict__.items() if name not in names}
    for name in ("__dict__", "__weakref__"):
        written.pop(name, None)
    compared = _compared(columns.values)
    attributes = _METHODS | compared | written
    attributes["__hash__"] = written.get("__hash__") or compared["__hash__"]
    attributes["__columns__"] = columns
    attributes["__match_args__"] = tuple(columns.taken)
    attributes["__slots__"] = tuple(name for name in body.__annotations__ if name in names)
    kind: type[_T] = type(body)(body.__name__, body.__bases__, attributes)  # type: ignore[misc]
    if "__init__" not in written:
        type.__setattr__(kind, "__init__", _constructor(kind))
    return kind
