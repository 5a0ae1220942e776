"""Frozen dataclasses back out of what report.json.plain made of them."""

import enum
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints


def read(kind: Any, value: Any) -> Any:
    """The value as `kind`, a dataclass or whatever its fields are made of.

    Raises TypeError, ValueError or KeyError for a value that `kind` does not have.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        read_as = value
    elif origin in (Union, types.UnionType):
        read_as = _one_of(inner, value)
    elif origin is tuple:
        read_as = _tuple(inner, value)
    elif origin is not None and issubclass(origin, Mapping):
        read_as = {read(inner[0], key): read(inner[1], item) for key, item in value.items()}
    elif issubclass(kind, enum.Enum):
        read_as = kind(value)
    elif is_dataclass(kind):
        read_as = _dataclass(kind, value)
    else:
        read_as = float(value) if kind is float and type(value) is int else value
        if type(read_as) is not kind:
            raise TypeError(f"{value!r} is no {kind.__name__}")
    return read_as


def _one_of(kinds: tuple[Any, ...], value: Any) -> Any:
    if value is None and type(None) in kinds:
        return None
    left = [kind for kind in kinds if kind is not type(None)]
    exact = [kind for kind in left if kind is type(value)]
    for kind in (*exact, *left):
        try:
            return read(kind, value)
        except (TypeError, ValueError, KeyError, AttributeError):
            continue
    raise TypeError(f"{value!r} is none of {left}")


def _tuple(inner: tuple[Any, ...], value: Any) -> Any:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    if len(inner) == 2 and inner[1] is Ellipsis:
        return tuple(read(inner[0], item) for item in value)
    return tuple(read(kind, item) for kind, item in zip(inner, value, strict=True))


def _dataclass(kind: Any, value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r} is no object")
    hints = get_type_hints(kind)
    known = {field.name for field in fields(kind)}
    if unknown := set(value) - known:
        raise TypeError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
    return kind(**{name: read(hints[name], item) for name, item in value.items()})
