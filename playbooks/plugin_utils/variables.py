"""What is wrong with variables: names that are almost ours, values that cannot work.

Pure functions. A problem is a sentence without its subject, the variable: the caller knows where it
is set and on which hosts.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.parsing.convert_bool import boolean

from cluster import removed_variables
from cluster.refusal import Refusal
from playbooks.plugin_utils.listening import range_problem

Option = Mapping[str, Any]
Options = Mapping[str, Option]
AsWritten = Callable[[Any], str]  # the text of a value in its file; "" where it is not known

# Words that people leave in place of a secret; `deepops` is what its predecessor shipped.
WEAK = frozenset(
    {"admin", "changeme", "deepops", "password", "replace", "root", "secret", "slurm", "test"}
)
SECRET_LENGTH = 16

# How much alike two names are (difflib): one letter of ten differs; less where the name begins as a
# role's do. cluster_domain and cluster_name are 0.7 alike, node_memory and node_memory_mb 0.9.
ALIKE = 0.86
ALIKE_WITHIN_A_ROLE = 0.8
# Components: the roles that have them read whatever names a site gives them.
ANY_NAME = re.compile(r"(slurm|slurm_database|environment_modules)_component_|ansible_|__")

# Ansible's check takes "no" for a bool and "a,b" for a list, but a role gets the text as it is.
SHAPES: Mapping[str, tuple[type, ...]] = {
    "bool": (bool,),
    "list": (list, tuple),
    "dict": (Mapping,),
}

TEXT = ("str", "path")

# Values that once could be chosen, and what to do instead: the rest of the sentence.
WITHDRAWN: Mapping[tuple[str, str], str] = {
    ("nvidia_driver_source", "debian"): (
        "whose kernel module (nvidia-current) never passed verification; set it to cuda_repo, and "
        "before the next run purge Debian's packages of the driver on each drained node: they are "
        "held, and NVIDIA's replace only those of the same name."
    ),
}

BASE_60 = re.compile(r"\d+(:[0-5]?\d)+")  # which YAML 1.1 reads as a number


def read_specs(roles: Path) -> dict[str, dict[str, Any]]:
    """Options of every role's entry point `main`, by role. Raises OSError, YAMLError, KeyError."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return {
        path.parent.parent.name: yaml.load(path.read_text(encoding="utf-8"), loader)[
            "argument_specs"
        ]["main"].get("options", {})
        for path in sorted(roles.glob("*/meta/argument_specs.yml"))
    }


def unknown_variables(
    names: Iterable[str], known: Collection[str], roles: Collection[str]
) -> Iterator[tuple[str, Refusal]]:
    """Variables that were ours, or that are almost one of ours; others are a site's own."""
    gone = removed_variables.sentences()
    ours = sorted(known)
    prefixes = tuple(f"{role}_" for role in roles)
    for name in sorted(set(names) - set(known)):
        if name in gone:
            yield name, Refusal(gone[name])
            continue
        if ANY_NAME.match(name):
            continue
        cutoff = ALIKE_WITHIN_A_ROLE if name.startswith(prefixes) else ALIKE
        if near := difflib.get_close_matches(name, ours, n=1, cutoff=cutoff):
            sentence = f"is no variable of Plumbline; did you mean {near[0]}?"
            yield name, Refusal(sentence, "unknown-variable", name)


def secret_problem(option: Option, value: object) -> str:
    """Why a value cannot be a secret; empty when it can. An optional one is made by its role."""
    text = str(value or "")
    hint = "" if option.get("required") else " remove it to have one made at random, or"
    if not text:
        return f"is empty;{hint} set it in the vault." if option.get("required") else ""
    if text.lower() in WEAK:
        return f"is a word that everyone knows;{hint} set it in the vault."
    if len(text) < SECRET_LENGTH:
        return f"is shorter than {SECRET_LENGTH} characters;{hint} set it in the vault."
    return ""


