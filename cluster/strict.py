"""Reads JSON and YAML data strictly: unknown keys, duplicates and wrong types are all reported.

A reader takes a value, the place it stands at and the list of problems; it returns the value or,
after noting a problem, None. So a file's problems are all known after one reading. The readers here
are forms: each also has the JSON Schema of what it takes, for editors and other programs.
"""

import functools
import importlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

from cluster.errors import DataError, EnvironmentProblem

Problems = list[str]
Reader = Callable[[Any, str, Problems], Any]


def load_yaml(path: Path) -> Any:
    try:
        # Not imported above: a login node may lack it, and should be told so in a sentence.
        yaml = importlib.import_module("yaml")
    except ImportError as error:
        raise EnvironmentProblem(
            "PyYAML is not installed (package python3-yaml, or see requirements.txt)"
        ) from error

    try:
        return _of_yaml(yaml, path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(str(path), [f"cannot be read: {error.strerror}"]) from error
    except (yaml.YAMLError, UnicodeDecodeError, TypeError) as error:
        detail = " ".join(str(error).split())
        raise DataError(str(path), [f"is not valid YAML: {detail}"]) from error


def _of_yaml(yaml: Any, text: str) -> Any:
    """What a text says, by libyaml where there is one, in a tenth of the time.

    What that refuses is read once more: PyYAML's own reader shows the line.
    """
    fast = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(text, Loader=_unique_keys(yaml, fast))
    except (yaml.YAMLError, TypeError):
        return yaml.load(text, Loader=_unique_keys(yaml, yaml.SafeLoader))


@functools.cache
def _unique_keys(yaml: Any, loader: Any) -> Any:
    class UniqueKeys(loader):  # type: ignore[misc]
        """Refuses a key given twice instead of keeping the last one.

        A date stays the text that it is.
        """

        yaml_implicit_resolvers: ClassVar = {
            first: [(tag, form) for tag, form in found if not tag.endswith(":timestamp")]
            for first, found in loader.yaml_implicit_resolvers.items()
        }

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            if twice := [key for key in keys if keys.count(key) > 1]:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {twice[0]!r} is given twice", problem_mark=node.start_mark
                )
            return cast(dict[Any, Any], super().construct_mapping(node, deep))

    return UniqueKeys


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise ValueError("a key is given twice")
    return mapping


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")


def parse_json(text: str) -> Any:
    """JSON as its standard has it: no NaN, no Infinity, no key twice. Raises ValueError."""
    return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)


def load_json(path: Path) -> Any:
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(str(path), [f"cannot be read: {error.strerror}"]) from error
    except (ValueError, RecursionError) as error:
        raise DataError(str(path), [f"is not valid JSON: {error}"]) from error


# --- readers ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """A reader, and the JSON Schema (draft 2020-12) of what it takes without a problem."""

    reader: Reader
    schema: Mapping[str, Any]

    def __call__(self, value: Any, where: str, problems: Problems) -> Any:
        return self.reader(value, where, problems)


def schema(reader: Reader) -> Mapping[str, Any]:
    """The JSON Schema of a reader; of one that is no form it is that of any value."""
    return reader.schema if isinstance(reader, Form) else {}


def described(reader: Reader, description: str) -> Form:
    """The same reader; its schema says what the value means."""
    return Form(reader, {**schema(reader), "description": description})


def _text(value: Any, where: str, problems: Problems) -> str | None:
    if isinstance(value, str) and value.strip():
        return value.strip()
    problems.append(f"{where}: expected a text, found {value!r}")
    return None


text = Form(_text, {"type": "string", "pattern": r"\S"})


def _flag(value: Any, where: str, problems: Problems) -> bool | None:
    if isinstance(value, bool):
        return value
    problems.append(f"{where}: expected true or false, found {value!r}")
    return None


flag = Form(_flag, {"type": "boolean"})


def whole(minimum: int = 0) -> Form:
    def read(value: Any, where: str, problems: Problems) -> int | None:
        if isinstance(value, int) and not isinstance(value, bool) and value >= minimum:
            return value
        problems.append(f"{where}: expected a whole number of at least {minimum}, found {value!r}")
        return None

    return Form(read, {"type": "integer", "minimum": minimum})


def _positive(value: Any, where: str, problems: Problems) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(value)
        if math.isfinite(number) and number > 0:
            return number
    problems.append(f"{where}: expected a number above 0, found {value!r}")
    return None


positive = Form(_positive, {"type": "number", "exclusiveMinimum": 0})


def one_of(*allowed: Any) -> Form:
    def read(value: Any, where: str, problems: Problems) -> Any:
        # The type counts too: True == 1 in Python.
        for choice in allowed:
            if type(value) is type(choice) and value == choice:
                return value
        problems.append(
            f"{where}: expected {' or '.join(repr(a) for a in allowed)}, found {value!r}"
        )
        return None

    return Form(read, {"enum": list(allowed)})


def either(reader: Reader, *words: Any) -> Form:
    """One of the words, or whatever the reader takes."""

    def read(value: Any, where: str, problems: Problems) -> Any:
        return value if value in words else reader(value, where, problems)

    return Form(read, {"anyOf": [{"enum": list(words)}, schema(reader)]})


def list_of(reader: Reader, *, empty: bool = True) -> Form:
    def read(value: Any, where: str, problems: Problems) -> tuple[Any, ...] | None:
        if not isinstance(value, list):
            problems.append(f"{where}: expected a list, found {value!r}")
            return None
        if not value and not empty:
            problems.append(f"{where}: must not be empty")
        return tuple(reader(item, f"{where}[{i}]", problems) for i, item in enumerate(value))

    return Form(read, {"type": "array", "items": schema(reader), "minItems": 0 if empty else 1})


def map_of(reader: Reader) -> Form:
    """A mapping whose keys are free and whose values are all alike."""

    def read(value: Any, where: str, problems: Problems) -> dict[str, Any] | None:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            problems.append(f"{where}: expected a mapping, found {value!r}")
            return None
        return {key: reader(item, f"{where}.{key}", problems) for key, item in value.items()}

    return Form(read, {"type": "object", "additionalProperties": schema(reader)})


def table(required: Mapping[str, Reader], optional: Mapping[str, Reader] | None = None) -> Form:
    """A mapping with exactly these keys; an optional key that is absent is None."""
    known = {**required, **(optional or {})}

    def read(value: Any, where: str, problems: Problems) -> dict[str, Any] | None:
        if not isinstance(value, Mapping):
            problems.append(f"{where or 'the file'}: expected a mapping, found {value!r}")
            return None
        prefix = f"{where}." if where else ""
        for key in value:
            if key not in known:
                problems.append(f"{prefix}{key}: unknown key; known are {', '.join(known)}")
        for key in required:
            if key not in value:
                problems.append(f"{prefix}{key}: is missing")
        return {
            key: reader(value[key], f"{prefix}{key}", problems) if key in value else None
            for key, reader in known.items()
        }

    return Form(
        read,
        {
            "type": "object",
            "properties": {key: schema(reader) for key, reader in known.items()},
            "required": list(required),
            "additionalProperties": False,
        },
    )
