"""Data sets, images and scratch on shared storage: published once, and used in jobs by a user."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live_cluster import REPOSITORY, changed, on

SITE = REPOSITORY / "molecule/data/vars/site.yml"
ORIGINS = REPOSITORY / "roles/datasets/molecule/default/origins.py"
ROOT, IMAGES, SCRATCH = "/shared/scratch/datasets", "/shared/images", "/shared/scratch"
TOOL = f"{IMAGES}/tool/1.sqsh"


@pytest.fixture(scope="module")
def declared(operator):
    """Two versions of a small real data set, and a package for the members of a group."""
    debian = on(operator.cluster, "login1", "sudo apt-get download --print-uris miscfiles")
    said = subprocess.run([sys.executable, ORIGINS, debian], check=True, capture_output=True)
    published = json.loads(said.stdout)
    published[2]["readers"] = "ada"
    return published


@pytest.fixture(scope="module")
def publish(operator, tmp_path_factory):
    """A function that runs the playbook with a list of data sets; what it changed by host."""
    folder = tmp_path_factory.mktemp("declared")

    def run(published, *arguments: str):
        (folder / "datasets.json").write_text(json.dumps({"datasets_published": published}))
        variables = ("-e", f"@{SITE}", "-e", f"@{folder / 'datasets.json'}")
        done = operator.playbook("datasets.yml", *variables, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


@pytest.fixture
def job(operator):
    """A function that runs a shell script of ada's as a job; what it printed."""

    def run(script: str, *options: str) -> str:
        command = f"srun --quiet --time=2 {' '.join(options)} bash -lc {json.dumps(script)}"
        return on(operator.cluster, "ada@login1", command.replace("$", r"\$"))

    return run


def test_data_is_published_once_and_read_in_jobs_of_all_nodes(publish, declared, job, operator):
    told = publish([declared[0], declared[2]], "--check")
    assert "vega 0.8.0 is fetched: " in told.stdout
    assert on(operator.cluster, "login1", f"ls {ROOT} 2>&1 | wc -l") == "1"
    publish([declared[0], declared[2]])
    read = "module load data/vega/0.8.0 && find $DATASET_VEGA -name cars.json | xargs md5sum"
    sums = job(read, "--nodes=2", "--ntasks-per-node=1").split()
    assert sums[0] == sums[2]
    assert f"{ROOT}/vega/0.8.0/" in sums[1]
    assert job(f"ls {ROOT}/miscfiles/1 | wc -l") == "1"  # ada is of its group
    assert "Permission denied" in job(f"touch {ROOT}/vega/0.8.0/x 2>&1 || true")


def test_a_second_run_changes_nothing(publish, declared):
    again = publish([declared[0], declared[2]])
    assert {host: count for host, count in changed(again.stdout).items() if count != "0"} == {}


def test_a_new_version_lies_beside_the_old_and_has_its_module_at_once(publish, declared, job):
    publish(declared, "--tags=datasets")  # no node is asked
    both = "module load data/vega/$V && echo $DATASET_VEGA"
    assert job(f"V=0.8.0; {both}; V=0.9.0; {both}").split() == [
        f"{ROOT}/vega/0.8.0",
        f"{ROOT}/vega/0.9.0",
    ]


def test_an_image_is_imported_once_and_opened_in_jobs(operator, node, job):
    """By a stand-in for enroot: the file is a real squashfs, and no container is started."""
    for name in ("gpu1", "gpu2"):
        on(operator.cluster, name, "sudo apt-get install -qqy squashfs-tools >/dev/null 2>&1; true")
    standin = (REPOSITORY / "tests/standins/enroot").read_text()
    with node("gpu1").sudo():
        write = node("gpu1").run("sh -c %s", f"cat > /usr/local/bin/enroot <<'END'\n{standin}END")
        assert write.rc == 0, write.stderr
    on(
        operator.cluster,
        "gpu1",
        "sudo sh -ec 'chmod 755 /usr/local/bin/enroot; cd /srv && mkdir -p "
        "registry/registry.example.org+site+tool:1/bin && "
        "echo a tool > registry/registry.example.org+site+tool:1/bin/tool'",
    )
    done = operator.playbook("images.yml", "-e", f"@{SITE}")
    assert done.returncode == 0, done.stdout + done.stderr
    for file in (TOOL, "/var/cache/images/tool/1.sqsh"):
        read = job(f"unsquashfs -cat {file} bin/tool", "--nodes=2", "--ntasks-per-node=1")
        assert read.splitlines() == ["a tool", "a tool"]
    assert f"--container-image={TOOL}" in on(
        operator.cluster, "ada@login1", f"cat {IMAGES}/tool/README.md"
    )
    again = operator.playbook("images.yml", "-e", f"@{SITE}")
    assert {host: count for host, count in changed(again.stdout).items() if count != "0"} == {}


def test_a_job_has_one_folder_on_its_nodes_that_goes_with_it(operator, job):
    said = job(
        "touch $JOB_SCRATCH/$SLURMD_NODENAME; sleep 3; ls $JOB_SCRATCH | xargs echo $JOB_SCRATCH",
        "--nodes=2",
        "--ntasks-per-node=1",
    )
    folders = {tuple(line.split()) for line in said.splitlines()}
    ((folder, *files),) = folders
    assert files == ["gpu1", "gpu2"]
    assert Path(folder).parent == Path(SCRATCH, "ada")
    gone = f"for i in $(seq 100); do [ -e {folder} ] || exit 0; sleep 0.2; done; exit 1"
    on(operator.cluster, "login1", f"sudo sh -c '{gone}'")
    assert on(operator.cluster, "login1", f"sudo stat --format=%U:%a {SCRATCH}/ada") == "ada:700"


def test_one_host_cleans_what_is_shared_and_spares_data_sets(operator, node):
    cleans = {
        name: node(name).file("/etc/tmpfiles.d/plumbline-scratch.conf").exists
        for name in ("login1", "gpu1", "gpu2")
    }
    assert cleans == {"login1": True, "gpu1": False, "gpu2": False}
    lines = node("login1").file("/etc/tmpfiles.d/plumbline-scratch.conf").content_string
    assert f"e {SCRATCH} 1777 root root 20d\n" in lines
    assert f"x {ROOT}\n" in lines
    for name in ("login1", "gpu1"):
        state = json.loads(node(name).file("/etc/plumbline/scratch.json").content_string)
        assert state == {"root": SCRATCH, "keep_days": 20, "shared": True}
