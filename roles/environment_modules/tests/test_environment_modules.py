"""What is refused, and what the modulefiles are."""

import re
from pathlib import Path

import pytest

from playbooks.filter_plugins.verify import verify_failures
from roles.environment_modules.filter_plugins import environment_modules as modules

ROLE = Path(__file__).resolve().parents[1]
MARK = "-- environment_modules: "
ROOT = "/opt/modules"


def module(name="gcc", version="14.2", **more):
    entry = {"name": name, "version": version, "description": "x", "kind": "variables"}
    return entry | more


def problems(*entries, root=ROOT, extra=(), others=()):
    return modules.problems(list(entries), root, list(extra), list(others))


def files(*entries):
    return modules.files(list(entries), MARK)


def test_what_is_well_written_is_not_refused():
    assert (
        problems(
            module(default=True, conflict=["llvm/20", "icc"]),
            module(version="13.1"),
            module("llvm", "20", kind="folder", folder="/apps/llvm 20", family="compiler"),
            module("py", "3.13", kind="venv", folder="/apps/py", prepend_path={"A": ["/b", "/c"]}),
            module("c++", "1", setenv={"A": "", "B_1": '$HOME; `x`\t"', "N": 7}),
            extra=["/shared/spack/share/spack/lmod/Core", "/cvmfs/software.eessi.io"],
            others=["icc"],
        )
        == []
    )
    assert problems() == []


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        *((module(name), f'[0].name is "{name}"; a name') for name in ("my gcc", "gcc/14", ".gcc")),
        (module(version=""), '[0].version is ""; a version is made of letters'),
        (module(version="default"), '[0].version is "default"; a version is made'),
        (module(version=3.1), "[0].version is the number 3.1, which may not be what was written"),
        (module(version=14), "[0].version is the number 14, which may not"),
        (module(kind="folder"), "gcc/14.2 is of kind folder and has no folder; say where"),
        (module(kind="venv"), "gcc/14.2 is of kind venv and has no folder"),
        (module(folder="/a"), "gcc/14.2 has a folder and is of kind variables; take"),
        (module(kind="folder", folder="apps/gcc"), 'has the folder "apps/gcc"; give an absolute'),
        (module(kind="folder", folder="/a:/b"), 'has the folder "/a:/b"; give an absolute'),
        (module(prepend_path={"PATH": "bin"}), 'prepends "bin" to PATH; give an absolute path'),
        (module(prepend_path={"PATH": ["/a", "/b:/c"]}), 'prepends "/b:/c" to PATH'),
        (module(prepend_path={"A-B": "/a"}), 'has "A-B" in prepend_path, which is no name'),
        (module(setenv={"1A": "x"}), 'has "1A" in setenv, which is no name of a variable'),
        (module(setenv={"A": "x\ny"}), "sets A to a text of several lines, which Lmod cannot"),
        (module(family="my mpi"), 'is of the family "my mpi"; a family is made of'),
        (module(conflict=["llvm"]), "gcc/14.2 conflicts with llvm, which is not in environment"),
        (module(conflict=["gcc"]), "gcc/14.2 conflicts with itself; Lmod never loads two"),
        (module(conflict=["gcc/9"]), "gcc/14.2 conflicts with gcc/9, which is not in"),
    ],
)
def test_a_bad_module_is_one_sentence(entry, words):
    (sentence,) = problems(entry)
    assert sentence.startswith("environment_modules: ")
    assert words in sentence
    assert sentence.endswith(".")


def test_a_name_has_one_default_and_a_version_once():
    (sentence,) = problems(module(default=True), module(version="13.1", default=True))
    assert sentence == "environment_modules: gcc has 2 defaults, 14.2, 13.1; leave one."
    (sentence,) = problems(module(), module())
    assert sentence.startswith("environment_modules: gcc/14.2 is 2 times in")


@pytest.mark.parametrize("path", ["modules", "/a b", "/a/*", "/", "/a/", "", "/a:/b", "/a/$USER"])
def test_a_tree_that_lmod_could_not_find_is_refused(path):
    (sentence,) = problems(root=path)
    assert f'environment_modules_root has "{path}"; give an absolute path' in sentence
    (sentence,) = problems(extra=["/fine", path])
    assert f'environment_modules_extra_paths has "{path}"' in sentence


def unquoted(text):
    """What Lua reads in a string as the role writes it."""
    assert re.fullmatch(r'"(?:[^"\\\x00-\x1f\x7f]|\\["\\]|\\\d{3})*"', text), text
    return re.sub(
        r'\\(["\\]|\d{3})',
        lambda match: match[1] if match[1] in '"\\' else chr(int(match[1])),
        text[1:-1],
    )


