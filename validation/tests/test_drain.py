"""--drain and --undrain: what is taken out of service and returned, and what never is."""

import io
import json
from dataclasses import replace

import pytest

from cluster.declaration import Partition
from cluster.slurm import drain_reasons
from cluster.slurm.drain_reasons import Shown, shown
from validation.drain import decision
from validation.model import Standing
from validation.slurm.admin import Drain
from validation.tests.sample_reports import evil, healthy, mixed_bag

OURS = "[plumbline:validation/gpus] 1 GPU device nodes found, 2 declared"
ONE_GPU = {"arguments": {"gpus": 1}}
FOUR = tuple((f"gpu{number}", "virtual", 2) for number in range(1, 5))


# --- reasons ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "checks"),
    [
        (OURS, ("gpus",)),
        ("[plumbline:validation/gpus,ecc] x", ("gpus", "ecc")),
        ("[plumbline:validation/*] x", ()),
        ("[plumbline:gpu_ecc] x", None),  # a health check's
        ("[plumbline:reboot] x", None),
        ("plumbline:validation/gpus] x", None),
        ("see [plumbline:validation/gpus] x", None),
        ("[plumbline:validation/gpus]", None),
        ("bad fan", None),
        ("", None),
    ],
)
def test_only_a_validation_s_reason_is_ours(reason, checks):
    assert drain_reasons.failed_checks(reason) == checks


def test_a_reason_fits_and_names_every_check_or_says_that_it_does_not():
    few = drain_reasons.of_validation(["gpus", "ecc", "gpus"], 'a "quoted" line\nand another')
    assert few == "[plumbline:validation/gpus,ecc] a 'quoted' line and another"
    many = drain_reasons.of_validation([f"check_{n}" for n in range(40)], "x" * 500)
    assert len(many) == drain_reasons.LONGEST
    assert drain_reasons.failed_checks(many) == ()


@pytest.mark.parametrize(
    ("state", "in_service"),
    [
        ("IDLE", True), ("MIXED+PLANNED", True), ("ALLOCATED", True), ("IDLE+CLOUD", True),
        ("IDLE+DRAIN", False), ("DOWN*", False), ("IDLE*", False), ("MIXED+DRAIN", False),
        ("IDLE+MAINTENANCE", False), ("IDLE+FAIL", False), ("IDLE+POWERED_DOWN", False),
        ("IDLE+REBOOT_REQUESTED", False), ("FUTURE", False), ("UNKNOWN", False),
    ],
)  # fmt: skip
def test_a_node_is_in_service_or_not(state, in_service):
    node = shown(f"NodeName=n1 State={state} Reason={OURS} [root@2026-11-26T08:00:00]")
    assert (node.name, node.in_service, node.reason) == ("n1", in_service, OURS)


# --- what may be drained ---------------------------------------------------------------------


def idle(*names, words="IDLE", reason=""):
    return {name: Shown(name, frozenset({words}), reason) for name in names}


def drains(*names):
    return tuple(Drain(name, OURS) for name in names)


def partition(count, name="gpu"):
    return Partition(name, tuple(f"n{number}" for number in range(1, count + 1)), True)


@pytest.mark.parametrize(
    ("nodes", "failing", "before", "percent", "drained"),
    [
        (1, 1, 0, 10, 1),  # one at least, whatever the share
        (9, 1, 0, 10, 1),
        (9, 2, 0, 10, 0),
        (20, 2, 0, 10, 2),
        (29, 3, 0, 10, 0),
        (30, 3, 0, 10, 3),
        (30, 2, 2, 10, 0),  # those of earlier runs count
        (30, 2, 1, 10, 2),
        (4, 2, 0, 50, 2),
        (4, 4, 0, 100, 4),
    ],
)
def test_no_more_than_a_share_of_a_partition(nodes, failing, before, percent, drained):
    of = partition(nodes)
    states = idle(*of.nodes)
    states |= idle(*of.nodes[nodes - before :], words="DRAIN", reason=OURS)
    plan = decision.plan(drains(*of.nodes[:failing]), states, [of], percent)
    assert len(plan.drains) == drained
    if not drained:
        assert f"nothing is drained: {failing} of the {nodes} nodes of partition gpu" in str(plan)


def test_the_smallest_partition_that_a_node_is_in_decides():
    small = Partition("small", ("n1", "n2"), False)
    plan = decision.plan(drains("n1", "n2"), idle(*partition(40).nodes), [partition(40), small])
    assert plan.drains == ()
    assert "partition small" in plan.notes[-1]


@pytest.mark.parametrize("words", ["DRAIN", "DOWN", "NOT_RESPONDING", "MAINTENANCE", "FAIL"])
def test_a_node_that_is_not_in_service_is_left_alone(words):
    states = idle("n1") | idle("n2", words=words, reason="bad fan")
    plan = decision.plan(drains("n1", "n2", "n3"), states, [partition(40)])
    assert [drain.node for drain in plan.drains] == ["n1"]
    assert plan.notes == (
        f"n2 is not drained: Slurm has it as {words} (bad fan)",
        "n3 is not drained: Slurm does not show it",
    )


