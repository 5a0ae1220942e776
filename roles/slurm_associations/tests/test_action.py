"""The action asks, plans, applies and asks again; what fails is one sentence."""

from types import SimpleNamespace
from typing import Any

import pytest

from roles.slurm_associations.action_plugins import slurm_associations as plugin
from roles.slurm_associations.library import sacctmgr_calls
from roles.slurm_associations.tests.database import Database, SacctmgrError

GIVEN = {
    "cluster": "Site",
    "accounts": [{"name": "physics", "limits": {"MaxJobs": 5}}],
    "qos": [],
    "users": [{"name": "alice", "account": "physics"}],
    "unmanaged": "keep",
}


class SacctmgrHost:
    """A host whose sacctmgr works on a Database."""

    def __init__(self) -> None:
        self.database = Database()
        self.visits: list[list[list[str]]] = []
        self.jobs = ""
        self.deaf = False  # takes everything, and does nothing
        self.broken = ""

    def execute(self, name: str, arguments: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        del task_vars
        assert name == "sacctmgr_calls"
        self.visits.append(arguments["calls"])
        results = []
        for call in arguments["calls"]:
            results.append(self._run(call))
            if results[-1]["rc"]:
                break
        return {"results": results}

    def _run(self, call: list[str]) -> dict[str, Any]:
        done = {"rc": 0, "stdout": "", "stderr": ""}
        if self.broken and self.broken in " ".join(call):
            return done | {"rc": 1, "stderr": "sacctmgr: error: slurmdbd is away\n"}
        if call[0] == "squeue":
            return done | {"stdout": self.jobs}
        if "show" in call:
            return done | {"stdout": self.database.answer(call)}
        try:
            if not self.deaf:
                self.database.run(call)
        except SacctmgrError as refused:
            return done | {"rc": 1, "stdout": f" {refused}\n"}
        return done


@pytest.fixture
def host() -> SacctmgrHost:
    return SacctmgrHost()


def run(host: SacctmgrHost, *, check: bool = False, **changes: Any) -> dict[str, Any]:
    action: Any = object.__new__(plugin.ActionModule)
    action._task = SimpleNamespace(check_mode=check)
    action._execute_module = host.execute
    action._variables = {}
    try:
        return dict(action._apply({**GIVEN, **changes}))
    except plugin.Failed as failed:
        return {"failed": True, "msg": str(failed)}


def test_a_run_asks_applies_and_asks_again_and_the_next_one_only_asks(host):
    first = run(host)
    assert first["changed"]
    assert [len(visit) for visit in host.visits] == [4, 2, 4]
    assert first["commands"][1] == (
        "sacctmgr --immediate add user name=alice account=physics cluster=site "
        "DefaultAccount=physics"
    )
    host.visits.clear()
    second = run(host)
    assert (second["changed"], second["commands"], second["msg"]) == (False, [], "")
    assert [len(visit) for visit in host.visits] == [4]
    assert all("--readonly" in call for call in host.visits[0])


def test_check_mode_shows_the_same_and_does_nothing(host):
    predicted = run(host, check=True)
    assert len(host.visits) == 1
    done = run(host)
    assert predicted == done
    assert done["diff"]["after"].splitlines() == [
        "account physics: parent=root, MaxJobs=5",
        "user alice in physics: DefaultAccount=physics",
    ]


def test_check_mode_on_a_cluster_that_is_not_up_predicts_all_of_it(host):
    host.broken = "sacctmgr"
    assert len(run(host, check=True)["commands"]) == 2
    assert run(host)["failed"]


def test_what_has_jobs_is_refused_before_anything_is_changed(host):
    run(host)
    host.database.add_user(["eve"], {"account": "physics"}, {"DefaultAccount": "physics"})
    host.jobs = "7|eve|physics|normal\n"
    host.visits.clear()
    for check in (True, False):
        refused = run(host, check=check, unmanaged="remove")
        assert "user eve is not declared and would be removed, but has jobs (7)" in refused["msg"]
    assert [visit[0][0] for visit in host.visits] == ["sacctmgr", "squeue"] * 2
    host.jobs = "8|alice|physics|normal\n"
    assert run(host, unmanaged="remove")["commands"] == [
        "sacctmgr --immediate delete user where name=eve"
    ]


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        ("show qos", "`sacctmgr --noheader --parsable2 --readonly show qos format=Name,Priority,"),
        ("add user", "slurmdbd is away; 1 of 2 commands were done before it."),
    ],
)
def test_a_command_that_fails_is_named_with_its_last_words(host, broken, sentence):
    host.broken = broken
    failed = run(host)
    assert sentence in failed["msg"]
    assert failed["msg"].startswith("slurm_associations: `sacctmgr ")
    assert "failed: slurmdbd is away" in failed["msg"]


def test_what_sacctmgr_took_and_the_database_has_not_is_told(host):
    host.deaf = True
    assert "the first that lacks: account physics: parent=root, MaxJobs=5" in run(host)["msg"]


def test_a_cluster_that_the_database_does_not_know_is_told(host):
    assert "does not know the cluster other" in run(host, cluster="other")["msg"]


def test_what_is_wrong_with_the_declaration_is_told_before_anything_is_asked(host):
    assert "user eve has no account" in run(host, users=[{"name": "eve"}])["msg"]
    assert host.visits == []


# --- the module ----------------------------------------------------------------------------------


def test_commands_run_in_their_order_up_to_the_first_that_fails():
    calls = [["printf", "%s|", "a b", "ü"], ["sh", "-c", "echo no >&2; exit 3"], ["true"]]
    assert list(sacctmgr_calls.run(calls, 10)) == [
        {"rc": 0, "stdout": "a b|ü|", "stderr": ""},
        {"rc": 3, "stdout": "", "stderr": "no\n"},
    ]


@pytest.mark.parametrize(
    ("call", "words"), [(["no-such-program"], "No such file"), (["sleep", "5"], "timed out")]
)
def test_a_command_that_does_not_start_or_end_has_failed(call, words):
    [result] = sacctmgr_calls.run([call], 1)
    assert result["rc"] == 127
    assert words in str(result["stderr"])
