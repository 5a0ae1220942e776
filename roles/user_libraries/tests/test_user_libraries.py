"""Libraries: what is a lock, what is refused, and what hosts must have in common."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from ansible.module_utils.refused import Refused

from roles.user_libraries.filter_plugins import user_libraries as f
from roles.user_libraries.library import user_libraries as m
from roles.user_libraries.library import user_libraries_publish as p
from roles.user_libraries.library import user_libraries_verify as v
from roles.user_libraries.module_utils.user_libraries_entry import (
    CLOSED,
    LISTING,
    OPEN,
    Places,
    library_of,
    survey,
)
from roles.user_libraries.plugin_utils import lock

A, B = "a" * 64, "b" * 64
LOCKED = f"""\
# made by uv
six==1.17.0 ; python_version >= '3.9' \\
    --hash=sha256:{A} \\
    --hash=sha256:{B}
    # via tools
Some.Thing[extra]==2.13.0+cu126 --hash=sha256:{B}
"""


# --- lock files ----------------------------------------------------------------------------------


def test_a_lock_is_read_whatever_its_comments_and_its_order():
    read = lock.read(LOCKED)
    assert [(pin.name, pin.version) for pin in read.pins] == [
        ("six", "1.17.0"),
        ("some-thing", "2.13.0+cu126"),
    ]
    first, second = LOCKED.split("Some", 1)
    again = lock.read(f"Some{second}\n{first}# another comment\n")
    assert again.fingerprint == read.fingerprint
    for changed in (LOCKED.replace(A, "c" * 64), LOCKED.replace("3.9", "3.10")):
        assert lock.read(changed).fingerprint != read.fingerprint


def test_the_build_of_torch_is_the_label_of_its_version():
    assert lock.read(LOCKED).torch_build == ""
    assert lock.read(LOCKED.replace("Some.Thing", "torch")).torch_build == "cu126"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("six==1.17.0", "line 7 has no hash of six"),
        (f"six>=1.17.0 --hash=sha256:{A}", "line 7 leaves the version of six open"),
        (f"six==1.* --hash=sha256:{A}", "line 7 leaves the version of six open"),
        (f"six==1,==1.0 --hash=sha256:{A}", "line 7 leaves the version of six open"),
        (f"six --hash=sha256:{A}", "line 7 leaves the version of six open"),
        ("six==1 --hash=sha256:12", "line 7 has the hash 'sha256:12' of six"),
        (f"six==1 --hash=md5:{A}", "line 7 has the hash 'md5:"),
        (f"six @ https://example.org/six.whl --hash=sha256:{A}", "names six by an address"),
        ("--index-url https://example.org", "line 7 has the option --index-url; leave it out"),
        ("-r other.txt", "line 7 has the option -r"),
        (f"six==1 --config-settings=x --hash=sha256:{A}", "line 7 has the option --config"),
        ("???", "line 7 is no requirement ('???')"),
        ("six==1 \\\n  # said\n", "line 7 has no hash of six"),
    ],
)
def test_what_is_not_pinned_is_no_lock(line, why):
    with pytest.raises(lock.NoLock, match=re.escape(why)):
        lock.read(f"{LOCKED}{line}\n")


def test_an_empty_file_is_no_lock():
    with pytest.raises(lock.NoLock, match="name no package"):
        lock.read("# nothing\n")


# --- what is refused -----------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks/tools-1.txt").write_text(LOCKED)
    return str(tmp_path / "locks")


def entry(**changes: Any) -> dict[str, Any]:
    return {"name": "tools", "version": "1"} | changes


def sentences(folder: str, *entries: dict[str, Any], path="/opt/libraries", taken=()) -> str:
    return "; ".join(f.problems(entries, path, folder, ["/shared/"], taken))


def test_a_good_entry_is_refused_nothing(folder):
    assert sentences(folder, entry()) == ""
    assert sentences(folder, entry(requirements=f"{folder}/tools-1.txt", python="/opt/py")) == ""
    assert sentences(folder, entry(version="0", state="absent")) == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "my tools"}, '[0].name is "my tools"'),
        ({"name": ".incoming"}, '[0].name is ".incoming"'),
        ({"version": "../x"}, '[0].version is "../x"'),
        ({"version": "default"}, '[0].version is "default"'),
        ({"version": 1.1}, "the number 1.1, which may not be what was written"),
        ({"version": "2"}, "tools-2.txt: No such file or directory; make it with"),
        ({"python": "python2"}, "has the python 'python2'"),
        ({"imports": ["os; x"]}, "has 'os; x' in imports"),
        ({"content": {"x86_64": "12"}}, "has the content '12' of x86_64"),
    ],
)
def test_a_bad_entry_is_refused_in_a_sentence(folder, changes, words):
    assert words in sentences(folder, entry(**changes))


def test_a_bad_line_is_named_with_its_file(folder):
    file = Path(folder, "tools-1.txt")
    file.write_text(LOCKED + "\nwheel\n")
    assert f"tools 1 is not locked: {file}:8: this line leaves" in sentences(folder, entry())


def test_what_entries_and_modules_have_in_common_is_refused(folder):
    assert "tools 1 is 2 times in" in sentences(folder, entry(), entry())
    assert "tools/1 is the name of another module" in sentences(folder, entry(), taken=["tools/1"])
    assert "user_libraries_path is 'opt'" in sentences(folder, entry(), path="opt")
    assert "a whole shared filesystem" in sentences(folder, entry(), path="/shared")
    assert "give a full path, or set user_libraries_folder" in sentences("", entry())


# --- what hosts are told -------------------------------------------------------------------------


def sources(**changes: Any) -> dict[str, Any]:
    return {"index": "", "others": [], "torch": "https://t/{build}", "wheels": ""} | changes


def test_wheels_are_looked_for_where_the_site_says(folder):
    (told,) = f.wanted([entry()], folder, sources(index="http://m/simple", others=["https://o"]))
    assert told["options"] == [
        *("--index-url", "http://m/simple", "--trusted-host", "m"),
        *("--extra-index-url", "https://o"),
    ]
    Path(folder, "tools-1.txt").write_text(LOCKED.replace("Some.Thing", "torch"))
    (told,) = f.wanted([entry()], folder, sources())
    assert told["options"] == ["--extra-index-url", "https://t/cu126"]
    (told,) = f.wanted([entry()], folder, sources(wheels="/srv/w", index="https://i"))
    assert told["options"] == ["--no-index", "--find-links=/srv/w"]


def test_a_mirror_collects_the_locks_but_not_those_of_a_folder(folder):
    entries = [entry(), entry(version="0", state="absent")]
    (wheels,) = f.downloads(f.wanted(entries, folder, sources()))
    assert wheels == {"requirements": LOCKED, "options": ["--require-hashes"]}
    other = [entry(python="/opt/bin/python3.12")]
    (wheels,) = f.downloads(f.wanted(other, folder, sources()))
    assert wheels["python"] == "3.12"
    assert f.downloads(f.wanted(entries, folder, sources(wheels="/srv/w"))) == []


# --- hosts together ------------------------------------------------------------------------------


def host(content: str = "", *, is_open: bool = False, machine="x86_64") -> dict[str, Any]:
    there = {"tools/1": {"content": content, "python": "3.13", "open": is_open}} if content else {}
    return {f.BUILT: {"machine": machine, "there": there}}


def of(found: f.Expected) -> dict[str, tuple[str, str]]:
    return {machine: (each["content"], each["host"]) for machine, each in found["tools/1"].items()}


def test_the_first_host_says_what_the_others_must_have():
    hosts = {"a": host(), "b": host(A), "c": host(B)}
    assert of(f.expected([entry()], ["a", "b", "c"], hosts, "")) == {"x86_64": (A, "b")}
    assert of(f.expected([entry()], ["a", "b", "c"], hosts, "c")) == {"x86_64": (B, "c")}


def test_what_users_have_goes_before_what_is_new():
    hosts = {"a": host(A), "b": host(B, is_open=True)}
    assert of(f.expected([entry()], ["a", "b"], hosts, "a")) == {"x86_64": (B, "b")}


def test_the_inventory_goes_before_all_hosts():
    said = entry(content={"x86_64": B})
    found = f.expected([said], ["a"], {"a": host(A, is_open=True)}, "")
    assert of(found) == {"x86_64": (B, "the inventory")}
    assert f.contents(found) == []


def test_machines_are_compared_with_their_own_kind():
    hosts = {"a": host(A), "b": host(B, machine="aarch64")}
    found = f.expected([entry()], ["a", "b"], hosts, "a")
    assert of(found) == {"x86_64": (A, "a"), "aarch64": (B, "b")}
    assert f"tools/1 has the content {{aarch64: {B}}}" in f.contents(found)


def test_a_reference_outside_of_the_run_is_asked_and_without_an_answer_nothing_is_new():
    hosts = {"b": host(B)}
    away = host(A)[f.BUILT]
    assert of(f.expected([entry()], ["b"], hosts, "a", away)) == {"x86_64": (A, "a")}
    assert of(f.expected([entry()], ["b"], hosts, "a", {"unreachable": True})) == {}
    hosts = {"b": host(B), "c": host(A, is_open=True)}
    assert of(f.expected([entry()], ["b", "c"], hosts, "a", {})) == {"x86_64": (A, "c")}


def test_refusals_are_told_once_with_their_hosts():
    hosts = {name: {f.PLAN: {"refused": ["no"]}} for name in ("n1", "n2", "n3")}
    assert f.refused(["n1", "n2", "n3"], hosts | {"x": {}}) == ["n[1-3]: no"]


def test_nothing_declared_is_no_pass():
    assert [row["verdict"] for row in f.rows({})] == ["SKIP"]
    assert [row["verdict"] for row in f.rows({"tools/1": "x has changed"})] == ["FAIL"]


# --- on a host -----------------------------------------------------------------------------------


def wheel(folder: Path, name: str, version: str, body: str = "") -> str:
    """A wheel with a module and a program; its line in a lock."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": body or f"VERSION = {version!r}\ndef main(): print(VERSION)\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name}-program = {name}:main\n",
    }
    rows = []
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
        rows.append(f"{path},sha256={digest.decode()},{len(text)}")
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""])
    whole = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(whole, "w") as archive:
        for inside, text in files.items():
            archive.writestr(zipfile.ZipInfo(inside), text)
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(whole.read_bytes()).hexdigest()}\n"