def test_only_failing_nodes_are_proposed_and_only_for_failures_of_their_own():
    assert decision.proposed(healthy()) == ()
    report = mixed_bag()
    suspects = [n.node.name for n in report.nodes if n.standing is Standing.SUSPECT]
    assert suspects
    (drain,) = decision.proposed(report)  # gpu2 is drained already: slurm_state alone
    assert drain == Drain("gpu3", OURS)
    assert decision.proposed(replace(report, interrupted=True)) == ()
    for drain in decision.proposed(evil()):
        assert drain.reason.isprintable()


@pytest.mark.parametrize("cause", ["refused", "account", "busy", "lost", "not run", "interrupted"])
def test_what_says_nothing_of_the_node_drains_none(cause):
    report = mixed_bag()
    nodes = tuple(
        replace(n, own_failures=tuple(replace(r, cause=cause) for r in n.own_failures))
        for n in report.nodes
    )
    assert decision.proposed(replace(report, nodes=nodes)) == ()


# --- whole runs ------------------------------------------------------------------------------


def told(cluster):
    path = cluster.path / "state/told"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def now(cluster):
    nodes = json.loads((cluster.path / "state/nodes.json").read_text())
    return {name: (state, reason) for name, (state, *_, reason) in nodes.items()}


def quick(*more):
    return ("--only", "gpus,hostname", *more)


def test_a_failing_node_is_drained_with_our_reason(cluster):
    cluster.install(*FOUR, **{"node-gpu2": ONE_GPU})
    status, out, _ = cluster.run(*quick("--drain", "--yes"))
    assert status == 1
    assert now(cluster)["gpu2"] == ("drained", OURS)
    assert len(told(cluster)) == 1
    assert "drained: gpu2" in out
    assert cluster.summary()["notes"][-1] == "drained: gpu2"


def test_without_a_terminal_and_without_yes_the_command_is_printed(cluster):
    cluster.install(*FOUR, **{"node-gpu2": ONE_GPU})
    _, out, _ = cluster.run(*quick("--drain"))
    assert told(cluster) == []
    assert f"scontrol update NodeName=gpu2 State=DRAIN 'Reason={OURS}'" in out
    assert "nothing is drained: no terminal to ask, and no --yes: gpu2" in out


@pytest.mark.sample(1)
@pytest.mark.parametrize(("answer", "drained"), [("y\n", 1), ("\n", 0)])
def test_a_person_is_asked_each_time(cluster, monkeypatch, answer, drained):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    cluster.install(*FOUR, **{"node-gpu2": ONE_GPU})
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    monkeypatch.setattr("sys.stderr", shown_at := Terminal())
    cluster.run(*quick("--drain"))
    assert "Drain this node? [y/N]" in shown_at.getvalue()
    assert len(told(cluster)) == drained


def test_more_than_the_share_drains_nothing(cluster):
    cluster.install(*FOUR, **{f"node-gpu{n}": ONE_GPU for n in (2, 3)})
    _, out, _ = cluster.run(*quick("--drain", "--yes"))
    assert told(cluster) == []
    assert "nothing is drained: 2 of the 4 nodes of partition gpu would be" in out
    assert "--drain-limit 10 allows 1" in out
    cluster.run(*quick("--drain", "--yes", "--drain-limit", "50"))
    assert [state for state, _ in now(cluster).values()] == ["idle", "drained", "drained", "idle"]


def test_a_refusal_is_one_sentence(cluster):
    denied = "slurm_update error: Access/permission denied"
    cluster.install(*FOUR, scontrol=denied, **{"node-gpu2": ONE_GPU})
    status, out, _ = cluster.run(*quick("--drain", "--yes"))
    assert status == 1
    assert "Slurm did not drain gpu2 for" in out
    assert f"{denied}; it needs an administrator of Slurm (AdminLevel=Admin), or root" in out


def test_a_node_that_somebody_drains_between_plan_and_answer_is_left_alone(cluster, monkeypatch):
    cluster.install(*FOUR, **{"node-gpu2": ONE_GPU})

    def given(self, question):
        path = cluster.path / "state/nodes.json"
        nodes = json.loads(path.read_text())
        nodes["gpu2"] = ["drained", *nodes["gpu2"][1:-1], "bad fan"]
        path.write_text(json.dumps(nodes))
        return True

    monkeypatch.setattr("validation.drain.steps.Consent.given", given)
    _, out, _ = cluster.run(*quick("--drain", "--yes"))
    assert now(cluster)["gpu2"] == ("drained", "bad fan")
    assert "gpu2 is not drained: it is IDLE+DRAIN meanwhile (bad fan)" in out


