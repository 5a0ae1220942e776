"""Which parts of scripts/test a change touches, and so which `scripts/test --changed BASE` runs.

    python3 -m tests.runner.changed BASE     prints them, one a line

A change is what differs from where this branch left BASE: commits, and what is not committed. A
file that no rule knows is everything, and so is a BASE that shares no history with the checkout.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.runner import chains

REPOSITORY = Path(__file__).resolve().parents[2]

# Parts are named as in the summary, without the system; `unit FILE` is some of `unit`.
LINT = (
    "ansible-lint",
    "yamllint",
    "ruff",
    "format",
    "mypy",
    "mypy 3.10",
    "shellcheck",
    "check-role-specs",
    "pages",
    "collections",
)
UNIT = "unit"
GENERAL_TESTS = "unit tests"
VALIDATION_TESTS = "unit validation/tests"
CLUSTER = "cluster"

# Programs that nothing else runs: their own tests show them whole.
ALONE = (
    "campaign",
    "collection",
    "dashboards",
    "docs",
    "lock",
    "mutate",
    "new-role",
    "pack-local",
    "record-machine",
    "release",
)

COMMANDS = re.compile(r"^ *```(?:sh|console)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
# Code and tasks that name it; not sentences that speak of `python -m validation.run`.
OF_VALIDATION = re.compile(
    r"^ *(?:from|import) validation\b|[\"']validation[\"'/]|/validation/", re.MULTILINE
)

# What runs on nodes, and packed on other machines, with the Python there.
CARRIED = re.compile(
    r"(cluster|validation|roles/(backup|gpu_exporter|slurm_exporter|job_report)/files"
    r"|roles/user_examples/files/login_message)/"
)

Parts = frozenset[str]


class Unknown(Exception):
    """What the change touches cannot be told, so it is everything; one sentence."""


@dataclass(frozen=True)
class Tree:
    """What a checkout says of how its parts hang together."""

    root: Path = REPOSITORY

    # --- what there is ---

    @cached_property
    def scenarios(self) -> Mapping[str, Parts]:
        """The parts of each role."""
        by_role: dict[str, set[str]] = {}
        for path in sorted(self.root.glob("roles/*/molecule/*/molecule.yml")):
            _, role, _, scenario, _ = path.relative_to(self.root).parts
            by_role.setdefault(role, set()).add(of_role(role, scenario))
        return {role: frozenset(parts) for role, parts in by_role.items()}

    @cached_property
    def clusters(self) -> Parts:
        return frozenset(
            of_cluster(path.parent.name) for path in self.root.glob("molecule/*/molecule.yml")
        )

    @cached_property
    def everything(self) -> Parts:
        lint = {f"lint {name}" for name in LINT}
        return self.clusters.union(lint, {UNIT}, *self.scenarios.values())

    # --- what hangs together ---

    @cached_property
    def below(self) -> Mapping[str, frozenset[str]]:
        """Each role with the roles that its scenarios apply first, directly or not."""
        builds_on = chains.read(self.root).builds_on
        return chains.everything_below(builds_on)

    @cached_property
    def in_playbooks(self) -> frozenset[str]:
        """The roles that a playbook applies, and so the clusters' scenarios."""
        playbooks = [*self.root.glob("playbooks/*.yml"), *self.root.glob("playbooks/tasks/*.yml")]
        words = {word for path in playbooks for word in re.findall(r"\w+", text_of(path))}
        return frozenset(self.scenarios) & words

    @cached_property
    def unit_tests(self) -> Mapping[str, str]:
        """The files of the stage `unit` with their texts."""
        folders = ("tests", "cluster/tests", "validation/tests", "roles/*/tests")
        paths = (path for folder in folders for path in self.root.glob(f"{folder}/test_*.py"))
        return {str(path.relative_to(self.root)): text_of(path) for path in sorted(paths)}

    def unit_tests_of(self, roles: Iterable[str]) -> Parts:
        """Not every role has Python of its own."""
        folders = (f"roles/{role}/tests" for role in roles)
        return frozenset(f"unit {path}" for path in folders if (self.root / path).is_dir())

    def unit_that_says(self, pattern: str) -> Parts:
        """The unit tests whose text has this."""
        paths = (path for path, text in self.unit_tests.items() if re.search(pattern, text))
        return frozenset(f"unit {path}" for path in paths)

    @cached_property
    def carriers(self) -> frozenset[str]:
        """The roles that bring some of the validation to nodes, or reckon with it here."""
        modules, words = self._validation_in_playbooks()
        any_module, any_word = one_of(modules), one_of(words)
        imports = re.compile(rf"^ *from playbooks\b.*\b{any_module}\b", re.MULTILINE)
        # As an action, a filter, or the name of a lookup.
        uses = re.compile(rf"^ +{any_word}:|\| *{any_word}\b|lookup\(.{any_word}\b", re.MULTILINE)
        roles = set()
        for role in self.scenarios:
            files = (self.root / "roles" / role).rglob("*")
            for text in (text_of(path) for path in files if path.suffix in {".py", ".yml", ".j2"}):
                if any(pattern.search(text) for pattern in (OF_VALIDATION, imports, uses)):
                    roles.add(role)
                    break
        return frozenset(roles)

    def _validation_in_playbooks(self) -> tuple[set[str], set[str]]:
        """Modules of playbooks/ that name the validation, and what tasks call of them.

        What imports those in turn is not looked for: that is the playbooks, which the cluster runs.
        """
        texts = {path: text_of(path) for path in self.root.glob("playbooks/*/*.py")}
        modules = {path: text for path, text in texts.items() if OF_VALIDATION.search(text)}
        words = set()
        for path, text in modules.items():
            if path.parent.name == "filter_plugins":
                words.update(re.findall(r'"(\w+)": \w', text))
            elif path.parent.name in {"action_plugins", "lookup_plugins"}:
                words.add(path.stem)
        return {path.stem for path in modules}, words

    def of_roles(self, roles: Iterable[str]) -> Parts:
        """What tests these roles as they are: on nodes, by themselves and below others."""
        wanted = frozenset(roles)
        over = {role for role, below in self.below.items() if below & wanted} | wanted
        parts = frozenset().union(*(self.scenarios[role] for role in over))
        parts |= self.scenarios_that_apply(wanted)
        return parts | (self.clusters if wanted & self.in_playbooks else frozenset())

    def scenarios_that_apply(self, roles: frozenset[str]) -> Parts:
        """Scenarios that are no role's first one, and prepare more than that does."""
        any_role = one_of(roles)
        named = re.compile(
            rf"\b(?:role|name): {any_role}\s|^ +- {any_role}$"
            rf"|^ +scenario_builds_on: \[.*\b{any_role}\b",
            re.MULTILINE,
        )
        return frozenset(
            of_role(path.parts[-4], path.parts[-2])
            for path in self.root.glob("roles/*/molecule/*/*.yml")
            if (path.parent / "molecule.yml").exists() and named.search(text_of(path))
        )


