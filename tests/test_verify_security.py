"""scripts/verify: each item holds on a good cluster, and is broken by what it is there to find."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from playbooks.action_plugins.security_answers import answer
from playbooks.plugin_utils import security_table
from playbooks.plugin_utils.security import (
    ABSENT,
    FAILS,
    HOLDS,
    OFF,
    TESTED,
    UNKNOWN,
    Elsewhere,
    Item,
    Row,
    code,
    judged,
)
from playbooks.plugin_utils.security_items import DECLARED, ITEMS, paths, web_ports
from tests.conftest import REPOSITORY

Document = dict[str, dict[str, Any]]

STATE = "/var/lib/slurm/slurmctld"
DECLARED_HERE: Mapping[str, Any] = {
    **dict.fromkeys(DECLARED),
    "firewall_enabled": True,
    "job_login_admin_groups": ["sudo", "ops"],
    "job_login_enabled": True,
    "log_collection_host": "ctl1",
    "node_base_agent_forwarding": False,
    "node_base_baseline": True,
    "node_base_limits": [{"item": "core", "value": "0", "kind": "soft"}],
    "node_base_root_login": False,
    "node_base_sysctls": {"kernel.dmesg_restrict": 1},
    "node_base_upgraded_by_hand": ["slurm", "linux-"],
    "node_base_x11_forwarding": False,
    "slurm_constrain": True,
    "slurm_database_sandbox": True,
    "slurm_private_data": ["jobs", "usage"],
    "slurm_private_tmp": True,
    "slurm_sandbox": True,
    "slurm_state_save_location": STATE,
    "slurm_users": [{"name": "ada", "account": "research"}],
    "slurmrestd_enabled": True,
}
SLURM = {
    "accountingstorageenforce": "associations,limits,qos,safe",
    "authalttypes": "auth/jwt",
    "authaltparameters": "jwt_key=/etc/slurm/jwt_hs256.key,max_token_lifespan=86400",
    "communicationparameters": "disable_http",
    "disablerootjobs": "Yes",
    "metricstype": "(null)",
    "namespacetype": "namespace/tmpfs",
    "privatedata": "jobs,usage",
    "proctracktype": "proctrack/cgroup",
    "prologflags": "Alloc,Contain",
    "propagateresourcelimitsexcept": "MEMLOCK,NOFILE",
    "slurm_version": "25.11.1",
    "taskplugin": "task/cgroup,task/affinity",
}
ADMINISTRATORS = "account [success=1 default=ignore] pam_succeed_if.so quiet user ingroup sudo:ops"
ADOPT = (
    "account required pam_slurm_adopt.so action_no_jobs=deny action_adopt_failure=deny "
    "action_generic_failure=deny"
)
SANDBOX = {
    "nonewprivileges": "yes",
    "protectsystem": "strict",
    "privatetmp": "yes",
    "activestate": "active",
}


def file(path: str, owner: str = "root", mode: str = "0644", writers: tuple[str, ...] = ()) -> Any:
    return {
        "path": path,
        "kind": "file",
        "owner": owner,
        "group": owner,
        "mode": mode,
        "writers": list(writers),
    }


def facts() -> dict[str, Any]:
    """What a host that is all in one answers on a good day."""
    return {
        "files": [
            file("/etc/munge/munge.key", "munge", "0400", ("munge",)),
            file("/etc/slurm/slurmdbd.conf", "slurm", "0600"),
            file("/etc/slurm/jwt_hs256.key", "slurm", "0400"),
            file("/etc/prometheus/secrets/server_password", "root", "0640"),
            file("/etc/grafana/grafana.ini", "root", "0640"),
            file("/etc/slurm/prolog.d/50-health", mode="0755"),
            file(STATE, "slurm", "0700"),
        ],
        "munge": {"digest": "a", "bytes": 1024, "text": False},
        "munge_version": {"version": "0.5.15-2+deb12u1", "changelog": True},
        "replay": {
            "first": "Success",
            "second": "Replayed credential",
            "late": "Expired credential",
        },
        "sshd": {
            "allowagentforwarding": "no",
            "kbdinteractiveauthentication": "no",
            "passwordauthentication": "no",
            "permitemptypasswords": "no",
            "permitrootlogin": "no",
            "usepam": "yes",
            "x11forwarding": "no",
        },
        "pam_sshd": ["@include common-account", ADMINISTRATORS, ADOPT],
        "privileged": {"sudo": ["ops"], "docker": [], "sudoers": ["root"]},
        "hidepid": "2",
        "slurm": dict(SLURM),
        "cgroup": dict.fromkeys(
            ("constraincores", "constrainramspace", "constrainswapspace", "constraindevices"),
            "yes",
        ),
        "slurmdbd": {"privatedata": "jobs,usage"},
        "slurmd_limits": {
            "Max locked memory": ["unlimited", "unlimited"],
        },
        "user_limits": {"core": "0"},
        "database": {"accounts": ["root@localhost", "slurm@localhost"], "databases": ["mysql"]},
        "daemons": {"slurmrestd": ["slurmrestd"]},
        "units": {"slurmctld": dict(SANDBOX), "slurmdbd": dict(SANDBOX), "rsyslog": dict(SANDBOX)},
        "listening": [["127.0.0.1", "3306", "mariadbd"], ["0.0.0.0", "6817", "slurmctld"]],
        "web": {
            "9100": {"tls": "401", "clear": "400"},
            "3000": {"tls": "401", "clear": "refused"},
        },
        "firewall": {"input": "drop"},
        "container": False,
        "sysctls": {"kernel.dmesg_restrict": "1"},
        "apt": {"by_hand": ["slurm", "linux-"], "unchecked": []},
        "journal": True,
        "versions": {
            "system": "Debian 13",
            "packages": {"nvidia-container-toolkit": "1.19.1-1", "linux": "6.12.94-1"},
            "driver": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Rele\n",
        },
        "grafana": {
            "auth.anonymous.enabled": "false",
            "users.allow_sign_up": "false",
            "server.protocol": "https",
        },
    }


ALL = ["slurm_cluster", "slurm_controller", "slurm_database", "slurm_login", "slurm_compute"]


def cluster(*names: str) -> Document:
    return {
        name: {"groups": ALL, "declared": copy.deepcopy(dict(DECLARED_HERE)), "facts": facts()}
        for name in names
    }


def row(document: Document, key: str) -> Row:
    [item] = [item for item in ITEMS if item.key == key]
    return judged(item, security_table.hosts_of(document))


LIVE = {item.key: item for item in ITEMS if isinstance(item, Item)}


@pytest.mark.parametrize("key", LIVE)
def test_each_item_holds_on_a_good_cluster(key: str) -> None:
    found = row(cluster("ctl1", "gpu1"), key)
    assert (found.verdict, found.hosts, found.problems) == (HOLDS, ("ctl1", "gpu1"), {})


Change = Callable[[dict[str, Any]], Any]


def of(path: str, **changes: Any) -> Change:
    """A file that is otherwise than it was."""

    def change(there: dict[str, Any]) -> None:
        [found] = [one for one in there["files"] if one["path"] == path]
        found.update(changes)

    return change


def put(question: str, **changes: Any) -> Change:
    return lambda there: there[question].update(changes)


# Item -> what was done to gpu1, and a word of the sentence.
BROKEN: list[tuple[str, Change, str]] = [
    ("munge-key", of("/etc/munge/munge.key", mode="0440"), "not munge's with 0400"),
    ("munge-key", of("/etc/munge/munge.key", owner="root"), "is root's"),
    ("munge-key", of("/etc/munge/munge.key", writers=["munge", "ada"]), "ada can replace"),
    ("munge-key", put("munge", digest="b"), "another than that of 2 hosts"),
    ("munge-key", put("munge", bytes=20), "20 bytes"),
    ("munge-key", put("munge", text=True), "not random"),
    ("munge-version", put("munge_version", changelog=False), "open to CVE-2026-25506"),
    ("munge-version", put("munge_version", changelog=""), "no changelog"),
    ("munge-replay", put("replay", second="Success"), "twice"),
    ("munge-replay", put("replay", late="Success"), "after its end"),
    ("munge-replay", put("replay", first="Expired credential"), "of its own"),
    ("slurmdbd-file", of("/etc/slurm/slurmdbd.conf", mode="0644"), "mode 0644"),
    ("database-accounts", put("database", accounts=["slurm@%"]), "lets slurm in from %"),
    ("database-accounts", put("database", accounts=["@localhost"]), "without a name"),
    ("database-accounts", put("database", databases=["test"]), "everybody's"),
    (
        "database-socket",
        lambda there: there["listening"].append(["0.0.0.0", "3306", "mariadbd"]),
        "0.0.0.0:3306",
    ),
    ("secret-files", of("/etc/prometheus/secrets/server_password", mode="0644"), "mode 0644"),
    ("cgroups", put("slurm", proctracktype="proctrack/linuxproc"), "ProctrackType is"),
    ("cgroups", put("slurm", taskplugin="task/affinity"), "TaskPlugin is"),
    ("cgroups-of-nodes", put("cgroup", constraindevices="no"), "ConstrainDevices is no"),
    ("job-login", lambda there: there["pam_sshd"].pop(), "does not ask pam_slurm_adopt"),
    (
        "job-login",
        lambda there: there["pam_sshd"].insert(0, "account sufficient pam_localuser.so"),
        "sufficient stands before",
    ),
    (
        "job-login",
        lambda there: there.update(pam_sshd=["account required pam_slurm_adopt.so"]),
        "lacks action_generic_failure=deny",
    ),
    (
        "job-login",
        lambda there: there.update(pam_sshd=[ADOPT.replace("required", "optional")]),
        "is not required",
    ),
    ("job-login", put("sshd", usepam="no"), "does not ask PAM"),
    ("contained-logins", put("slurm", prologflags="Alloc"), "PrologFlags is Alloc"),
    ("administrators", lambda there: there["pam_sshd"].remove(ADMINISTRATORS), "past"),
    ("root-login", put("sshd", permitrootlogin="yes"), "permitrootlogin yes"),
    ("root-login", put("sshd", permitrootlogin="without-password"), "without-password"),
    ("ssh-passwords", put("sshd", permitemptypasswords="yes"), "permitemptypasswords yes"),
    ("x11-forwarding", put("sshd", x11forwarding="yes"), "x11forwarding yes"),
    ("agent-forwarding", put("sshd", allowagentforwarding="yes"), "allowagentforwarding yes"),
    ("root-jobs", put("slurm", disablerootjobs="No"), "DisableRootJobs is No"),
    ("private-data", put("slurm", privatedata="none"), "PrivateData is none"),
    ("private-accounting", put("slurmdbd", privatedata="jobs"), "lacks usage"),
    ("accounts-enforced", put("slurm", accountingstorageenforce="none"), "is none"),
    ("private-tmp", put("slurm", namespacetype="(null)"), "neither"),
    ("slurm-state", of(STATE, mode="0755"), "mode 0755"),
    ("slurm-state", of(STATE, kind="link"), "is a link"),
    ("slurm-state", of(STATE, writers=["slurm"]), "slurm can replace"),
    ("programs", of("/etc/slurm/prolog.d/50-health", mode="0777"), "mode 0777"),
    ("programs", of("/etc/slurm/prolog.d/50-health", owner="slurm"), "slurm's"),
    ("programs", of("/etc/slurm/prolog.d/50-health", writers=["*"]), "others can replace"),
    ("token-key", of("/etc/slurm/jwt_hs256.key", mode="0444"), "mode 0444"),
    ("token-lifespan", put("slurm", authaltparameters="jwt_key=/x"), "for ever"),
    ("rest-daemon", put("daemons", slurmrestd=["root"]), "runs as root"),
    (
        "rest-daemon",
        lambda there: there["listening"].append(["*", "6820", "slurmrestd"]),
        "without TLS",
    ),
    ("slurm-metrics", put("slurm", metricstype="metrics/openmetrics"), "MetricsType is"),
    ("slurm-metrics", put("slurm", communicationparameters=""), "lacks disable_http"),
    ("slurm-metrics", put("slurm", slurm_version=""), "does not say its version"),
    ("firewall", lambda there: there.update(firewall={}), "no table"),
    ("firewall", put("firewall", input="accept"), "no chain"),
    ("monitoring-servers", lambda there: there["web"]["9100"].update(tls="200"), "answers 200"),
    ("monitoring-servers", lambda there: there["web"]["9100"].update(clear="200"), "in the clear"),
    ("monitoring-servers", lambda there: there["web"]["9100"].update(tls="refused"), "no TLS"),
    ("grafana", put("grafana", **{"auth.anonymous.enabled": "true"}), "anybody"),
    ("grafana", put("grafana", **{"users.allow_sign_up": ""}), "sign up"),
    ("grafana", put("grafana", **{"server.protocol": ""}), "speaks http"),
    ("grafana", of("/etc/grafana/grafana.ini", mode="0644"), "mode 0644"),
    ("grafana", lambda there: there["web"]["3000"].update(tls="200"), "answers 200"),
    ("package-signatures", put("apt", unchecked=["/etc/apt/sources.list"]), "sources.list"),
    ("docker-group", put("privileged", docker=["ada"]), "ada is in the group docker"),
    (
        "locked-memory",
        put("slurmd_limits", **{"Max locked memory": ["65536", "65536"]}),
        "65536 bytes",
    ),
    ("locked-memory", lambda there: there.update(slurmd_limits={}), "not known"),
    ("core-dumps", put("user_limits", core="unlimited"), "cores of unlimited"),
    ("core-dumps", lambda there: there.update(user_limits={}), "no limited number"),
    ("limits-of-nodes", put("slurm", propagateresourcelimitsexcept=""), "not set"),
    ("x11-in-jobs", put("slurm", prologflags="Contain,X11"), "Contain,X11"),
    ("unattended-upgrades", put("apt", by_hand=["slurm"]), "may replace linux-"),
    ("sent-logs", lambda there: there["units"].pop("rsyslog"), "do not leave"),
    ("audit", lambda there: there.update(journal=False), "does not have the line"),
    ("kernel-settings", put("sysctls", **{"kernel.dmesg_restrict": "0"}), "is 0, not 1"),
    ("sandbox", lambda there: there["units"]["slurmctld"].update(protectsystem="no"), "no, not"),
    (
        "known-holes",
        put("versions", driver="NVRM version: NVIDIA UNIX Kernel Module  580.95.05  Release\n"),
        "driver 580.95.05 has holes that 580.159.03",
    ),
    (
        "known-holes",
        put("versions", driver="NVRM version: none\nGCC\n"),
        "the driver tells no version: NVRM version: none",
    ),
    (
        "known-holes",
        put("versions", packages={"nvidia-container-toolkit": "1.18.0-1"}),
        "Toolkit 1.18.0 has",
    ),
    ("known-holes", put("versions", packages={"linux": "6.12.73-1"}), "kernel 6.12.73 has holes"),
    ("users-without-sudo", put("privileged", sudo=["ada", "ops"]), "ada may submit jobs"),
    ("users-without-sudo", put("privileged", sudoers=["ada"]), "files of sudo"),
]


@pytest.mark.parametrize(("key", "change", "words"), BROKEN)
def test_what_breaks_an_item_is_told_with_its_host(key: str, change: Change, words: str) -> None:
    document = cluster("ctl1", "gpu1", "login1")
    change(document["gpu1"]["facts"])
    found = row(document, key)
    assert found.verdict == FAILS
    assert found.hosts == ("ctl1", "login1")
    [hosts] = [hosts for sentence, hosts in found.problems.items() if words in sentence]
    assert hosts == ("gpu1",)
    assert found.cure
    text = security_table.table([found])
    assert "gpu1: " in text
    assert found.cure[:20] in text


def test_every_item_can_fail() -> None:
    """But one, which is a site's to switch on: it is off without."""
    assert LIVE.keys() - {key for key, *_ in BROKEN} == {"hidden-processes"}
    document = cluster("gpu1")
    document["gpu1"]["facts"]["hidepid"] = "0"
    assert row(document, "hidden-processes").verdict == OFF