def drained(cluster, *names, reason=OURS, **faults):
    states = {name: ["drained", 2, 2000, "gpu:virtual:2", reason] for name in names}
    return cluster.install(*FOUR, states=states, **faults)


def test_a_repaired_node_returns(cluster):
    drained(cluster, "gpu2")
    status, out, _ = cluster.run(*quick("--undrain", "--yes"))
    assert status == 0
    assert now(cluster)["gpu2"] == ("idle", "none")
    assert "returned to service: gpu2" in out
    assert [words[0] for words in told(cluster)] == ["create", "update", "delete"]
    assert {node["name"] for node in cluster.summary()["nodes"]} == {"gpu2"}
    reserved = told(cluster)[0]
    assert {"Duration=infinite", "Flags=MAINT,IGNORE_JOBS", "Nodes=gpu2"} <= set(reserved)


def test_a_node_that_still_fails_is_drained_again_with_its_reason(cluster):
    drained(cluster, "gpu2", "gpu3", **{"node-gpu2": ONE_GPU})
    status, out, _ = cluster.run(*quick("--undrain", "--yes"))
    assert status == 1
    assert now(cluster)["gpu2"] == ("drained", OURS)
    assert now(cluster)["gpu3"] == ("idle", "none")
    assert "returned to service: gpu3" in out
    assert "drained again, with the former reason: gpu2" in out


@pytest.mark.parametrize("reason", ["bad fan", "[plumbline:gpu_ecc] GPU 0"])
def test_what_another_drained_is_never_returned(cluster, reason):
    drained(cluster, "gpu2", reason=reason)
    status, _, err = cluster.run(*quick("--undrain", "--yes"))
    assert status == 2
    assert "--undrain: no selected node has been drained by a validation" in err
    assert told(cluster) == []


def test_a_node_whose_failed_check_is_not_made_stays_drained(cluster):
    drained(cluster, "gpu2", reason="[plumbline:validation/ecc,gpus] x")
    status, _, err = cluster.run(*quick("--undrain", "--yes"))
    assert status == 2
    assert "gpu2 stays drained: this run does not make ecc" in err
    assert told(cluster) == []


def test_a_check_that_was_not_judged_proves_nothing(cluster):
    """all_reduce of one node alone is inconclusive: the node does not return."""
    drained(cluster, "gpu2", reason="[plumbline:validation/all_reduce] x")
    cluster.run("--only", "all_reduce", "--undrain", "--yes")
    assert now(cluster)["gpu2"] == ("drained", "[plumbline:validation/all_reduce] x")


def test_undrain_without_consent_changes_nothing(cluster):
    drained(cluster, "gpu2")
    status, _, err = cluster.run(*quick("--undrain"))
    assert status == 2
    assert "--undrain: nothing was changed: there is no terminal to ask; give --yes" in err
    assert "scontrol update NodeName=gpu2 State=RESUME" in err
    status, out, _ = cluster.run(*quick("--undrain", "--dry-run"))
    assert status == 0
    assert "gpu2" in out
    assert told(cluster) == []


def test_a_run_that_breaks_leaves_the_nodes_drained(cluster, monkeypatch):
    drained(cluster, "gpu2")

    def walk(*_, **__):
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr("validation.tiers.walk", walk)
    with pytest.raises(RuntimeError):
        cluster.run(*quick("--undrain", "--yes"))
    assert now(cluster)["gpu2"] == ("drained", OURS)
    assert told(cluster)[-1][0] == "delete"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--drain", "--undrain"), "are two runs"),
        (("--undrain", "--reservation", "x"), "leave --reservation out"),
        (("--drain", "--drain-limit", "0"), "expected percent above 0, found 0"),
        (("--drain", "--drain-limit", "nan"), "expected percent above 0, found nan"),
    ],
)
def test_options_that_do_not_belong_together(cluster, options, sentence):
    status, _, err = cluster.install().run(*options)
    assert status == 2
    assert sentence in err


# --- each node by itself -----------------------------------------------------------------------


@pytest.mark.long
def test_alone_leaves_out_what_only_several_nodes_could_prove(cluster):
    """Or a single node could never be proven by a suite that compares nodes."""
    cluster.install(*FOUR)
    wanted = ("--only", "gpus,all_reduce", "--nodes", "gpu1")
    status, _, _ = cluster.run(*wanted)
    assert status != 0
    status, _, _ = cluster.run(*wanted, "--alone")
    assert status == 0
    summary = cluster.summary()
    assert {result["check"] for result in summary["results"]} == {"slurm_state", "gpus"}
    # What is left is all that is asked.
    assert summary["passing_nodes"] == ["gpu1"]
    cluster.run("--nodes", "gpu1", "--alone", "--skip", "tmp")
    assert cluster.summary()["passing_nodes"] == ["gpu1"]
