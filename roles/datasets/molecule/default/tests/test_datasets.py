"""Real data sets on a node: what users find, and what a run does that is repeated or refused."""

import json
import os
from pathlib import Path

import pytest

from tests.role_play import Case

ROOT = "/srv/shared/datasets"


@pytest.fixture(scope="module")
def published():
    folder = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
    return json.loads((folder / "datasets.json").read_text())


@pytest.fixture
def root(host):
    def run(command: str) -> str:
        with host.sudo():
            return host.check_output("sh -ec %s", command)

    return run


def batch(host, user: str, script: str):
    """What a user's job would run: a batch script below a login shell."""
    with host.sudo():
        return host.run("runuser --login %s --command %s", user, f"bash -c '{script}'")


@pytest.mark.parametrize("version", ["0.8.0", "0.9.0"])
def test_a_user_reads_the_data_by_the_name_of_its_module(host, version):
    script = f"module load data/vega/{version} && find -L $DATASET_VEGA -name cars.json | xargs cat"
    done = batch(host, "otto", script)
    assert done.rc == 0, done.stderr
    assert json.loads(done.stdout)[0]["Name"] == "chevrolet chevelle malibu"


def test_a_user_finds_pages(host, published):
    page = batch(host, "otto", f"cat {ROOT}/vega/README.md").stdout
    assert "| 0.9.0 | BSD-3-Clause |" in page
    assert published[0]["files"][0]["sha256"] in page
    assert (
        "[vega](vega/README.md) | 0.8.0, 0.9.0 |"
        in batch(host, "otto", f"cat {ROOT}/README.md").stdout
    )
    listed = batch(host, "otto", "module --terse avail data/ 2>&1").stdout.split()
    assert {"data/vega/0.8.0", "data/vega/0.9.0", "data/miscfiles/1"} <= set(listed)
    assert "Tables that examples" in batch(host, "otto", "module whatis data/vega 2>&1").stdout


def test_nobody_writes_and_a_group_alone_reads_what_is_its(host, root):
    assert batch(host, "otto", f"touch {ROOT}/vega/0.9.0/x").rc != 0
    assert root(f"find {ROOT} -not -user root -or -perm /022 -not -type l") == ""
    assert batch(host, "rosa", f"ls {ROOT}/miscfiles/1/*.deb").rc == 0
    assert "Permission denied" in batch(host, "otto", f"ls {ROOT}/miscfiles/1").stderr
    assert batch(host, "otto", f"ls {ROOT}/.incoming").rc != 0


def test_the_files_are_those_of_their_publishers(host, root, published):
    (file,) = published[2]["files"]
    assert root(f"sha256sum {ROOT}/miscfiles/1/*.deb").split()[0] == file["sha256"]
    manifest = json.loads(root(f"cat {ROOT}/vega/0.8.0/.dataset.json"))
    counted = root(f"find {ROOT}/vega/0.8.0 -type f -not -name .dataset.json | wc -l")
    assert manifest["files"] == int(counted) > 40


def of(published, **changes) -> dict:
    """Variables with one more version: the first, under another name and with changes."""
    first = published[0]
    changed = {**first, "name": "other", **changes}
    return {"datasets_published": [*published, changed]}


def test_what_is_refused_before_anything_is_fetched(attempts, published):
    there = f"ls {ROOT} {ROOT}/.incoming"
    (file,) = published[0]["files"]
    cases = [
        Case("room", of(published, size=10**9), mends=there),
        Case("group", of(published, readers="nobodies"), mends=there),
        Case("away", of(published, files=[file | {"url": file["url"] + ".away"}]), mends=there),
        Case("changed", {"datasets_published": [published[0] | {"files": published[2]["files"]}]}),
        Case("elsewhere", {"datasets_root": "/srv/local"}, mends="ls -d /srv/local || echo none"),
        Case(
            "unmounted",
            {"datasets_root": "/srv/away/data", "datasets_shared_filesystems": ["/srv/away"]},
            mends="ls -d /srv/away || echo none",
        ),
    ]
    outcomes = attempts(cases)
    outcomes["room"].refuses(f"{ROOT} has ")
    outcomes["group"].refuses("other 0.8.0: the group nobodies does not exist on this host; create")
    outcomes["away"].refuses(".away does not exist (404)")
    outcomes["changed"].refuses("vega 0.8.0: it is published since ")
    outcomes["elsewhere"].refuses("is on none of the shared filesystems (/srv/shared)")
    outcomes["unmounted"].refuses("/srv/away is not mounted on this host, and /srv/away/data")
    assert {outcomes[name].left for name in ("elsewhere", "unmounted")} == {"none"}
    for name in ("room", "group", "away"):
        assert "other" not in outcomes[name].left, outcomes[name].left


@pytest.mark.long
def test_a_run_that_broke_off_goes_on_and_another_hash_publishes_nothing(attempts, root, published):
    (file,) = published[2]["files"]
    place = root(f"ls {ROOT}/miscfiles/1/*.deb")
    part = f"{ROOT}/.incoming/other/0.8.0/{file['sha256'][:16]}-{Path(place).name}.part"
    half = f"mkdir -p {Path(part).parent} && head -c 500000 {place} > {part}"
    wrong = {**file, "sha256": "0" * 64}
    cases = [
        Case("hash", of(published, files=[wrong]), mends=f"ls {ROOT} {ROOT}/.incoming/other/0.8.0"),
        Case(
            "resumed", of(published, files=[file]), breaks=half, mends=f"cat {ROOT}/.incoming/log"
        ),
        Case("again", of(published, files=[file])),
        Case("removed", of(published, state="absent"), mends=f"ls {ROOT}"),
    ]
    outcomes = attempts(cases)
    outcomes["hash"].refuses(f"and {'0' * 64} is declared; nothing was published")
    assert Path(place).name not in outcomes["hash"].left
    outcomes["resumed"].passes(changed=True)
    assert "verified" in outcomes["resumed"].left
    outcomes["again"].passes(changed=False)
    outcomes["removed"].passes(changed=True)
    assert outcomes["removed"].left.split() == ["README.md", "miscfiles", "vega"]


@pytest.mark.long
def test_check_mode_tells_what_would_be_fetched(play, root, published):
    run = play(None, "--check", **of(published))
    assert run.code == 0, run.output
    assert "other 0.8.0 is fetched: " in run.output
    assert "Nothing is done in check mode." in run.output
    assert root(f"ls {ROOT}").split() == ["README.md", "miscfiles", "vega"]