class Site:
    """A folder of libraries, and one of wheels."""

    first = ""  # the lock of its version 1

    def __init__(self, folder: Path) -> None:
        self.places = Places(folder / "libraries")
        self.wheels, self.locks = folder / "wheels", folder / "locks"
        self.wheels.mkdir()
        self.locks.mkdir()

    def entry(self, version: str, text: str, **more: Any) -> dict[str, Any]:
        (self.locks / f"tools-{version}.txt").write_text(text)
        entries = [entry(version=version, python=sys.executable, **more)]
        (told,) = f.wanted(entries, str(self.locks), sources(wheels=str(self.wheels)))
        return told

    def run(self, *entries: dict[str, Any], check_mode: bool = False) -> dict[str, Any]:
        return m.run(entries, self.places, [], {}, check_mode)

    def publish(self, said: dict[str, Any], check_mode: bool = False) -> dict[str, Any]:
        answer = {f.BUILT: said}
        names = list(said["there"]) or ["tools/1"]
        entries = [dict(zip(("name", "version"), name.split("/"), strict=True)) for name in names]
        wanted = f.expected(entries, ["here"], {"here": answer}, "")
        return p.run(self.places, names, wanted, check_mode)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """With one version that was built and published."""
    with pytest.MonkeyPatch.context() as patch:
        # Nobody may not run the tests' own Python, or enter their folder.
        patch.setattr("ansible.module_utils.user_libraries_build.is_root", lambda: False)
        yield published_in(tmp_path_factory.mktemp("site"))


