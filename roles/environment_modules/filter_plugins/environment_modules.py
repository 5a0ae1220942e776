"""Modules as a site declares them: what is wrong with them, and their modulefiles for Lmod.

A modulefile is a program in Lua, so every text that a site wrote is in it as a quoted string. What
one module says of another, a conflict, is written into both: Lmod asks only the one that is loaded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from playbooks.filter_plugins.verify import verify_row

Module = Mapping[str, Any]

COMPONENT = "environment_modules"
HEADER = "-- Managed by Ansible; changes made here are lost."
LIST = f"{COMPONENT}_modulefiles"

# Of what a name is made: it is a file's, and a word of a command.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Of what the path of a tree is made: Lmod's file of them has no quoting, and the shell reads it.
TREE = re.compile(r"(/[A-Za-z0-9._+@=,-]+)+")
# Lmod's names for the default of a folder; as a version they would mean something else.
RESERVED = {"default"}

# What is in a folder that programs were installed into, and who looks for it; as EasyBuild has it.
FOLDERS = (
    ("PATH", "bin"),
    ("LD_LIBRARY_PATH", "lib"),
    ("LD_LIBRARY_PATH", "lib64"),
    ("LIBRARY_PATH", "lib"),
    ("LIBRARY_PATH", "lib64"),
    ("CPATH", "include"),
    ("MANPATH", "share/man"),
    ("PKG_CONFIG_PATH", "lib/pkgconfig"),
    ("PKG_CONFIG_PATH", "lib64/pkgconfig"),
    ("PKG_CONFIG_PATH", "share/pkgconfig"),
    ("CMAKE_PREFIX_PATH", "."),
)


def full_name(module: Module) -> str:
    return f"{module['name']}/{module['version']}"


def texts(value: Any) -> list[str]:
    """One text or several, as a list."""
    return [str(item) for item in (value if isinstance(value, list) else [value])]


# --- what is wrong -------------------------------------------------------------------------------


def problems(
    modules: Sequence[Module], root: str, extra_paths: Iterable[str], other_names: Iterable[str]
) -> list[str]:
    """A sentence for each thing that cannot work."""
    sentences = [*_trees(root, extra_paths)]
    for number, module in enumerate(modules):
        unnamed = list(_naming(number, module))
        sentences += unnamed or [
            f"{COMPONENT}: {full_name(module)} {sentence}" for sentence in _module_problems(module)
        ]
    # What has no name cannot be compared with others.
    if not sentences:
        sentences += [f"{COMPONENT}: {sentence}" for sentence in _together(modules, other_names)]
    return sentences


def _trees(root: str, extra_paths: Iterable[str]) -> Iterator[str]:
    named = [(f"{COMPONENT}_root", root)]
    named += [(f"{COMPONENT}_extra_paths", path) for path in extra_paths]
    for variable, path in named:
        if not TREE.fullmatch(str(path)):
            yield (
                f'{COMPONENT}: {variable} has "{path}"; give an absolute path of letters, digits '
                "and ._+@=,- without a slash at its end, as Lmod's list of paths has no quoting."
            )


def _naming(number: int, module: Module) -> Iterator[str]:
    for key in ("name", "version"):
        value = module.get(key, "")
        if not isinstance(value, str):
            yield (
                f"{COMPONENT}: {LIST}[{number}].{key} is the number {value}, which may not be what "
                f'was written (3.10 is 3.1); put it in quotes: "{value}".'
            )
        elif not NAME.fullmatch(value) or value in RESERVED:
            yield (
                f'{COMPONENT}: {LIST}[{number}].{key} is "{value}"; a {key} is made of letters, '
                "digits and ._+-, begins with a letter or digit, and is not the word default."
            )


def _module_problems(module: Module) -> Iterator[str]:
    """What is wrong with a module by itself, after its name."""
    kind, folder = module.get("kind"), module.get("folder")
    if kind == "variables" and folder:
        yield "has a folder and is of kind variables; take the folder away, or choose kind folder."
    elif kind != "variables" and not folder:
        yield f"is of kind {kind} and has no folder; say where it is installed."
    elif folder and not _is_path(folder):
        yield f'has the folder "{folder}"; give an absolute path without colons.'
    for variable, value in (module.get("prepend_path") or {}).items():
        if not VARIABLE.fullmatch(str(variable)):
            yield f'has "{variable}" in prepend_path, which is no name of a variable.'
        for path in texts(value):
            if not _is_path(path):
                yield (
                    f'prepends "{path}" to {variable}; give an absolute path without colons, and a '
                    "list for several."
                )
    for variable, value in (module.get("setenv") or {}).items():
        if not VARIABLE.fullmatch(str(variable)):
            yield f'has "{variable}" in setenv, which is no name of a variable.'
        if not _is_line(str(value)):
            yield f"sets {variable} to a text of several lines, which Lmod cannot; write one line."
    family = module.get("family")
    if family and not NAME.fullmatch(str(family)):
        yield f'is of the family "{family}"; a family is made of letters, digits and ._+-.'


def _is_line(text: str) -> bool:
    return all(character == "\t" or ord(character) >= 32 for character in text)


def _is_path(text: Any) -> bool:
    return str(text).startswith("/") and ":" not in str(text) and _is_line(str(text))


def _together(modules: Sequence[Module], other_names: Iterable[str]) -> Iterator[str]:
    names = Counter(map(full_name, modules))
    for name, times in names.items():
        if times > 1:
            yield f"{name} is {times} times in {LIST}; leave one."
    defaults = Counter(str(module["name"]) for module in modules if module.get("default"))
    for name, times in defaults.items():
        if times > 1:
            versions = ", ".join(
                str(entry["version"])
                for entry in modules
                if entry["name"] == name and entry.get("default")
            )
            yield f"{name} has {times} defaults, {versions}; leave one."
    known = {*names, *(str(module["name"]) for module in modules), *map(str, other_names)}
    for module in modules:
        for other in texts(module.get("conflict") or []):
            if other in {module["name"], full_name(module)}:
                yield (
                    f"{full_name(module)} conflicts with itself; Lmod never loads two versions of "
                    "a module, so leave it out."
                )
            elif other not in known:
                yield (
                    f"{full_name(module)} conflicts with {other}, which is not in {LIST}; correct "
                    f"it, or name it in {COMPONENT}_other_names if it is of another tree."
                )


# --- modulefiles ---------------------------------------------------------------------------------


def quoted(text: Any) -> str:
    """A string of Lua. Nothing in it ends the string, or means something else."""
    escaped = "".join(
        f"\\{character}"
        if character in '\\"'
        else f"\\{ord(character):03d}"
        if ord(character) < 32 or ord(character) == 127
        else character
        for character in str(text)
    )
    return f'"{escaped}"'


def call(function: str, *arguments: Any) -> str:
    return f"{function}({', '.join(map(quoted, arguments))})"


def files(modules: Sequence[Module], mark: str) -> dict[str, str]:
    """The modulefiles by their path below the tree, and a file for each name with a default."""
    conflicts = _conflicts(modules)
    written = {}
    for module in modules:
        name = full_name(module)
        written[f"{name}.lua"] = _lines(module, conflicts[name])
        if module.get("default"):
            written[f"{module['name']}/.modulerc.lua"] = [call("module_version", name, "default")]
    return {
        path: "\n".join([HEADER, f"{mark}{path}", *lines, ""])
        for path, lines in sorted(written.items())
    }


def _conflicts(modules: Sequence[Module]) -> dict[str, list[str]]:
    """Of each module the names that it conflicts with, also those that say so themselves."""
    conflicts: dict[str, list[str]] = {full_name(module): [] for module in modules}
    for module in modules:
        for other in texts(module.get("conflict") or []):
            conflicts[full_name(module)].append(other)
            for peer in modules:
                if other in {peer["name"], full_name(peer)}:
                    conflicts[full_name(peer)].append(full_name(module))
    return {name: list(dict.fromkeys(others)) for name, others in conflicts.items()}


def _lines(module: Module, conflicts: Iterable[str]) -> list[str]:
    description = str(module.get("description") or "").strip()
    lines = [
        call("whatis", f"Name: {module['name']}"),
        call("whatis", f"Version: {module['version']}"),
        call("whatis", f"Description: {' '.join(description.split())}"),
        call("help", description),
        *(call("conflict", other) for other in conflicts),
    ]
    if family := module.get("family"):
        lines.append(call("family", family))
    if module["kind"] == "folder":
        lines += _folder(module)
    elif module["kind"] == "venv":
        lines += _venv(module)
    for variable, value in (module.get("prepend_path") or {}).items():
        # What is prepended last comes first.
        lines += [call("prepend_path", variable, path) for path in reversed(texts(value))]
    for variable, value in (module.get("setenv") or {}).items():
        lines.append(call("setenv", variable, value))
    return lines


def _needs(module: Module, test: str, what: str) -> list[str]:
    """A module whose programs are not on this host says so, and is not half loaded."""
    message = f"{full_name(module)} cannot be loaded on this host: there is no {what}"
    return [
        f"local root = {quoted(module['folder'])}",
        f'if mode() == "load" and not {test} then',
        f"   {call('LmodError', message)}",
        "end",
    ]


def _folder(module: Module) -> list[str]:
    pairs = [f"   {{{quoted(variable)}, {quoted(below)}}}," for variable, below in FOLDERS]
    return [
        *_needs(module, "isDir(root)", f"folder {module['folder']}"),
        "for _, entry in ipairs({",
        *pairs,
        "}) do",
        '   local folder = entry[2] == "." and root or pathJoin(root, entry[2])',
        "   -- What went away since is taken back all the same.",
        '   if isDir(folder) or mode() == "unload" then',
        "      prepend_path(entry[1], folder)",
        "   end",
        "end",
    ]


def _venv(module: Module) -> list[str]:
    return [
        *_needs(
            module,
            'isFile(pathJoin(root, "bin/python"))',
            f"virtual environment in {module['folder']}",
        ),
        'prepend_path("PATH", pathJoin(root, "bin"))',
        'setenv("VIRTUAL_ENV", root)',
        'unsetenv("PYTHONHOME")',
    ]


# --- what users have -----------------------------------------------------------------------------


def section(listing: str, folder: str) -> list[str]:
    """The modules that a terse list names below a tree."""
    names: list[str] = []
    inside = False
    for line in listing.splitlines():
        if line.endswith(":"):
            inside = line == f"{folder}:"
        elif inside and not line.endswith("/"):
            names.append(line.partition("(")[0].strip())
    return names


def rows(
    modules: Sequence[Module], folder: str, output: str, tree: Mapping[str, Any]
) -> list[dict[str, str]]:
    """The verify table's rows. `output` is what a batch script of an ordinary user heard from Lmod.

    Lists of all modules and of the defaults, with a line of dashes between them.
    """
    every, _, defaults = output.partition("\n----\n")
    there, chosen = set(section(every, folder)), set(section(defaults, folder))
    declared = sorted(map(full_name, modules))
    marked = sorted(full_name(module) for module in modules if module.get("default"))
    spoke = "\n----\n" in output and "command not found" not in output
    works = "works" if spoke else " ".join(output.split())[-200:]
    return [
        verify_row(works, COMPONENT, "module in a batch script", "works", "apply the role"),
        _count("modules", declared, there, "look whether users may read the tree"),
        _count("defaults", marked, chosen, "another tree before this one may have the name"),
        verify_row(
            tree.get("cache"),
            COMPONENT,
            "Lmod's cache",
            "valid",
            "run systemctl start plumbline-module-cache where the tree is written",
        ),
    ]


def _count(what: str, declared: Sequence[str], there: set[str], advice: str) -> dict[str, str]:
    absent = [name for name in declared if name not in there]
    all_of_them = f"{len(declared)} of {len(declared)}"
    count = f"{len(declared) - len(absent)} of {len(declared)}"
    hint = f"{', '.join(absent)}: {advice}" if absent else ""
    return verify_row(count, COMPONENT, what, all_of_them, hint)


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "environment_modules_problems": problems,
            "environment_modules_files": files,
            "environment_modules_rows": rows,
        }
