"""Reads a payload's configuration: one JSON object, strictly, into a frozen dataclass."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from cluster.errors import CannotRun

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Loaded = TypeVar("Loaded", bound="DataclassInstance")

BACKENDS = ("gloo", "nccl")


@dataclass(frozen=True, kw_only=True)
class GroupConfig:
    """What every collective payload is told. Every number but the seed is above zero.

    backend          "gloo" or "nccl"; there is no fallback from one to the other
    timeout_s        how long the ranks wait for each other in each exchange, in seconds
    join_timeout_s   how long they wait for all to arrive
    cpus_per_rank    what each rank must have been given, if anything is said
    nonce            whose answer this is: it comes back in the document
    """

    backend: str
    timeout_s: float
    join_timeout_s: float = 60
    cpus_per_rank: int | None = None
    nonce: str = ""
    # Whether NCCL is to try the ways between ranks before it is measured (nccl_debug.request).
    diagnosed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require(self.backend in BACKENDS, f'backend is "{self.backend}", not gloo or nccl')
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        numbers = [name for name, value in values.items() if isinstance(value, int | float)]
        require_positive(self, *(name for name in numbers if name != "seed"))


def load(kind: type[Loaded], text: str) -> Loaded:
    """The configuration in a JSON text.

    Raises CannotRun for invalid JSON, an unknown or missing key, a wrong type (a boolean is no
    number, a fraction no integer), and whatever the dataclass itself refuses.
    """
    try:
        values = json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        raise CannotRun(f"the config is not valid JSON: {error}") from error
    require(isinstance(values, dict), "the config is not a JSON object")

    fields = dataclasses.fields(kind)
    known = {field.name for field in fields}
    needed = {field.name for field in fields if field.default is dataclasses.MISSING}
    for key in values:
        require(key in known, f'the config has the unknown key "{key}"')
    for key in sorted(needed):
        require(key in values, f'the config lacks the key "{key}"')

    types = _types(kind)
    return kind(**{key: _READERS[types[key]](key, value) for key, value in values.items()})


@functools.cache
def _types(kind: type[Loaded]) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def require(condition: bool, sentence: str) -> None:
    """Raises CannotRun with the sentence unless the condition holds."""
    if not condition:
        raise CannotRun(sentence)


def require_positive(config: DataclassInstance, *keys: str) -> None:
    """Raises CannotRun unless these numbers of a configuration are above zero and finite."""
    for key in keys:
        value = getattr(config, key)
        require(value > 0 and math.isfinite(value), f"{key} is {value}, not above zero")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number in JSON")


def _integer(key: str, value: Any) -> int:
    require(type(value) is int, f"{key} is {value!r}, not an integer")
    return int(value)


def _integer_or_null(key: str, value: Any) -> int | None:
    return None if value is None else _integer(key, value)


def _flag(key: str, value: Any) -> bool:
    require(type(value) is bool, f"{key} is {value!r}, not true or false")
    return bool(value)


def _number(key: str, value: Any) -> float:
    require(type(value) in (int, float), f"{key} is {value!r}, not a number")
    return float(value)


def _text(key: str, value: Any) -> str:
    require(isinstance(value, str), f"{key} is {value!r}, not a text")
    return str(value)


def _text_or_null(key: str, value: Any) -> str | None:
    return None if value is None else _text(key, value)


def _integers(key: str, value: Any) -> tuple[int, ...]:
    require(isinstance(value, list) and value != [], f"{key} is {value!r}, not a list of integers")
    return tuple(_integer(key, item) for item in value)


def _texts(key: str, value: Any) -> tuple[str, ...]:
    require(isinstance(value, list) and value != [], f"{key} is {value!r}, not a list of texts")
    return tuple(_text(key, item) for item in value)


_READERS: dict[Any, Callable[[str, Any], Any]] = {
    int: _integer,
    int | None: _integer_or_null,
    bool: _flag,
    float: _number,
    str: _text,
    str | None: _text_or_null,
    tuple[int, ...]: _integers,
    tuple[str, ...]: _texts,
}
