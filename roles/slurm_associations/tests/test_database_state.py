"""What sacctmgr printed on a node of the scenario is what its database had.

The recordings, one for each release, are answers to database_state.questions, after molecule's own
declaration and these by hand:

    add qos mine GrpTRESMins=cpu=100,mem=1T MaxTRESPA=node=4 PreemptExemptTime=1:00:00
        flags=NoDecay,OverPartQOS MinTRESPerJob=cpu=2 GrpWall=100:30:00 LimitFactor=1.5
    add account old parent=science Description='a | b'
    add user eve account=old fairshare=parent maxwall=90 grptres=cpu=3,mem=1500
    add user alice account=physics partition=main
    modify account where name=chemistry set qos+=short
"""

from pathlib import Path

import pytest
import yaml

from roles.slurm_associations.plugin_utils import database_state, plan
from roles.slurm_associations.plugin_utils.database_state import DatabaseState, Key
from roles.slurm_associations.plugin_utils.declared import Declared, read

HERE = Path(__file__).resolve().parent
RECORDINGS = sorted((HERE / "recorded").glob("slurm-*.txt"))


def declared() -> Declared:
    """What the scenario declares."""
    scenario = yaml.safe_load((HERE.parent / "molecule/default/molecule.yml").read_text())
    variables = scenario["provisioner"]["inventory"]["group_vars"]["all"]
    entries = (variables[f"slurm_associations_{kind}"] for kind in ("accounts", "qos", "users"))
    found_, problems = read(*entries)
    assert problems == []
    return found_


def sections(recording: Path) -> dict[str, str]:
    parts = recording.read_text().split("## ")[1:]
    return {head: body for head, _, body in (part.partition("\n") for part in parts)}


@pytest.fixture(params=RECORDINGS, ids=lambda path: path.stem)
def answers(request) -> dict[str, str]:
    return sections(request.param)


@pytest.fixture
def there(answers) -> DatabaseState:
    return database_state.parse(answers, declared(), "scenario")


def test_the_questions_are_those_that_were_recorded(answers):
    assert database_state.questions(declared()).keys() <= answers.keys()


def test_qos_are_read(there):
    assert there.qos.keys() == {"normal", "short", "urgent", "mine"}
    short, urgent, mine = (there.qos[name] for name in ("short", "urgent", "mine"))
    assert short["MaxWall"] == 10
    assert short["MaxTRESPU"] == (("gres/gpu", 1), ("mem", 1024))
    assert (short["GraceTime"], short["PreemptExemptTime"]) == (90, 90)
    assert (short["UsageThreshold"], short["UsageFactor"]) == (0.1, 1.0)
    assert urgent["Preempt"] == frozenset({"normal", "short"})
    assert mine["GrpTRESMins"] == (("cpu", 100), ("mem", 1024 * 1024))
    assert mine["Flags"] == frozenset({"NoDecay", "OverPartQOS"})
    assert (mine["GrpWall"], mine["PreemptExemptTime"]) == (100 * 60 + 30, 3600)
    assert (mine["MaxTRESPA"], mine["MinTRESPerJob"]) == ((("node", 4),), (("cpu", 2),))
    assert there.qos["normal"]["Description"] == "everything else"


def test_accounts_and_users_are_read(there):
    assert there.accounts["science"] == {
        "Organization": "the faculty",
        "Description": "natural sciences",
    }
    assert there.accounts["old"]["Description"] == "a | b"
    assert there.users["bob"] == database_state.User("chemistry", "operator")
    assert there.users["alice"] == database_state.User("physics", "none")


def test_associations_are_read_without_what_they_inherit(there):
    eve = there.associations[Key("old", "eve")].values
    assert (eve["Fairshare"], eve["MaxWall"], eve["QOS"]) == ("parent", 90, None)
    assert eve["GrpTRES"] == (("cpu", 3), ("mem", 1500))
    physics = there.associations[Key("physics")]
    assert physics.parent == "science"
    assert physics.values["QOS"] == frozenset({"normal", "short"})
    assert there.associations[Key("physics", "alice")].values["QOS"] is None
    assert Key("physics", "alice", "main") in there.associations
    assert there.effective_qos("old") == frozenset({"normal"})
    assert there.other_clusters == frozenset()


def test_what_was_added_to_an_inherited_list_is_no_list():
    """`qos+=` of an account that has no list of its own; not of a recording."""
    root = database_state.Association("", {"QOS": frozenset({"normal", "long"})})
    changed = database_state.Association("root", {"QOS": frozenset({"+short", "-long"})})
    there = DatabaseState(associations={Key("root"): root, Key("a"): changed})
    assert there.effective_qos("a") == frozenset({"normal", "short"})


def test_what_was_declared_is_there_and_the_rest_is_kept(there):
    changes = plan.plan(declared(), there, "scenario", remove=False)
    assert changes.commands == []
    assert changes.kept == (
        "account chemistry: QOS=short",
        "user alice in physics, partition main",
        "user eve",
        "account old",
        "QOS mine",
    )


def test_resources_are_read(there):
    assert {"cpu", "mem", "node", "billing", "gres/gpu", "fs/disk"} <= (there.resources or set())


def test_default_accounts_are_those_of_the_cluster(answers):
    by_user = database_state.defaults(answers["defaults_of_two"], "scenario")
    assert by_user == {"root": "root", "alice": "physics", "bob": "chemistry", "eve": "old"}
    assert database_state.defaults(answers["defaults_of_two"], "other")["alice"] == "old"