def test_a_key_of_tokens_on_a_compute_node_is_told() -> None:
    document = cluster("ctl1", "gpu1")
    document["gpu1"]["groups"] = ["slurm_compute"]
    assert row(document, "token-key").problems == {
        "/etc/slurm/jwt_hs256.key is on a host that is neither a controller nor a database host": (
            "gpu1",
        )
    }


@pytest.mark.parametrize("key", LIVE)
def test_a_host_that_does_not_answer_leaves_nothing_green(key: str) -> None:
    document = cluster("ctl1", "gpu1")
    document["gpu1"] = {"groups": ALL, "away": "it does not answer"}
    found = row(document, key)
    assert found.verdict == UNKNOWN
    assert found.problems == {"it did not answer: it does not answer": ("gpu1",)}
    assert code([found]) == 2


@pytest.mark.parametrize("key", [key for key, item in LIVE.items() if item.needs])
def test_a_question_without_an_answer_leaves_nothing_green(key: str) -> None:
    for question in LIVE[key].needs:
        document = cluster("ctl1", "gpu1")
        del document["gpu1"]["facts"][question]
        assert row(document, key).verdict == UNKNOWN
        document["gpu1"]["errors"] = {question: "ss cannot be started"}
        [sentence] = row(document, key).problems
        assert sentence == f"{question} could not be asked: ss cannot be started"