def of_role(role: str, scenario: str = "default") -> str:
    return f"role {role}" if scenario == "default" else f"role {role}/{scenario}"


def of_cluster(scenario: str) -> str:
    return CLUSTER if scenario == "default" else f"{CLUSTER}/{scenario}"


def one_of(names: Iterable[str]) -> str:
    """A pattern; of no names, one that nothing has."""
    return rf"(?:{'|'.join(map(re.escape, sorted(names))) or '(?!)'})"


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


# --- one rule for each kind of file ---------------------------------------------------------------


def lint_of(tree: Tree, path: str) -> Parts:
    """The checkers that read this file."""
    names: set[str] = set()
    text = text_of(tree.root / path)
    first = text.partition("\n")[0]
    if path.endswith(".py") or (first.startswith("#!") and "python" in first):
        names |= {"ruff", "format", "mypy"}
        if CARRIED.match(path):
            names.add("mypy 3.10")
    elif path.endswith((".yml", ".yaml")):
        names |= {"yamllint", "ansible-lint"}
    elif first.startswith("#!") and first.endswith("sh"):
        names.add("shellcheck")
    if path.startswith("roles/"):
        names.add("check-role-specs")
    if path.endswith(".md") or path.startswith(("docs/", "cluster/", "validation/", "scripts/")):
        names.add("pages")
    return frozenset(f"lint {name}" for name in names)


def everything(tree: Tree, path: str, base: str) -> Parts:
    return tree.everything


def general_test(tree: Tree, path: str, base: str) -> Parts:
    """A test in tests/, which belongs to no role and no package."""
    return (
        frozenset({f"unit {path}"}) if (tree.root / path).exists() else frozenset({GENERAL_TESTS})
    )


def golden(tree: Tree, path: str, base: str) -> Parts:
    return frozenset({GENERAL_TESTS})


def validation(tree: Tree, path: str, base: str) -> Parts:
    carried = tree.of_roles(tree.carriers) | tree.unit_tests_of(tree.carriers)
    return carried | tree.clusters | {GENERAL_TESTS, VALIDATION_TESTS}


def validation_test(tree: Tree, path: str, base: str) -> Parts:
    """Test files import each other's helpers, and some of tests/ and molecule/ do too."""
    return frozenset({VALIDATION_TESTS, GENERAL_TESTS})


def role(tree: Tree, path: str, base: str) -> Parts:
    name = path.split("/")[1]
    if name not in tree.scenarios:
        raise Unknown(f"{path}: there is no role {name}")
    others = tree.unit_that_says(rf"roles[./]{name}\b")
    return tree.of_roles({name}) | others | tree.unit_tests_of([name]) | {GENERAL_TESTS}


def role_unit_test(tree: Tree, path: str, base: str) -> Parts:
    name = path.split("/")[1]
    others = tree.unit_that_says(rf"roles[./]{name}[./]tests\b")
    return others | tree.unit_tests_of([name])


def role_scenario(tree: Tree, path: str, base: str) -> Parts:
    """The scenarios of a role share what they like; others read what they build on."""
    name = path.split("/")[1]
    if name not in tree.scenarios:
        raise Unknown(f"{path}: there is no role {name}")
    return tree.scenarios[name] | {GENERAL_TESTS}


