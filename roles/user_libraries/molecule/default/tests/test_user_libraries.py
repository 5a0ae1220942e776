"""Libraries on a node: what users load, what is refused, and a run that is killed."""

import json
from functools import partial
from pathlib import Path

import pytest

from tests.role_play import Case

ROOT = "/opt/libraries"
LOCKS = Path(__file__).parents[1] / "locks"
VERSIONS = [{"name": "tools", "version": version, "description": "Small tools"} for version in "12"]


@pytest.fixture
def root(host):
    def run(command: str) -> str:
        with host.sudo():
            return host.check_output("sh -ec %s", command)

    return run


def batch(host, script: str):
    """What a user's job would run: a batch script below a login shell."""
    with host.sudo():
        command = "runuser --user=nobody -- env -i HOME=/ PATH=/usr/bin:/bin bash --login -c %s"
        return host.run(command, f"bash -c '{script}'")


def with_one_more(**changes) -> dict:
    """Variables with one more version, of the same lock as the first."""
    more = {"name": "more", "version": "1", "requirements": str(LOCKS / "tools-1.txt")}
    return {"user_libraries_published": [*VERSIONS, more | changes]}


@pytest.mark.parametrize(("version", "packaging"), [("1", "24.2"), ("2", "25.0")])
def test_versions_are_side_by_side(host, version, packaging):
    script = 'python -c "import packaging, sys; print(packaging.__version__, sys.prefix)"'
    done = batch(host, f"module load tools/{version} && {script} && echo $VIRTUAL_ENV")
    folder = f"{ROOT}/tools/{version}"
    assert done.stdout.splitlines() == [f"{packaging} {folder}", folder], done.stderr


def test_a_user_reads_what_it_is_and_runs_its_programs(host):
    assert {"tools/1", "tools/2"} <= set(batch(host, "module -t avail tools 2>&1").stdout.split())
    said = batch(host, "module help tools/2 2>&1").stdout
    assert "Small tools. Python 3.13 with 3 packages, in the versions and with the hashes" in said
    done = batch(host, "module load tools && echo a b | tabulate && command -v tabulate")
    assert f"{ROOT}/tools/2/bin/tabulate" in done.stdout, done.stderr


def test_a_user_has_packages_of_their_own_in_front(host):
    """As docs/use/libraries.md says."""
    place = 'python -c "import sysconfig; print(sysconfig.get_path(\\"purelib\\"))"'
    done = batch(
        host,
        "cd $(mktemp -d) && module load tools/1 && python -m venv --without-pip mine && "
        f"{place} >base.pth && mv base.pth mine/lib/python3.*/site-packages/ && "
        'mine/bin/python -c "import six, sys; print(six.__file__, sys.prefix)"; rm -r "$PWD"',
    )
    library, own = done.stdout.split()
    assert library.startswith(f"{ROOT}/tools/1/lib/"), done.stderr
    assert own.endswith("/mine")


def test_it_has_what_is_locked_and_no_user_can_change_it(host, root):
    packages = root(f"cd {ROOT}/tools/1/lib/python3*/site-packages && ls -d *.dist-info")
    assert packages.split() == ["packaging-24.2.dist-info", "six-1.16.0.dist-info"]
    assert root(f"find {ROOT} -not -user root -or -perm /022 -not -type l") == ""
    assert batch(host, f"touch {ROOT}/tools/1/x").rc != 0
    assert batch(host, f"ls {ROOT}/.incoming").rc != 0


def test_files_are_those_of_the_listing(root):
    root(f"cd {ROOT}/tools/2 && sha256sum --quiet --check .library.sha256")
    content = json.loads(root(f"cat {ROOT}/tools/2/.library.json"))["content"]
    assert content in root(f"cat {ROOT}/.modulefiles/tools/2.lua")