@pytest.mark.parametrize("key", [key for key, item in LIVE.items() if item.needs])
def test_an_answer_of_another_kind_leaves_nothing_green(key: str) -> None:
    """A host that lacks what it is asked about, and one that answers nonsense."""
    for question in LIVE[key].needs:
        for nonsense in (None, 7):
            document = cluster("ctl1", "gpu1")
            document["gpu1"]["facts"][question] = nonsense
            found = row(document, key)
            assert "gpu1" not in found.hosts or (question, nonsense) in HARMLESS


# An answer that is true or false; and one that is read as text.
HARMLESS = {("container", None), ("container", 7), ("journal", 7), ("hidepid", 7)}


@pytest.mark.parametrize(
    ("key", "variable", "value"),
    [
        ("private-tmp", "slurm_private_tmp", False),
        ("private-data", "slurm_private_data", []),
        ("accounts-enforced", "slurm_users", []),
        ("firewall", "firewall_enabled", None),
        ("core-dumps", "node_base_limits", [{"item": "nofile", "value": "1"}]),
        ("root-login", "node_base_root_login", True),
        ("root-login", "node_base_baseline", "no"),
        ("sent-logs", "log_collection_host", ""),
        ("slurm-metrics", "slurm_exporter_openmetrics", True),
    ],
)
def test_what_the_inventory_switches_off_is_off_and_not_green(
    key: str, variable: str, value: Any
) -> None:
    document = cluster("ctl1")
    document["ctl1"]["declared"][variable] = value
    found = row(document, key)
    assert found.verdict == OFF
    assert any(variable in sentence for sentence in found.problems)