def cluster_scenario(tree: Tree, path: str, base: str) -> Parts:
    """Scenarios beside the first one may take over some of its tests."""
    scenario = path.split("/")[1]
    if of_cluster(scenario) not in tree.clusters:
        raise Unknown(f"{path}: there is no scenario {scenario}")
    if scenario == "default":
        return tree.clusters | {GENERAL_TESTS}
    return frozenset({of_cluster(scenario), GENERAL_TESTS})


def page(tree: Tree, path: str, base: str) -> Parts:
    """Tests that read pages; where a page's commands differ, the cluster that they are run on."""
    parts = tree.unit_that_says(r"docs|runbooks|\.md\b") | {GENERAL_TESTS}
    name = re.escape(Path(path).name)
    for file in tree.root.glob("roles/*/molecule/*/tests/*.py"):
        if path.startswith("docs/") and re.search(name, text_of(file)):
            parts |= tree.scenarios[file.relative_to(tree.root).parts[1]]
    if COMMANDS.findall(text_of(tree.root / path)) != COMMANDS.findall(text_at(tree, path, base)):
        parts |= {CLUSTER}
    return parts


def program(tree: Tree, path: str, base: str) -> Parts:
    parts = tree.unit_that_says(rf"\b{re.escape(Path(path).name)}\b")
    if not parts:
        raise Unknown(f"{path}: no unit test names it")
    return parts | tree.clusters  # the commands of the pages run some


def repository_file(tree: Tree, path: str, base: str) -> Parts:
    return frozenset({GENERAL_TESTS})


Rule = Callable[[Tree, str, str], Parts]

# The first pattern that a path begins with counts.
RULES: tuple[tuple[str, Rule], ...] = (
    (r"docs/|\w+\.md$|roles/\w+/README\.md$", page),
    (r"(LICENSE|\.gitignore)$", repository_file),
    (r"cluster/tests/", general_test),
    (r"validation/tests/", validation_test),
    (r"validation/", validation),
    (r"roles/\w+/tests/", role_unit_test),
    (r"roles/\w+/molecule/", role_scenario),
    (r"roles/\w+/", role),
    (r"molecule/shared/", everything),
    (r"molecule/\w+/", cluster_scenario),
    (r"tests/test_\w+\.py$", general_test),
    (r"tests/golden/", golden),
    (rf"scripts/({'|'.join(ALONE)})$", program),
    # What all parts stand on.
    (r"(cluster|playbooks|group_vars|inventory|scripts|tests)/", everything),
    (r"(\.ci|\.config)/", everything),
    (r"(ansible\.cfg|conftest\.py|pyproject\.toml|\.yamllint)$", everything),
    (r"requirements[\w-]*\.(in|txt|yml)$", everything),
)


def parts_of(tree: Tree, path: str, base: str = "HEAD") -> Parts:
    """What a change of this file touches."""
    for pattern, rule in RULES:
        if re.match(pattern, path):
            return rule(tree, path, base) | lint_of(tree, path)
    raise Unknown(f"{path}: no rule of {Path(__file__).name} knows it")


def without_repetition(parts: Parts) -> Parts:
    """`unit` has all its files, and a folder those in it."""
    whole = {part for part in parts if part.startswith("unit ")}
    if UNIT in parts:
        return parts - whole
    return parts - {inner for inner in whole for other in whole if inner.startswith(f"{other}/")}


def touched(tree: Tree, paths: Iterable[str], base: str) -> Parts:
    parts: Parts = frozenset()
    for path in paths:
        parts |= parts_of(tree, path, base)
    return without_repetition(parts)


# --- what git says --------------------------------------------------------------------------------


def git(tree: Tree, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments],
        cwd=tree.root,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        words = done.stderr.strip().splitlines()
        raise Unknown(f"git {arguments[0]}: {words[-1] if words else 'no answer'}")
    return done.stdout


def text_at(tree: Tree, path: str, commit: str) -> str:
    """The file as it was; nothing where it was not there."""
    try:
        return git(tree, "show", f"{commit}:{path}")
    except Unknown:
        return ""


def paths_since(tree: Tree, commit: str) -> list[str]:
    """All files that differ from a commit, those that git does not know yet included."""
    differ = git(tree, "diff", "--name-only", "--no-renames", "-z", commit)
    new = git(tree, "ls-files", "--others", "--exclude-standard", "-z")
    return sorted({path for path in (differ + new).split("\0") if path})


def main(base: str) -> int:
    tree = Tree()
    try:
        commit = git(tree, "merge-base", base, "HEAD").strip()
        paths = paths_since(tree, commit)
        parts = touched(tree, paths, commit)
        print(f"test: {len(paths)} files differ from {base}", file=sys.stderr)
    except (Unknown, chains.Wrong) as unknown:
        print(f"test: {unknown}: this is everything", file=sys.stderr)
        parts = tree.everything
    print(*sorted(parts), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