def published_in(folder: Path) -> Site:
    site = Site(folder)
    site.first = wheel(site.wheels, "alpha", "1")
    looked = site.run(site.entry("1", site.first), check_mode=True)
    assert (looked["pending"], looked["steps"]) == (True, ["tools 1 is built"])
    assert not site.places.root.exists()
    said = site.run(site.entry("1", site.first, imports=["alpha"]))
    assert said["problems"] == []
    assert site.publish(said)["problems"] == []
    return site


FOLDER = PurePosixPath("tools/1")


@pytest.mark.heavy("makes an environment of Python, with pip")
def test_a_version_is_whole_and_has_what_is_locked_and_no_more(site):
    folder = site.places.folder(FOLDER)
    assert subprocess.check_output([folder / "bin/alpha-program"], text=True) == "1\n"
    packages = {path.name for path in folder.glob("lib/python*/site-packages/*")}
    assert packages == {"alpha.py", "alpha-1.dist-info", "__pycache__"}
    assert (folder / "requirements.txt").read_text() == site.first
    assert not list(site.places.work.glob("*/*"))
    text = site.places.modulefile(FOLDER).read_text()
    assert f'local root = "{folder}"' in text
    assert survey(site.places.root)[FOLDER].content in text
    assert 'whatis("Description: tools 1")' in text