@pytest.mark.parametrize(
    "text",
    ["", 'a"b', "a\\", '\\"', "]] --[[ x", "a\nb\r\0\x7f1", "\\n", "ü €", "$(x) `y` 'z'", "\t9"],
)
def test_a_text_is_the_same_in_lua(text):
    assert unquoted(modules.quoted(text)) == text


def test_a_modulefile_of_variables():
    entry = module(
        description='Compilers\n"new"',
        prepend_path={"PATH": ["/a", "/b"], "CPATH": "/c"},
        setenv={"CC": "gcc", "N": 4},
        family="compiler",
    )
    assert files(entry) == {
        "gcc/14.2.lua": """\
-- Managed by Ansible; changes made here are lost.
-- environment_modules: gcc/14.2.lua
whatis("Name: gcc")
whatis("Version: 14.2")
whatis("Description: Compilers \\"new\\"")
help("Compilers\\010\\"new\\"")
family("compiler")
prepend_path("PATH", "/b")
prepend_path("PATH", "/a")
prepend_path("CPATH", "/c")
setenv("CC", "gcc")
setenv("N", "4")
"""
    }


def test_a_folder_is_looked_at_when_it_is_loaded():
    (text,) = files(module(kind="folder", folder='/apps/"x"')).values()
    assert 'local root = "/apps/\\"x\\""\n' in text
    assert 'if mode() == "load" and not isDir(root) then\n   LmodError("gcc/14.2 cannot' in text
    assert '   {"PATH", "bin"},\n' in text
    assert '   {"MANPATH", "share/man"},\n' in text


def test_a_virtual_environment_is_one():
    (text,) = files(module(kind="venv", folder="/venv")).values()
    assert 'not isFile(pathJoin(root, "bin/python")) then\n' in text
    assert 'prepend_path("PATH", pathJoin(root, "bin"))\nsetenv("VIRTUAL_ENV", root)\n' in text


def test_a_default_is_a_file_of_its_own():
    written = files(module(default=True), module(version="15.1"))
    assert sorted(written) == ["gcc/.modulerc.lua", "gcc/14.2.lua", "gcc/15.1.lua"]
    assert written["gcc/.modulerc.lua"] == (
        "-- Managed by Ansible; changes made here are lost.\n"
        "-- environment_modules: gcc/.modulerc.lua\n"
        'module_version("gcc/14.2", "default")\n'
    )


def test_a_conflict_holds_both_ways():
    written = files(
        module(conflict=["llvm", "mpi/2", "cuda"]),
        module("llvm", "20", conflict=["gcc"]),
        module("llvm", "21"),
        module("mpi", "1"),
        module("mpi", "2"),
    )
    conflicts = {
        path: re.findall(r'^conflict\("(.*)"\)$', text, re.MULTILINE)
        for path, text in written.items()
    }
    assert conflicts == {
        "gcc/14.2.lua": ["llvm", "mpi/2", "cuda", "llvm/20"],
        "llvm/20.lua": ["gcc/14.2", "gcc"],
        "llvm/21.lua": ["gcc/14.2"],
        "mpi/1.lua": [],
        "mpi/2.lua": ["gcc/14.2"],
    }


SAID = """\
/opt/modules/modulefiles:
gcc/
gcc/13.1
gcc/14.2 (D)
mine/1
/other/modulefiles:
llvm/20
----
/opt/modules/modulefiles:
gcc/13.1
/other/modulefiles:
"""


def failures(*entries, output=SAID, cache="valid"):
    return verify_failures(
        modules.rows(list(entries), "/opt/modules/modulefiles", output, {"cache": cache})
    )


def test_users_who_have_all_modules_pass():
    assert failures(module(), module(version="13.1", default=True)) == []
    assert failures() == []


@pytest.mark.parametrize(
    ("entry", "more", "words"),
    [
        (module("llvm", "20"), {}, "modules is 0 of 1, expected 1 of 1; llvm/20: look whether"),
        (module(default=True), {}, "defaults is 0 of 1, expected 1 of 1; gcc/14.2: another tree"),
        (module(), {"cache": "old"}, "Lmod's cache is old, expected valid"),
        (module(), {"cache": "missing"}, "Lmod's cache is missing, expected valid"),
    ],
)
def test_what_users_lack_is_told(entry, more, words):
    (sentence,) = failures(entry, **more)
    assert words in sentence


def test_a_host_without_lmod_is_told():
    for output in ("", "bash: line 1: module: command not found\n----\n"):
        assert "module in a batch script is " in failures(output=output)[0]
