"""Refuses a host's variables before the host is touched.

Ansible accepts a misspelt variable in silence, and checks a role's arguments only when the role
starts. This reads the same argument specs first, and looks at every variable by its name.
It runs on the control node, for each host, without a connection.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleError, AnsibleFilterError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase

Specs = Mapping[str, Mapping[str, Any]]
Evaluate = Callable[[str], Any]  # value of a variable by its name; raises AnsibleError

# Variables of no role: the contract, and those of group_vars/all/cluster.yml.
CONTRACT_PREFIXES = ("node_", "cluster_")
CONTRACT = {
    "node_address",
    "node_cpus",
    "node_gpus",
    "node_memory_mb",
    "cluster_declaration",
    "cluster_hosts",
    "cluster_name",
    "cluster_nodes",
    "cluster_secrets",
    "cluster_slurm_roles",
}

# Words that people leave in place of a secret; `deepops` is what its predecessor shipped.
WEAK = {"admin", "changeme", "deepops", "password", "replace", "root", "secret", "slurm", "test"}
SECRET_LENGTH = 16


def read_specs(roles: str | Path) -> dict[str, dict[str, Any]]:
    """Options of every role's entry point `main`, by role."""
    specs = {}
    for path in sorted(Path(roles).glob("*/meta/argument_specs.yml")):
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        specs[path.parent.parent.name] = document["argument_specs"]["main"]["options"]
    return specs


def where_set(name: str, sources: Iterable[str]) -> str:
    """Where a variable is set, as ` (set in FILE)`; nothing when no file has it as a key."""
    key = re.compile(rf"^\s*['\"]?{re.escape(name)}['\"]?\s*[:=]", re.MULTILINE)
    for source in sources:
        root = Path(source)
        files = [root] if root.is_file() else sorted(p for p in root.rglob("*") if p.is_file())
        if root.is_file():
            files += sorted(root.parent.glob("*_vars/**/*.y*ml"))
        for path in files:
            if path.suffix in {".yml", ".yaml", ".json", ".ini", ""}:
                try:
                    text = path.read_text(encoding="utf-8")
                except (UnicodeDecodeError, PermissionError):
                    continue
                if key.search(text):
                    return f" (set in {path})"
    return ""


def unknown_variables(names: Iterable[str], specs: Specs) -> Iterator[tuple[str, str]]:
    """Variables that look like a role's or the contract's, but are none."""
    known = {option for options in specs.values() for option in options} | CONTRACT
    prefixes = (*(f"{role}_" for role in specs), *CONTRACT_PREFIXES)
    for name in sorted(set(names) - known):
        if name.startswith(prefixes):
            near = difflib.get_close_matches(name, sorted(known), n=1)
            hint = f"did you mean {near[0]}?" if near else "the READMEs in roles/ list them all."
            yield name, f"is no variable of Plumbline; {hint}"


def secret_problem(value: object) -> str:
    """Why a value cannot be a secret; empty when it can."""
    text = str(value or "")
    if not text:
        return "is empty"
    if text.lower() in WEAK:
        return "is a word that everyone knows"
    if len(text) < SECRET_LENGTH:
        return f"is shorter than {SECRET_LENGTH} characters"
    return ""


def type_problem(name: str, option: Mapping[str, Any], value: object) -> str:
    """Why a value is refused by its option in an argument spec; empty when it is not."""
    # Only the value is judged: one that is required may still come from the playbook.
    spec = {key: entry for key, entry in option.items() if key not in {"required", "default"}}
    result = ArgumentSpecValidator({name: spec}).validate({name: value})
    if not result.error_messages:
        return ""
    kind = option.get("type", "str")
    if kind in {"list", "dict"} and isinstance(value, (list, dict)):
        # What is wrong lies inside; Ansible names the key.
        return f"is refused: {result.error_messages[0].rstrip('.')}."
    shown = "something else" if option.get("no_log") else repr(value)
    choices = f"one of {', '.join(option['choices'])}" if "choices" in option else f"of type {kind}"
    return f"must be {choices}, but is {shown}."


def variable_problems(
    names: Iterable[str], specs: Specs, evaluate: Evaluate
) -> Iterator[tuple[str, str]]:
    """Everything that is wrong with a host's variables, as (variable, what is wrong with it).

    The variable is empty where the sentence stands for itself.
    """
    defined = set(names)
    yield from unknown_variables(defined, specs)
    for options in specs.values():
        for name, option in options.items():
            if name not in defined:
                continue
            try:
                value = evaluate(name)
            except AnsibleError as error:
                last = cause(error)
                # Our own filters say what is wrong and where; a variable's name adds nothing.
                known = isinstance(last, AnsibleFilterError)
                yield ("", str(last)) if known else (name, f"cannot be evaluated: {last}")
                continue
            if problem := type_problem(name, option, value):
                yield name, problem
            elif option.get("no_log") and (problem := secret_problem(value)):
                yield (
                    name,
                    f"{problem}; remove it to have one made at random, or set it in the vault.",
                )


def cause(error: BaseException) -> BaseException:
    """The last link of an error's chain: what went wrong, without where Ansible noticed it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


class ActionModule(ActionBase):
    """`preflight_variables: {roles: FOLDER, sources: [FILE or FOLDER, …]}`.

    Returns `problems`, a list of sentences, empty when nothing is wrong. It does not fail: the
    playbook stops all hosts at once, with each sentence told once.
    """

    _requires_connection = False

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        del tmp
        variables = task_vars or {}
        arguments = self._task.args
        found = variable_problems(
            variables,
            read_specs(arguments["roles"]),
            lambda name: self._templar.template(variables[name]),
        )
        problems = [
            f"{name}{where_set(name, arguments['sources'])} {problem}" if name else problem
            for name, problem in found
        ]
        return {"changed": False, "problems": problems}