def test_what_no_host_has_is_absent() -> None:
    document = cluster("gpu1")
    document["gpu1"]["groups"] = ["slurm_compute"]
    assert row(document, "root-jobs").verdict == ABSENT
    document["gpu1"]["facts"]["grafana"] = None
    assert row(document, "grafana").verdict == ABSENT


def test_exit_codes() -> None:
    def rows(*verdicts: str) -> list[Row]:
        return [Row("1", "x", "y", verdict) for verdict in verdicts]

    assert code(rows(HOLDS, OFF, ABSENT)) == 0
    assert code(rows(HOLDS, FAILS)) == 1
    assert code(rows(HOLDS, FAILS, UNKNOWN)) == 2
    assert code(rows(OFF, ABSENT)) == 2  # nothing was verified
    assert code([]) == 2


def test_every_number_of_the_list_is_answered() -> None:
    assert {item.number for item in ITEMS} == {*map(str, range(1, 31)), "+"}
    keys = [item.key for item in ITEMS]
    assert len(set(keys)) == len(keys)


def test_every_test_that_is_named_is_there() -> None:
    for item in ITEMS:
        if isinstance(item, Elsewhere) and item.verdict == TESTED:
            for path in item.where.split(", "):
                assert (REPOSITORY / path).is_file(), path


