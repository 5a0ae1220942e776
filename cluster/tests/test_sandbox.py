"""What systemd keeps from slurmctld and slurmdbd."""

import pytest

from cluster.sandbox import service
from cluster.slurm.sandbox import PROGRAMS, sandbox

CTLD = {
    "SlurmctldLogFile": "/var/log/slurm/slurmctld.log",
    "SlurmctldPidFile": "/var/lib/slurm/slurmctld.pid",
    "StateSaveLocation": "/shared/state",
}
DBD = {"LogFile": "/var/log/slurm/slurmdbd.log", "PidFile": "/var/lib/slurm/slurmdbd.pid"}


def test_a_daemon_writes_its_own_folders_alone():
    settings = sandbox(CTLD)
    assert settings["ReadWritePaths"] == ["-/var/log/slurm", "-/var/lib/slurm", "-/shared/state"]
    assert settings["ProtectSystem"] == "strict"
    assert settings["NoNewPrivileges"] == "yes"
    assert settings["ProtectHome"] == "yes"
    assert sandbox(DBD)["ReadWritePaths"] == ["-/var/log/slurm", "-/var/lib/slurm"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_a_site_has_it_start_may_write_and_call_sudo(program):
    """Of what is left, nothing makes systemd take sudo away where the unit has a user."""
    settings = sandbox({**CTLD, program.title(): "/usr/local/sbin/site"})
    assert set(settings) == {
        "PrivateTmp",
        "ProtectControlGroups",
        "ProtectHome",
        "ProtectSystem",
        "ReadWritePaths",
    }
    assert settings["ProtectSystem"] == "full"
    assert settings["ProtectHome"] == "read-only"


@pytest.mark.parametrize(
    ("name", "value", "starts"),
    [
        ("BurstBufferType", "burst_buffer/lua", True),
        ("CertmgrType", "certmgr/script", True),
        ("JobCompType", "jobcomp/script", True),
        ("JobCompType", "jobcomp/filetxt", False),
        ("BurstBufferType", "burst_buffer/none", False),
    ],
)
def test_a_plugin_that_starts_programs_may_too(name, value, starts):
    assert ("NoNewPrivileges" not in sandbox({**CTLD, name: value})) == starts


def test_a_program_that_is_removed_is_none():
    assert sandbox({**CTLD, "MailProg": ""}) == sandbox(CTLD)


@pytest.mark.parametrize("state", ["/home/slurm/state", "/root/state"])
def test_a_state_among_homes_can_be_written(state):
    settings = sandbox({**CTLD, "StateSaveLocation": state})
    assert "ProtectHome" not in settings
    assert f"-{state}" in settings["ReadWritePaths"]


@pytest.mark.parametrize(
    ("name", "value", "more"),
    [
        ("JobCompLoc", "/srv/log/jobs", ["-/srv/log"]),
        ("JobCompLoc", "slurm_jobcomp_db", []),
        ("SlurmSchedLogFile", "/srv/sched.log", ["-/srv"]),
        ("archivedir", "/srv/archive", ["-/srv/archive"]),
    ],
)
def test_what_a_site_has_it_write_can_be_written(name, value, more):
    folders = sandbox({**CTLD, name: value})["ReadWritePaths"]
    assert sorted(folders) == sorted([*sandbox(CTLD)["ReadWritePaths"], *more])


def test_archives_do_not_go_with_the_daemon():
    """Slurm's ArchiveDir is /tmp."""
    settings = sandbox({**DBD, "ArchiveJobs": "yes"})
    assert "PrivateTmp" not in settings
    assert "-/tmp" in settings["ReadWritePaths"]
    elsewhere = sandbox({**DBD, "ArchiveJobs": "yes", "ArchiveDir": "/srv/archive"})
    assert elsewhere["PrivateTmp"] == "yes"


def test_a_site_has_the_last_word():
    site = {"ReadWritePaths": "/srv/slurm", "NoNewPrivileges": False, "PrivateTmp": "", "Nice": 5}
    settings = sandbox(CTLD, [], site)
    assert settings["ReadWritePaths"][-1] == "/srv/slurm"
    assert "-/shared/state" in settings["ReadWritePaths"]
    assert settings["NoNewPrivileges"] == "no"
    assert "PrivateTmp" not in settings
    assert settings["Nice"] == 5
    more = sandbox(CTLD, [], {"ReadWritePaths": ["/a", "/b"]})["ReadWritePaths"]
    assert more[-2:] == ["/a", "/b"]


def test_a_service_of_ours_has_no_capability_and_writes_what_it_is_given():
    settings = service(["/a", "/b", "/a"], {"ProtectClock": "", "Nice": 5})
    assert settings["CapabilityBoundingSet"] == ""
    assert settings["ReadWritePaths"] == ["-/a", "-/b"]
    assert "ProtectClock" not in settings
    assert settings["Nice"] == 5
    assert "ReadWritePaths" not in service()