@pytest.mark.long
def test_what_is_refused_and_leaves_all_as_it_was(attempts, tmp_path):
    tampered = tmp_path / "tampered.txt"
    text = (LOCKS / "tools-1.txt").read_text()
    tampered.write_text(text.replace("six==1.16.0", "six==1.17.0"))
    unlocked = tmp_path / "unlocked.txt"
    unlocked.write_text(text + "tabulate==0.9.0\n")
    wrong = tmp_path / "wrong.txt"
    wrong.write_text(
        text.replace(
            "c228a6dc5e932d346bc5739379109d49e8853dd8223571c7c5b55260edc0b97f", "0" * 64
        ).replace("09abb1bccd265c01f4a3aa3f7a7db064b36514d2cba19a2f694fe6150451a759", "1" * 64)
    )
    left = f"ls {ROOT} {ROOT}/tools {ROOT}/.modulefiles; stat -c %a {ROOT}/more/1 || true"
    of_one = [VERSIONS[0] | {"requirements": str(tampered)}, VERSIONS[1]]
    other = {"x86_64": "0" * 64, "aarch64": "0" * 64}
    cases = [
        Case("changed", {"user_libraries_published": of_one}, mends=left),
        Case("unlocked", with_one_more(requirements=str(unlocked)), mends=left),
        Case(
            "foreign",
            with_one_more(),
            breaks=f"mkdir -p {ROOT}/more/1",
            mends=f"rmdir -p {ROOT}/more/1 || true",
        ),
        Case("wrong", with_one_more(requirements=str(wrong)), mends=left),
        Case("content", with_one_more(content=other), mends=left),
        Case("import", with_one_more(imports=["nothing_there"], version="2"), mends=left),
        Case("gone", with_one_more(state="absent", version="2"), mends=left),
        Case("again", {}, mends=left),
    ]
    outcomes = attempts(cases)
    outcomes["changed"].refuses("node: tools 1 is published since ")
    outcomes["unlocked"].refuses(f"more 1 is not locked: {unlocked}:9: this line has no hash of")
    outcomes["foreign"].refuses(f"{ROOT}/more/1 is there and was not made by this role")
    outcomes["wrong"].refuses("more 1 cannot be had: THESE PACKAGES DO NOT MATCH THE HASHES")
    outcomes["content"].refuses("and the inventory has 000000000000, so it is not published")
    outcomes["import"].refuses("more 2 cannot be had: ModuleNotFoundError")
    outcomes["gone"].passes(changed=True)
    outcomes["again"].passes(changed=False)
    for name in ("wrong", "content"):
        assert "700" in outcomes[name].left.split()
        assert f"{ROOT}/.modulefiles: tools" in outcomes[name].left
    for name in ("changed", "unlocked", "again"):
        assert "more" not in outcomes[name].left.replace(f"{ROOT}/more/1", "")


# pip waits for an index that says nothing, and is killed with the module that waits for it.
KILLED = f"""
cat >/tmp/silent.py <<'END'
import os, signal, socket, time
listening = socket.create_server(("127.0.0.1", 8097))
listening.accept()
time.sleep(1)
for name in os.listdir("/proc"):
    try:
        words = open(f"/proc/{{name}}/cmdline").read().split("\\0")
    except OSError:
        continue
    if "{ROOT}/killed/1/bin/python" in words:
        parent = int(open(f"/proc/{{name}}/stat").read().rsplit(")", 1)[1].split()[1])
        os.kill(parent, signal.SIGKILL)
        os.kill(int(name), signal.SIGKILL)
END
setsid --fork python3 /tmp/silent.py >/tmp/silent.log 2>&1 </dev/null
"""


@pytest.mark.long
def test_a_run_that_was_killed_leaves_nothing_to_load_and_the_next_one_goes_on(host, attempts):
    variables = with_one_more(name="killed")
    silent = {"user_libraries_index_url": "http://127.0.0.1:8097/simple"}
    left = f"stat -c %a {ROOT}/killed/1; ls {ROOT}/.modulefiles {ROOT}/.incoming/building/killed"
    outcomes = attempts(
        [
            Case("killed", variables | silent, breaks=KILLED, mends=left),
            Case("again", variables, mends=left + " || true"),
            Case("removed", with_one_more(name="killed", state="absent"), mends=f"ls {ROOT}"),
        ]
    )
    assert outcomes["killed"].failed
    assert outcomes["killed"].left == (
        f"700 {ROOT}/.incoming/building/killed: 1 {ROOT}/.modulefiles: tools"
    )
    outcomes["again"].passes(changed=True)
    assert outcomes["again"].left == f"755 {ROOT}/.modulefiles: killed tools"
    outcomes["removed"].passes(changed=True)
    assert outcomes["removed"].left == "tools"


@pytest.mark.long
def test_a_changed_file_is_found_by_verify(attempts):
    file = f"{ROOT}/tools/1/lib/python3.13/site-packages/six.py"
    shows = "__user_libraries_verified | map(attribute='found') | join(';')"
    verify = partial(Case, tasks_from="verify.yml", shows=shows)
    outcomes = attempts(
        [
            verify("good"),
            verify(
                "changed",
                breaks=f"cp -p {file} /root/six.py && echo evil >>{file}",
                mends=f"cp -p /root/six.py {file}",
            ),
            verify("mended"),
        ]
    )
    for name in ("good", "mended"):
        outcomes[name].passes(changed=False)
        assert "msg: as built;as built" in outcomes[name].output
    found = "lib/python3.13/site-packages/six.py has changed"
    assert f"msg: {found};as built" in outcomes["changed"].output