@pytest.mark.heavy("makes an environment of Python, with pip")
def test_a_second_run_changes_nothing(site):
    assert site.run()["changed"] is False  # what is published stays without its entry
    for check_mode in (True, False):
        said = site.run(site.entry("1", site.first), check_mode=check_mode)
        assert (said["changed"], said["steps"], said["problems"]) == (False, [], [])
        assert site.publish(said, check_mode) == {
            "changed": False,
            "published": ["tools/1"],
            "problems": [],
            "diff": {"prepared": ""},
        }


@pytest.mark.heavy("makes an environment of Python, with pip")
def test_a_description_may_change(site):
    said = site.run(site.entry("1", site.first, description="For all."))
    assert said["steps"] == ["tools 1 gets its new description"]
    assert site.publish(said)["changed"] is True
    assert 'help("For all. Python 3.' in site.places.modulefile(FOLDER).read_text()
    assert v.state(FOLDER, site.places) == v.AS_BUILT
    site.publish(site.run(site.entry("1", site.first)))


@pytest.mark.heavy("makes an environment of Python, with pip")
def test_another_lock_of_a_published_version_is_refused(site):
    changed = site.entry("1", site.first + wheel(site.wheels, "beta", "1"))
    looked = site.run(changed, check_mode=True)
    assert "so give the new lock a new version" in looked["refused"][0]
    with pytest.raises(Refused, match="tools 1 is published since"):
        site.run(changed)
    commented = site.run(site.entry("1", f"# anew\n{site.first}"), check_mode=True)
    assert (commented["refused"], commented["pending"]) == ([], False)


@pytest.mark.long
def test_one_that_cannot_be_had_keeps_no_other_away_and_is_not_there(site):
    line = wheel(site.wheels, "alpha", "2")
    wrong = site.entry("2", re.sub("sha256:.*", f"sha256:{A}", line))
    broken = wheel(site.wheels, "gamma", "1", "import nothing_that_is_there\n")
    said = site.run(wrong, site.entry("3", broken, imports=["gamma"]), site.entry("4", line))
    first, second = said["problems"]
    assert "tools 2 cannot be had: THESE PACKAGES DO NOT MATCH THE HASHES" in first
    assert "tools 3 cannot be had: ModuleNotFoundError: No module named 'nothing" in second
    assert sorted(said["there"]) == ["tools/1", "tools/4"]
    assert site.places.folder(PurePosixPath("tools/2")).stat().st_mode & 0o777 == CLOSED
    assert site.publish(said)["published"] == ["tools/1", "tools/4"]
    assert not site.places.modulefile(PurePosixPath("tools/2")).exists()
    gone = {"name": "tools", "state": "absent"}
    site.run(*({**gone, "version": number} for number in "234"))
    assert os.listdir(site.places.root / "tools") == ["1"]
    assert os.listdir(site.places.root / ".modulefiles/tools") == ["1.lua"]
    assert not list(site.places.work.glob("*/*"))