def type_problem(name: str, option: Option, value: object) -> str:
    """Why a value is refused by its option in an argument spec; empty when it is not."""
    # Only the value is judged: one that is required may still come from elsewhere.
    spec = {key: entry for key, entry in option.items() if key not in {"required", "default"}}
    try:
        result = ArgumentSpecValidator({name: spec}).validate({name: value})
    except TypeError:  # Ansible's own, for something else than a mapping with `apply_defaults`
        return f"must be of type {option.get('type', 'str')}, but is {value!r}."
    if not result.error_messages:
        return ""
    if instead := WITHDRAWN.get((name, str(value))):
        return f"is {value}, {instead}"
    kind = option.get("type", "str")
    if kind in {"list", "dict"} and isinstance(value, SHAPES[kind]):
        # What is wrong lies inside; Ansible names the key.
        return f"is refused: {result.error_messages[0].rstrip('.')}."
    shown = "something else" if option.get("no_log") else repr(value)
    choices = (
        f"one of {', '.join(map(str, option['choices']))}"
        if "choices" in option
        else f"of type {kind}"
    )
    return f"must be {choices}, but is {shown}."


def switched(value: object) -> object:
    """The bool that a text says, in any spelling that Ansible's `bool` knows; else what it was."""
    with contextlib.suppress(TypeError):
        return boolean(value) if isinstance(value, str) else value
    return value


def word_problems(
    path: str,
    option: Option,
    value: Any,
    words: Collection[str],
    as_written: AsWritten,
    at: str = "",
) -> Iterator[str]:
    """Values that YAML reads as something else than the word that is wanted, wherever inside.

    `path` is the place with its numbers and keys, `at` the same as `words` writes it.
    """
    at = at or path
    kind = option.get("type", "str")
    if (wanted := SHAPES.get(kind)) and value is not None and not isinstance(value, wanted):
        yield f"{path} must be of type {kind}, but is {value!r}{_as_bool(path, kind, value)}."
    elif kind in TEXT and isinstance(value, (Mapping, list, tuple)):
        # Ansible would take its text, brackets and all.
        yield f"{path} must be text, but is {value!r}."
    elif isinstance(value, Mapping):
        options = option.get("options") or {}
        for key, item in value.items():
            if key in options:
                yield from word_problems(
                    f"{path}.{key}", options[key], item, words, as_written, f"{at}.{key}"
                )
            elif f"{at}.*" in words:
                yield from _one_word(f"{path}.{key}", item, as_written, numbers=True)
    elif isinstance(value, (list, tuple)):
        inner = {"type": option.get("elements", "raw"), "options": option.get("options") or {}}
        for number, item in enumerate(value):
            yield from word_problems(f"{path}[{number}]", inner, item, words, as_written, f"{at}[]")
    elif kind == "str":
        yield from _one_word(path, value, as_written, numbers=False)
    elif kind == "path" and value and not str(value).startswith("/"):
        yield f"{path} must be an absolute path, but is {value}."


def _as_bool(path: str, kind: str, value: object) -> str:
    """How to say a bool on a command line, where all that is not JSON is text."""
    meant = switched(value)
    if kind != "bool" or not isinstance(meant, bool) or not path.isidentifier():
        return ""
    word = str(meant).lower()
    return f", which is text; write {word} without quotes, with -e as '{{\"{path}\": {word}}}'"


def _one_word(path: str, value: Any, as_written: AsWritten, *, numbers: bool) -> Iterator[str]:
    if isinstance(value, bool):
        yield (
            f"{path} must be a word, but YAML reads yes, no, on, off, true and false without "
            f'quotes as {str(value).lower()}; put it in quotes, as "{"yes" if value else "no"}".'
        )
    elif isinstance(value, (int, float)):
        written = as_written(value)
        if BASE_60.fullmatch(written):
            yield (
                f"{path} is {written}, which YAML reads as {value}; put it in quotes, "
                f'as "{written}".'
            )
        elif not numbers:
            yield (
                f'{path} must be a word, but is the number {value}; put it in quotes, as "{value}".'
            )


def value_problems(
    name: str, option: Option, value: Any, words: Collection[str], as_written: AsWritten
) -> Iterator[str]:
    """Everything that is wrong with a value of an option."""
    if problem := type_problem(name, option, value):
        yield problem
        return
    if name.endswith("_port") and (problem := range_problem(value)):
        yield problem
        return
    if option.get("no_log"):
        if problem := secret_problem(option, value):
            yield problem
        return
    for problem in word_problems(name, option, value, words, as_written):
        yield problem.removeprefix(f"{name} ") if problem.startswith(f"{name} ") else f": {problem}"
