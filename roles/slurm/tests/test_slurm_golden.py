"""The files of one rich cluster for the releases of Slurm, word by word.

`pytest roles/slurm roles/slurm_database --renew-golden` writes them anew; read the difference.
"""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from cluster.slurm.keys import File, Release
from tests.standins.golden import entries, unexplained
from tests.standins.slurm_files import RELEASES, declared, of_role, policy

GOLDEN = Path(__file__).parent / "golden"
FILES = {
    "slurm.conf": File.SLURM,
    "nodes.conf": File.NODE,
    "partitions.conf": File.PARTITION,
    "gres.conf": File.GRES,
    "cgroup.conf": File.CGROUP,
    "topology.conf": File.TOPOLOGY,
    "job_container.conf": File.JOB_CONTAINER,
}


def value_of(site, expression, installed=None):
    """Of ctl1, where Slurm is of a release, or where nobody knows of which."""
    look = {"__slurm_controller_versions": installed} if installed else {}
    return of_role(site, "slurm", "ctl1", expression, **look)


REFUSED = "__slurm_site_settings | slurm_refused_settings(__slurm_release, 'ctl1')"


@pytest.mark.sample(3)
@pytest.mark.parametrize("release", RELEASES)
def test_the_files_are_the_golden_ones_and_nothing_is_refused(release, golden):
    site = declared(release)
    rendered = value_of(site, "__slurm_rendered_files", policy(release))
    for name in FILES:
        golden(GOLDEN / release / name, rendered[name])
    assert value_of(site, REFUSED, policy(release)) == []


@pytest.mark.parametrize(("older", "newer"), [*pairwise(RELEASES)])
def test_releases_differ_in_what_the_table_says_and_in_nothing_else(older, newer):
    for name, file in FILES.items():
        before, after = ((GOLDEN / release / name).read_text() for release in (older, newer))
        assert unexplained(before, after, file, (older, newer)) == set(), name


def test_a_difference_that_the_table_does_not_have_is_found():
    before, after = "MessageTimeout=30\nMetricsType=a\n", "MessageTimeout=31\nMetricsType=a\n"
    assert unexplained(before, after, File.SLURM, ("24.11", "25.11")) == {
        " MessageTimeout=30",
        " MessageTimeout=31",
    }


def test_what_the_role_itself_writes_is_left_out_of_releases_that_do_not_read_it():
    first: dict[str, Release] = {}
    for release in RELEASES:
        for entry in entries((GOLDEN / release / "slurm.conf").read_text()):
            first.setdefault(entry.strip(), release)
    assert first["CommunicationParameters=disable_http"] == "25.11"
    assert first["HealthCheckTimeout=55"] == "26.05"


@pytest.mark.parametrize(
    ("release", "on", "setting", "readers"),
    [
        ("26.05", "24.11", "slurm_cgroup_settings.CgroupJobIdPaths", "26.05 and newer"),
        ("22.05", "24.11", "slurm_cgroup_settings.CgroupAutomount", "23.02 and older"),
        ("24.11", "22.05", "slurm_component_site.settings.SlurmctldParameters", "24.05 and newer"),
        ("24.11", "22.05", "slurm_node_options.RestrictedCoresPerGPU", "24.05 and newer"),
        ("24.11", "22.05", "slurm_partitions[1].settings.PowerDownOnIdle", "23.02 and newer"),
    ],
)
def test_the_settings_of_one_release_are_refused_on_another(release, on, setting, readers):
    problems = value_of(declared(release), REFUSED, policy(on))
    assert len(problems) == len(set(problems))
    name = setting.rpartition(".")[2]
    tells = f": ctl1 has Slurm {on}, and only {readers} read {name}"
    (problem,) = (
        problem for problem in problems if problem.startswith(f"{setting} (") and tells in problem
    )
    assert re.search(r"^\S+ \(set in \S+hosts\.yml:\d+\): ", problem)


def test_in_an_upgrade_the_files_are_those_that_the_older_nodes_read():
    look = {"stdout": policy("26.05")["stdout"] + "slurmd 25.11.7\nslurmd 26.05.5\n"}
    written = value_of(declared("25.11"), "__slurm_rendered_files", look)
    for name in FILES:
        assert written[name] == (GOLDEN / "25.11" / name).read_text()


@pytest.mark.long
def test_where_nobody_knows_the_release_nothing_is_refused_and_only_the_safe_is_written():
    site = declared("24.11")
    assert value_of(site, REFUSED) == []
    written = value_of(site, "__slurm_rendered_files['slurm.conf']")
    assert "disable_http" not in written
    assert "enable_stepmgr" in written


def test_daemons_start_anew_for_files_of_plugins_that_a_site_gives():
    given = {"mpi.conf": {"PMIxTimeout": 600}, "resources.yaml": [{}], "job_submit.lua": "x"}
    reads = "__slurm_inputs.{}.start | difference(['slurm.conf', 'nodes.conf', 'gres.conf'])"
    look = {"slurm_other_files": given, "__slurm_controller_versions": policy("25.11")}
    site = declared("25.11")
    slurmctld, slurmd = (
        of_role(site, "slurm", "ctl1", reads.format(daemon), **look)
        for daemon in ("slurmctld", "slurmd")
    )
    assert set(slurmctld) == {"mpi.conf", "resources.yaml"}
    assert set(slurmd) == {"cgroup.conf", "job_container.conf", "plugstack.conf", "mpi.conf"}