def test_the_table_names_what_tests_show_and_is_narrow() -> None:
    hosts = security_table.hosts_of(cluster("ctl1", "gpu1"))
    rows = [judged(item, hosts) for item in ITEMS]
    text = security_table.table(rows)
    assert code(rows) == 0
    assert "tested" in text
    assert "molecule/default/tests/test_1_strangers.py" in text
    assert text.splitlines()[-1].startswith(f"Of {len(ITEMS)} items {len(LIVE)} hold;")
    assert max(map(len, text.splitlines())) <= 120
    told = json.loads(json.dumps(security_table.as_json(rows)))
    assert {one["verdict"] for one in told} == {"holds", "tested", "stated"}


def test_what_is_shown_of_a_host_has_no_control_characters() -> None:
    document = cluster("gpu1")
    document["gpu1"] = {"groups": ALL, "away": "\x1b[2Jgone"}
    assert "\x1b" not in security_table.table([row(document, "audit")])


def test_what_hosts_answered_is_written_with_the_reasons_of_the_others() -> None:
    away = {"unreachable": True, "msg": "Failed to connect to the host via ssh: no route"}
    failed = {"failed": True, "msg": "sudo: a password is required"}
    good = {"facts": {"journal": True}, "errors": {}, "declared": {}, "changed": False}
    assert answer(ALL, {"ping": "pong"}, good)["facts"] == {"journal": True}
    assert "no route" in answer(ALL, away, {})["away"]
    assert "password" in answer(ALL, failed, {"skipped": True})["away"]
    assert "python3" in answer(ALL, {}, {"failed": True, "msg": "it needs python3"})["away"]
    assert answer(ALL, {"ping": "pong"}, {})["away"] == "it was not asked"


def test_a_host_is_asked_for_the_state_where_the_inventory_has_it() -> None:
    assert "/srv/state" in paths({"slurm_state_save_location": "/srv/state"})
    assert (9100, "/metrics") in web_ports({"node_exporter_port": "9100"})
