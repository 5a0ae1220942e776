"""What Slurm says, recorded from 22.05 and 24.11."""

import pytest

from roles.slurm.plugin_utils import state as s

INVAL = "Low RealMemory (reported:24105 < 100.00% of configured:9999999) [slurm@2026-11-21T16:43]"
ANSWER = f"""gpu1 IDLE
gpu2 IDLE+DRAIN+INVALID_REG {INVAL}
gpu3 IDLE+DRAIN {INVAL.replace("slurm@", "root@")}
gpu4 IDLE+DRAIN bad fan [ops@2026-11-21T16:43:23]
gpu5 MIXED+DRAIN gres/gpu count reported lower than configured (0 < 2) [slurm@2026]
gpu6 DOWN+NOT_RESPONDING Not responding [slurm@2026-11-21T16:43:23]
gpu7 IDLE*
gpu8 IDLE+DRAIN Low socket*core*thread count, Low CPUs [slurm@2026-11-21T16:43:23]
gpu9 IDLE+DRAIN Low RealMemory, look at DIMM 3 [ops@2026-11-21T16:43:23]
"""
ALL = [f"gpu{number}" for number in range(1, 11)]


def test_what_may_still_settle_is_waited_for():
    assert s.waiting(ANSWER, ALL) == ["gpu2", "gpu6", "gpu7", "gpu10"]
    assert s.waiting(ANSWER, ["gpu1", "gpu4"]) == []
    assert s.waiting("", ["gpu1"]) == ["gpu1"]


def test_only_what_slurm_drained_itself_returns_and_only_when_it_is_mended():
    assert s.mended(ANSWER, ALL) == ["gpu3", "gpu5", "gpu8"]


def test_what_people_drained_stays_and_is_told():
    assert s.kept_out(ANSWER, ALL) == [
        "gpu4 (bad fan [ops@2026-11-21T16:43:23])",
        "gpu9 (Low RealMemory, look at DIMM 3 [ops@2026-11-21T16:43:23])",
    ]


def test_a_node_without_jobs_is_told_with_slurms_reason():
    reasons = s.unusable(ANSWER, ["gpu1", "gpu2", "gpu4", "gpu10"])
    assert sorted(reasons) == ["gpu10", "gpu2"]
    assert reasons["gpu2"] == f"slurmctld holds it as DRAIN+IDLE+INVALID_REG: {INVAL}"
    assert "does not know the node" in reasons["gpu10"]


UNKNOWN = "this version of Slurm knows no setting {}; correct or remove it"
KEY = "Parsing error at unrecognized key: "
LINE = 'Parse error in file /tmp/x/slurm.conf line 31: " Wight=1"\n'
QUOTED = 'SlurmdTimeout value "soon" is not a valid number'
BRACKETED = "MaxJobCount value (many) is not a valid number"
FLAGS = ("Invalid PrologFlag: Containn", "PrologFlags invalid: Containn")
ENDS = "fatal: Unable to process configuration file"


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ([f"error: _parse_next_key: {KEY}Foo", ENDS], UNKNOWN.format("Foo")),
        ([f"error: {KEY}Wight", f"error: {LINE}"], UNKNOWN.format("Wight")),
        ([f"error: {QUOTED}"], f"SlurmdTimeout cannot be 'soon': {QUOTED}"),
        ([f"error: {BRACKETED}"], f"MaxJobCount cannot be 'many': {BRACKETED}"),
        (['error: Bad value "abc" for MaxTime'], "MaxTime cannot be 'abc'"),
        ([f"error: {FLAGS[0]}", f"fatal: {FLAGS[1]}"], "; ".join(FLAGS)),
        ([], "it gave no reason"),
    ],
)
def test_the_parsers_words_become_one_sentence(output, sentence):
    assert s.parser_verdict("\n".join(f"scontrol: {line}" for line in output)) == sentence


def policy(installed: str, candidate: str = "(none)") -> str:
    return f"slurm-client:\n  Installed: {installed}\n  Candidate: {candidate}\n"


HOST = {"name": "gpu1", "constrain": True, "sackd": False}
CLUSTER = {"name": "site", "controller": "ctl1", "state": "/state"}


def problems(look: str, controller: str) -> list[str]:
    return s.host_problems(look, controller, HOST, CLUSTER)


def test_a_node_newer_than_its_controller_is_refused():
    (sentence,) = problems(policy("(none)", "24.11.5-4"), policy("22.05.8-4+deb12u3"))
    assert sentence.startswith("gpu1 has Slurm 24.11, and its controller ctl1 has the older 22.05")


@pytest.mark.parametrize(
    ("look", "controller"),
    [
        (policy("22.05.8-4"), policy("24.11.5-4")),
        (policy("(none)"), policy("22.05.8")),
        (policy("24.11.5"), ""),
        # What is installed counts: nothing is upgraded by the way.
        (policy("22.05.8-4", "24.11.5-4"), policy("22.05.8-4")),
    ],
)
def test_one_that_is_not_newer_is_not(look, controller):
    assert problems(look, controller) == []


def test_a_host_without_what_energy_is_read_from_is_refused():
    (sentence,) = problems("energy=rapl:msr\n", "")
    assert sentence.startswith("gpu1 has no /dev/cpu/0/msr and no kernel module msr")
    assert "take rapl out of slurm_energy" in sentence


def test_a_slurm_without_cgroup_v2_is_refused_on_it():
    look = policy("(none)", "21.08.5-2ubuntu1") + "cgroup=cgroup2fs\n"
    (sentence,) = problems(look, look)
    assert "knows no cgroup v2" in sentence
    assert "slurm_constrain: false" in sentence
    assert problems(look.replace("cgroup2fs", "tmpfs"), look) == []
    assert s.host_problems(look, look, {**HOST, "constrain": False}, CLUSTER) == []


@pytest.mark.parametrize("written", ["old", "old|3431", "Old\n"])
def test_a_controller_of_another_cluster_is_refused(written):
    (sentence,) = problems(f"cluster={written}", "")
    assert "gpu1 is the controller of the cluster" in sentence
    assert "/state/clustername" in sentence


def test_a_private_tmp_does_not_come_under_running_jobs():
    (sentence,) = problems("\nopen_tmp=12\nopen_tmp=13\n", "")
    assert sentence.startswith("2 jobs run in the cluster ")
    assert "set slurm_private_tmp: false" in sentence
    (sentence,) = problems("\nopen_tmp=unknown\n", "")
    assert "slurmctld on gpu1 does not answer" in sentence
    assert problems("\n", "") == []


def test_the_name_that_is_deployed_is_taken_in_any_case():
    assert problems("cluster=SITE|12\n", "") == []
    assert problems("cluster=", "") == []


def test_a_queue_is_not_left_behind():
    (sentence,) = problems("cluster=site\nqueue=/var/lib/slurm/slurmctld\n", "")
    assert sentence.startswith("slurmctld on gpu1 has its queue in /var/lib/slurm/slurmctld, and")
    assert "would begin without it in /state; stop slurmctld there" in sentence


def test_sackd_is_not_wanted_of_a_system_that_has_none():
    host = {**HOST, "sackd": True}
    (sentence,) = s.host_problems(policy("22.05.8-4"), "", host, CLUSTER)
    assert sentence.startswith("gpu1 has Slurm 22.05, and APT knows no package sackd there")
    assert s.host_problems(policy("24.11.5-4") + "sackd=there\n", "", host, CLUSTER) == []
    assert s.host_problems("", "", host, CLUSTER) == []  # the lists of packages are yet to come