@pytest.mark.heavy("makes an environment of Python, with pip")
def test_a_changed_file_is_found_and_bytecode_too(site):
    folder = site.places.folder(FOLDER)
    state = v.run(site.places, ["tools/1", "tools/9"])["found"]
    assert state == {"tools/1": v.AS_BUILT, "tools/9": "missing"}
    (module,) = folder.glob("lib/python*/site-packages/alpha.py")
    (bytecode,) = folder.glob("lib/python*/site-packages/__pycache__/alpha*.pyc")
    for file in (module, bytecode, folder / "pyvenv.cfg"):
        before = file.read_bytes()
        file.write_bytes(before + b"\n")
        assert v.state(FOLDER, site.places) == f"{file.relative_to(folder)} has changed"
        file.write_bytes(before)
    extra = module.with_name("extra.pth")
    extra.write_text("import os\n")
    assert v.state(FOLDER, site.places).endswith("extra.pth was added")
    extra.unlink()
    module.chmod(0o666)
    assert "may be written to by others" in v.state(FOLDER, site.places)
    module.chmod(0o644)
    python = folder / "bin/python"
    target = os.readlink(python)
    python.unlink()
    python.symlink_to("/bin/false")
    assert v.state(FOLDER, site.places) == "bin/python has changed"
    python.unlink()
    python.symlink_to(target)
    assert v.state(FOLDER, site.places) == v.AS_BUILT


@pytest.mark.long
def test_who_changes_the_listing_too_is_found_by_the_content(site):
    folder = site.places.folder(FOLDER)
    (module,) = folder.glob("lib/python*/site-packages/alpha.py")
    before, listing = module.read_bytes(), (folder / LISTING).read_text()
    module.write_bytes(b"evil = 1\n")
    was, now = (hashlib.sha256(each).hexdigest() for each in (before, b"evil = 1\n"))
    (folder / LISTING).write_text(listing.replace(was, now))
    assert "has changed, and files with it" in v.state(FOLDER, site.places)
    module.write_bytes(before)
    (folder / LISTING).write_text(listing)


@pytest.mark.heavy("makes an environment of Python, with pip")
def test_what_differs_from_other_hosts_stays_closed(site):
    folder = site.places.folder(FOLDER)
    machine = os.uname().machine
    there = survey(site.places.root)[FOLDER]
    other = {"content": B, "python": there.python, "host": "login1"}
    folder.chmod(CLOSED)
    said = p.run(site.places, ["tools/1"], {"tools/1": {machine: other}}, check_mode=False)
    assert said["published"] == []
    assert f"and login1 has {B[:12]}, so it is not published: compare" in said["problems"][0]
    assert not site.places.modulefile(FOLDER).exists()
    another = p.run(
        site.places, ["tools/1"], {"tools/1": {machine: {**other, "python": "3.5"}}}, False
    )
    assert f"it is Python {there.python} here and 3.5 there" in another["problems"][0]
    unknown = p.run(site.places, ["tools/1"], {"tools/1": {}}, check_mode=False)
    assert "the host that others are compared with did not answer" in unknown["problems"][0]
    assert folder.stat().st_mode & 0o777 == CLOSED
    # Nobody has used it: it goes when it is declared no more.
    (step,) = site.run(check_mode=True)["steps"]
    assert step.startswith("tools 1 is removed, which was never published")
    assert site.publish(site.run(site.entry("1", site.first)))["published"] == ["tools/1"]
    assert folder.stat().st_mode & 0o777 == OPEN
    # Jobs use it now: it is told, and stays.
    said = p.run(site.places, ["tools/1"], {"tools/1": {machine: other}}, check_mode=False)
    assert said["published"] == ["tools/1"]
    assert "so it is published" in said["problems"][0]


def test_a_folder_of_somebody_else_is_refused_and_one_that_broke_off_is_not(tmp_path):
    places = Places(tmp_path)
    folder = places.folder(PurePosixPath("tools/7"))
    (folder / "bin").mkdir(parents=True)
    wanted = library_of(entry(version="7", python=sys.executable, lock=A))
    steps, refused, _ = m.plan([wanted], [], places)
    assert steps == []
    assert refused == [
        f"{folder} is there and was not made by this role; move it away, or choose another version"
    ]
    assert m.plan([], [wanted], places)[1] == refused
    places.work_of(wanted.place).mkdir(parents=True)
    steps, refused, _ = m.plan([wanted], [], places)
    assert ([step.text for step in steps], refused) == (["tools 7 is built"], [])
    # One that is declared no more goes with all that was begun of it.
    m.sweep(m.leftovers([], places), places)
    assert not folder.exists()
    assert not places.work_of(wanted.place).exists()


def test_a_host_without_the_python_says_so(tmp_path):
    wanted = library_of(entry(python="python3.99", lock=A))
    problems = m.plan([wanted], [], Places(tmp_path))[2]
    assert problems[0].startswith("tools 1 needs python3.99, which is not on this host")
