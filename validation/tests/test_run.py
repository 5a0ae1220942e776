"""The whole program on a simulated Slurm, as an operator starts it: what it prints, what it leaves
behind, and its exit code."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path

import pytest
import yaml

from cluster.errors import UsageError
from validation import cluster as clusters
from validation import run, suites
from validation.tests import simulated_slurm
from validation.tests.processes import wait_for
from validation.tests.simulated_cluster import FILES, ROOT
from validation.tests.whole_thresholds import COLLECTIVE
from validation.transport import inventory


def test_a_healthy_cluster(cluster):
    status, out, err = cluster.install().run()
    assert status == 0
    assert "PASS  24 pass, 2 skip · exit 0" in out
    assert "2 × 1" in err  # the plan comes first
    assert {path.name for path in cluster.output.iterdir()} == FILES
    assert cluster.lines("passing_nodes.txt") == ["gpu1", "gpu2"]
    assert cluster.lines("failing_nodes.txt") == []
    assert len(cluster.lines("results.jsonl")) == 26
    assert ET.parse(cluster.output / "junit.xml").getroot().get("tests") == "26"
    jobs = {path.name for path in (cluster.output / "jobs").iterdir()}
    assert {"node-gpu1.stdout", "ddp.stderr"} <= jobs
    ddp = next(r for r in cluster.summary()["results"] if r["check"] == "ddp")
    assert ddp["proof"]["world_size"] == 2
    assert ddp["proof"]["hosts"] == ["gpu1", "gpu2"]
    assert ddp["proof"]["job_id"]
    assert cluster.summary()["slurm"] == "24.11.5"
    assert not list(Path("/tmp").glob(f"plumbline-{cluster.summary()['run']}*"))


def test_the_real_node_payload_runs_through_the_whole_chain(cluster):
    """Not the stand-in: the bundle on stdin, the bootstrap, the payload on this machine."""
    cluster.install(**{"node-gpu1": {"real": True}})
    document = json.loads((cluster.path / "cluster.json").read_text())
    cpus = os.sysconf("SC_NPROCESSORS_ONLN")
    document["nodes"][0] |= {"cpus": cpus, "memory_mb": 1, "gpus": {"count": 0}}
    (cluster.path / "cluster.json").write_text(json.dumps(document))
    nodes = json.loads((cluster.path / "state" / "nodes.json").read_text())
    nodes["gpu1"] = ["idle", cpus, 1, "(null)", "none"]
    (cluster.path / "state" / "nodes.json").write_text(json.dumps(nodes))
    _, out, _ = cluster.run("--nodes", "gpu1", "--skip", "gpus")
    assert cluster.verdict_of("cpus", "gpu1") == ("pass", "")
    assert cluster.verdict_of("munge", "gpu1") == ("pass", "")
    assert cluster.verdict_of("clock", "gpu1")[0] in ("pass", "warn"), out


# --- each fault, as it shows to who started the run ------------------------------------------


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("faults", "check", "subject", "message"),
    [
        ({"node-gpu2": "silent"}, "munge", "gpu2", "no answer on stdout"),
        ({"all_reduce": {"arguments": {"wrong": 9}}}, "all_reduce", "virtual", "of the sum"),
        (
            {"pipeline": "crash"},
            "pipeline",
            "virtual",
            "exit status 1: pipeline, rank 1 on gpu2: out of luck; gpu2: task 1: Exited",
        ),
    ],
)
def test_a_fault_fails_the_run_and_is_named(cluster, faults, check, subject, message):
    status, out, _ = cluster.install(**faults).run()
    assert status == 1
    verdict, sentence = cluster.verdict_of(check, subject)
    assert verdict == "fail"
    assert message in sentence
    assert "FAIL" in out
    assert "next: " in out
    assert set(cluster.lines("failing_nodes.txt")) >= ({"gpu2"} if subject == "gpu2" else set())


def test_other_output_does_no_harm(cluster):
    status, _, _ = cluster.install(ddp="noise").run("--only", "ddp")
    assert status == 0


def test_a_node_that_hangs_is_given_up(cluster):
    cluster.install(limits={"run": 2}, **{"node-gpu2": "hang"})
    begin = time.monotonic()
    status, _, _ = cluster.run()
    assert status == 1
    assert time.monotonic() - begin < 30
    assert "did not end in 2 s" in cluster.verdict_of("clock", "gpu2")[1]
    assert cluster.verdict_of("clock", "gpu1")[0] == "pass"
    assert cluster.verdict_of("ddp", "virtual") == ("fail", "only 1 of 2 nodes left")
    assert cluster.lines("failing_nodes.txt") == ["gpu2"]
    assert simulated_slurm.running(cluster.path) == []


FOUR = tuple((f"gpu{number}", "virtual", 2) for number in (1, 2, 3, 4))


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("trouble", "words", "most_s"),
    [
        ({"states": {"gpu4": ["down", 2, 2000, "gpu:2", "no power"]}}, "says down (no power)", 10),
        (
            {"states": {"gpu4": ["drained", 2, 2000, "gpu:2", "broken | fan"]}},
            "Slurm says drained (broken | fan)",
            10,
        ),
        ({"states": {"gpu4": ["idle*", 2, 2000, "gpu:virtual:2", "none"]}}, "not answer", 10),
        # The port is asked again for all the time in which slurmd could be back.
        ({"slurmd": {"gpu4": "stopped"}}, "slurmd does not answer: 127.0.0.1:1 refuses", 25),
        # It takes connections and does nothing: Slurm itself notices that.
        ({"slurmd": {"gpu4": "hung"}}, "gpu4 is idle* meanwhile", 45),
    ],
    ids=["down", "drained", "no answer", "slurmd stopped", "slurmd hangs"],
)
def test_no_tier_waits_for_a_node_that_is_dead(cluster, trouble, words, most_s):
    """In addition to what the same run takes where all nodes are well."""
    cluster.install(*FOUR, **trouble)
    well = time.monotonic()
    assert cluster.run("--exclude", "gpu4")[0] == 0
    begin = time.monotonic()
    status, out, _ = cluster.run()
    assert time.monotonic() - begin < most_s + 2 * (begin - well)
    assert status == 1
    assert words in out
    assert re.search(r"(scontrol show node|ssh) gpu4\b", out), out
    assert cluster.lines("failing_nodes.txt") == ["gpu4"]
    assert cluster.lines("passing_nodes.txt") == ["gpu1", "gpu2", "gpu3"]
    assert cluster.verdict_of("pipeline", "virtual")[0] == "pass"
    assert simulated_slurm.running(cluster.path) == []


@pytest.mark.long
def test_what_stops_the_first_job_of_all_nodes_is_waited_for_and_told_once(cluster):
    begin = time.monotonic()
    status, out, _ = cluster.install(limits={"queue": 3}, all_reduce="stuck").run()
    # A step is waited for as long as START_FLOOR_S, then a job of its own for its 3 s.
    assert time.monotonic() - begin < 60
    assert status == 3
    assert "did not start in" in cluster.verdict_of("all_reduce", "virtual")[1]
    for name in ("ddp", "pipeline"):
        expected = ("inconclusive", "not run: all_reduce waited in vain on the same nodes")
        assert cluster.verdict_of(name, "virtual") == expected
    assert "ddp" in out
    assert cluster.lines("failing_nodes.txt") == []


def test_a_job_that_others_keep_waiting_is_inconclusive(cluster):
    status, out, _ = cluster.install(limits={"queue": 3}, ddp="queue").run("--only", "ddp")
    assert status == 3
    assert "busy with other jobs (Resources)" in cluster.verdict_of("ddp", "virtual")[1]
    assert "INCONCLUSIVE" in out


def test_a_dead_controller_fails_the_run(cluster):
    status, out, _ = cluster.install(sinfo="sinfo: error: Unable to contact controller").run()
    assert status == 1
    assert "Unable to contact controller" in out
    # That is Slurm's fault, and no node's.
    assert cluster.lines("failing_nodes.txt") == cluster.lines("passing_nodes.txt") == []


@pytest.mark.sample(2)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_cancels_its_jobs_and_leaves_what_it_knew(cluster, number):
    cluster.install(ddp="hang")
    process = subprocess.Popen(
        [sys.executable, "-m", "validation.run", *cluster.arguments()],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    running = partial(simulated_slurm.running, cluster.path)
    wait_for(lambda: any(name.endswith("-ddp") for name in running()), seconds=40)
    # The next job may begin before what the last one said is judged.
    wait_for(lambda: '"check": "all_reduce"' in "".join(cluster.lines("results.jsonl")), seconds=40)
    known = len(cluster.lines("results.jsonl"))
    process.send_signal(number)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)  # once more, while it tidies up
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert "interrupted" in out
    assert known >= 12  # the node tier had been written before
    assert simulated_slurm.running(cluster.path) == []
    assert cluster.verdict_of("cpus", "gpu1")[0] == "pass"
    assert cluster.verdict_of("all_reduce", "virtual")[0] == "pass"
    assert "interrupted" in cluster.verdict_of("ddp", "virtual")[1]
    assert cluster.summary()["interrupted"] is True
    assert cluster.lines("passing_nodes.txt") == []


# --- whose fault it is, and what proves nothing ----------------------------------------------


def test_an_account_that_slurm_refuses_is_one_sentence_and_no_verdict(cluster):
    status, out, err = cluster.install(**{"node-gpu1": "refused", "node-gpu2": "refused"}).run()
    assert (status, out) == (2, "")
    assert "Slurm accepts no job of this user: Unable to allocate resources: Invalid part" in err
    assert not (cluster.output / "failing_nodes.txt").exists()


def test_gpus_of_another_type_in_slurm_are_told_before_a_job_is_refused(cluster):
    untyped = {"gpu1": ["idle", 2, 2000, "gpu:2", "none"]}
    status, _, _ = cluster.install(states=untyped).run()
    assert status == 1
    message = "Slurm has gpu:2, gpu:virtual:2 is declared"
    assert cluster.verdict_of("slurm_state", "gpu1") == ("fail", message)
    assert cluster.lines("failing_nodes.txt") == ["gpu1"]


def test_a_type_that_slurm_refuses_is_a_failure_and_no_nodes(cluster):
    status, _, _ = cluster.install(pipeline="gres").run()
    assert status == 1
    verdict, message = cluster.verdict_of("pipeline", "virtual")
    assert verdict == "fail"
    assert "Invalid generic resource (gres) specification, asked for gpu:virtual:2" in message
    assert cluster.lines("failing_nodes.txt") == []


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "selection", [("--nodes", "gpu1"), ("--only", "all_reduce", "--nodes", "gpu1")]
)
def test_one_selected_node_is_no_green_cluster(cluster, selection):
    status, _, _ = cluster.install().run(*selection)
    assert status == 3
    assert cluster.verdict_of("all_reduce", "virtual")[0] == "inconclusive"
    assert cluster.lines("passing_nodes.txt") == []
    assert "nodes: gpu2" in cluster.summary()["left_out"]


def test_one_gpu_of_an_unknown_model_is_no_green_node(cluster):
    node = {"arguments": {"gpus": 1, "names": ["TPU v9"]}}
    status, _, _ = cluster.install(("x1", "tpu_v9", 1), **{"node-x1": node}).run()
    assert status == 3
    assert cluster.verdict_of("gpus", "x1")[0] == "inconclusive"


def test_accounting_that_stopped_is_noticed(cluster):
    status, _, _ = cluster.install(accounting="sacctmgr: error: Connection refused").run()
    assert status == 1
    message = "sacctmgr: error: Connection refused"
    assert cluster.verdict_of("accounting", "slurm") == ("fail", message)
    assert cluster.lines("failing_nodes.txt") == []


def test_a_cluster_without_accounting_is_no_failure(cluster):
    status, _, _ = cluster.install(accounting_kind="(null)").run("--only", "accounting")
    assert status == 0


def test_lines_that_come_late_through_srun_accuse_no_node(cluster):
    status, _, _ = cluster.install(**{"node-gpu1": "late"}).run("--only", "clock")
    assert status == 3
    assert "srun was too slow to tell" in cluster.verdict_of("clock", "gpu1")[1]
    assert cluster.verdict_of("clock", "gpu2")[0] == "pass"
    assert cluster.lines("failing_nodes.txt") == []


def test_a_login_node_whose_clock_is_slow_accuses_no_node(cluster):
    status, _, _ = cluster.install(clocks_s=30).run()
    assert status == 1
    verdict, sentence = cluster.verdict_of("clock", "gpu1")
    assert (verdict, "login node's clock is 30 s behind" in sentence) == ("fail", True)
    assert cluster.verdict_of("ddp", "virtual")[0] == "pass"
    assert cluster.lines("failing_nodes.txt") == []


@pytest.mark.sample(1)
@pytest.mark.parametrize("fault", ["limit", "wait"])
def test_limits_of_the_user_make_the_run_slower_and_not_red(cluster, fault):
    faults = {f"node-{name}": fault for name, _, _ in FOUR}
    status, out, _ = cluster.install(*FOUR, limits={"queue": 5}, **faults).run("--only", "cpus")
    assert status == 0, out


# --- how it is asked -------------------------------------------------------------------------


def options_of(cluster, job):
    words = json.loads((cluster.path / "state" / f"argv.{job}").read_text())
    return [word for word in words if word.startswith("--")]


def test_what_the_site_wishes_reaches_srun_before_what_the_plan_says(cluster):
    wishes = ("--account=hpc", "--qos=high", "--reservation=maint", "--constraint=ib")
    more = "--srun-option=--comment=acceptance"
    status, _, _ = cluster.install().run(*wishes, more, "--only", "cpus,ddp")
    assert status == 0
    allocation, *step = options_of(cluster, "node-gpu1")
    assert allocation.startswith("--jobid=")
    salloc = json.loads((cluster.path / "state" / "allocated").read_text())
    for options in (step, salloc, options_of(cluster, "ddp")):  # the last is a job of its own
        assert options[:5] == [*wishes, "--comment=acceptance"]
    assert {"--cpus-per-task=2", "--mem=0", "--exclusive"} <= set(options_of(cluster, "ddp"))


def test_the_inventorys_wishes_are_defaults(cluster):
    cluster.install()
    path = cluster.path / "cluster.json"
    wishes = {"account": "hpc", "qos": "low", "srun_options": ["--comment=x"]}
    path.write_text(json.dumps({**json.loads(path.read_text()), "submission": wishes}))
    assert cluster.run("--qos", "high", "--only", "cpus")[0] == 0
    options = options_of(cluster, "node-gpu1")[1:4]
    assert options == ["--account=hpc", "--qos=high", "--comment=x"]


@pytest.mark.parametrize("option", ["--nodelist=gpu1", "--exclus", "--time=1", "nonsense", ""])
def test_an_option_that_the_plan_decides_is_refused(cluster, option):
    status, out, err = cluster.install().run(f"--srun-option={option}")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("validation: --srun-option: ")


def test_slurms_own_variables_change_nothing(cluster, monkeypatch):
    own = ("SINFO_FORMAT", "SINFO_PARTITION", "SQUEUE_STATES", "SLURM_ACCOUNT", "SLURM_EXCLUSIVE")
    for name in own:
        monkeypatch.setenv(name, "nonsense")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    fault = {"node-gpu1": "environment"}
    status, out, _ = cluster.install(**fault).run("--only", "cpus", "--nodes", "gpu1")
    assert status == 0, out
    seen = json.loads((cluster.path / "state" / "environment").read_text())
    assert [name for name in seen if name.startswith(("SLURM_", "SINFO_", "SQUEUE_"))] == [
        "SLURM_CONF"
    ]


def test_two_runs_in_one_second_have_a_folder_each(cluster, monkeypatch):
    cluster.install()
    monkeypatch.chdir(cluster.path)
    for _ in range(2):
        status = run.main([*cluster.arguments()[:3], "--only", "slurm_state"])
        assert status == 0
    folders = [path for path in (cluster.path / "results").iterdir() if path.is_dir()]
    assert len(folders) == 2


def test_thresholds_that_would_hold_for_other_inventories_are_refused(tmp_path, capsys):
    for name in ("site", "other", "thresholds"):
        (tmp_path / name).mkdir()
    options = run._parser(run.PROGRAM).parse_args(["-i", str(tmp_path / "site")])
    with pytest.raises(UsageError, match=r"rename it to site\.thresholds"):
        clusters.site_thresholds(options, [str(tmp_path / "site")])
    (tmp_path / "thresholds").rename(tmp_path / "site.thresholds")
    assert (
        clusters.site_thresholds(options, [str(tmp_path / "site")]) == tmp_path / "site.thresholds"
    )
    assert clusters.site_thresholds(options, [str(tmp_path / "other")]) is None


# --- without a verdict -----------------------------------------------------------------------


def test_a_dry_run_submits_nothing(cluster):
    status, out, _ = cluster.install().run("--dry-run")
    assert status == 0
    assert "nothing was submitted" in out
    assert "at most" in out
    assert not cluster.output.exists()
    assert not list((cluster.path / "state").glob("argv.*"))


def test_list(capsys):
    assert run.main(["--list"]) == 0
    out = capsys.readouterr().out
    assert "quick" in out
    assert re.search(r"^ +cluster +all_reduce +\w", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--only", "gemm"], "suite quick has no check gemm; it has slurm_state, "),
        (["--nodes", "gpu7"], "--nodes: unknown gpu7; declared nodes: gpu[1-2]"),
        (["--partition", "big"], "unknown partition big; there is gpu"),
        (
            ["--suite", "long"],
            "unknown suite 'long'; there is burn-in, full, gpu, local, network, quick",
        ),
        (["--thresholds", "/nowhere"], "there is no folder /nowhere"),
    ],
)
def test_what_does_not_exist_is_a_usage_error(cluster, arguments, sentence):
    status, out, err = cluster.install().run(*arguments)
    assert (status, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
    assert not cluster.output.exists()


def test_without_a_cluster_it_says_how_to_name_one(capsys, monkeypatch):
    monkeypatch.delenv("ANSIBLE_INVENTORY", raising=False)
    monkeypatch.setattr(inventory, "CONFIG", Path("/nowhere/ansible.cfg"))
    assert run.main([]) == 2
    assert "give -i INVENTORY, or --here on a login node" in capsys.readouterr().err
    assert run.main(["-i", "/nowhere"]) == 2
    assert "there is no inventory /nowhere" in capsys.readouterr().err


def test_a_demo_cluster_that_is_not_up_is_said_to_be_so(tmp_path, capsys, monkeypatch):
    demo = tmp_path / "demo"
    demo.mkdir()
    monkeypatch.setattr(clusters, "DEMO", demo)
    for options in ([], ["--background"], ["--declaration", "/nowhere"]):
        assert run.main(["-i", str(demo), *options]) == 2
        assert capsys.readouterr().err == (
            f"validation: -i: the demo cluster is not up, so {demo} has no nodes; start it with "
            "scripts/demo, or give the inventory of your own cluster\n"
        )
    # While it is up, or where its nodes are in another inventory.
    monkeypatch.setattr(inventory, "declaration", lambda named: {"nodes": len(named)})
    assert run.main(["-i", str(demo), "-i", str(tmp_path)]) == 2
    assert "not up" not in capsys.readouterr().err
    (demo / clusters.DEMO_NODES).touch()
    assert run.main(["-i", str(demo)]) == 2
    assert "not up" not in capsys.readouterr().err


def test_a_broken_declaration_is_a_usage_error(cluster):
    cluster.install()
    (cluster.path / "cluster.json").write_text('{"schema": 2, "nodes": 1}')
    status, _, err = cluster.run()
    assert status == 2
    assert "schema: expected 1, found 2" in err
    assert "nodes: expected a list" in err


def test_a_login_node_without_yaml_is_told_in_a_sentence(cluster, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    status, _, err = cluster.install().run()
    assert status == 2
    assert err.startswith("validation: PyYAML is not installed")
    assert err.count("\n") == 1


def test_without_slurm_there_is_no_verdict(cluster):
    cluster.install()
    (cluster.path / "bin" / "sinfo").unlink()
    status, out, err = cluster.run()
    assert (status, out) == (2, "")
    assert "has no Slurm commands" in err


# --- the output folder -----------------------------------------------------------------------


def test_a_former_runs_files_never_pass_for_this_ones(cluster):
    cluster.install()
    cluster.run("--only", "slurm_state")
    (cluster.path / "bin" / "sinfo").unlink()
    assert cluster.run()[0] == 2
    left = {path.name for path in cluster.output.iterdir()}
    assert left == {"plan.json", "results.jsonl", "jobs", "jobs.jsonl", "run.json"}
    assert cluster.lines("results.jsonl") == []


def test_a_folder_with_something_else_is_left_alone(cluster):
    cluster.install()
    cluster.output.mkdir()
    (cluster.output / "thesis.tex").touch()
    status, _, err = cluster.run()
    assert status == 2
    assert "contains something other than an earlier run" in err
    assert [path.name for path in cluster.output.iterdir()] == ["thesis.tex"]


def test_metrics_are_put_where_prometheus_finds_them(cluster):
    cluster.install()
    folder = cluster.path / "textfiles"
    status, _, err = cluster.run("--metrics", str(folder))
    assert status == 2
    assert f"--metrics: {folder} on " in err
    assert "is no folder there" in err
    assert not cluster.output.exists()
    folder.mkdir()
    assert cluster.run("--only", "slurm_state", "--metrics", str(folder))[0] == 0
    text = (folder / "plumbline_validation_quick.prom").read_text()
    assert text == (cluster.output / "metrics.prom").read_text()
    assert 'node_verdict{suite="quick",subject="gpu1",node="gpu1",verdict="pass"} 1' in text


def test_a_sites_thresholds_are_used(cluster):
    cluster.install()
    folder = cluster.path / "thresholds"
    folder.mkdir()
    of = {"nodes": ">1", "ranks_per_node": "any", "backend": "gloo"}
    rule = {**COLLECTIVE, **of, "fail_below_gbs": 1.3}
    document = {"model": "virtual", "collectives": [rule]}
    (folder / "virtual.yml").write_text(yaml.safe_dump(document))
    status, out, _ = cluster.run("--only", "all_reduce", "--thresholds", str(folder))
    assert status == 1
    assert "at least 1.3 expected" in out


def test_every_training_of_its_suite_runs_and_is_reported(cluster):
    status, out, _ = cluster.install().run("--suite", "training")
    assert status == 0, out
    unshared = {"checkpoint", "resume"}  # these two need a shared filesystem
    for check in suites.load("training").checks[1:]:
        verdict, message = cluster.verdict_of(check, "virtual")
        assert verdict == ("skip" if check in unshared else "pass"), (check, message)


def test_a_training_that_is_wrong_on_one_node_ends_red_and_names_it(cluster):
    ranks = [
        {
            "rank": rank,
            "first_step": {"computed": 3e-7, "received": 3e-7, "exchanged": 3e-7},
            "steps": [
                {"parameters": 2e-6, "weights": off, "owner": 1, "own": off * rank}
                for off in (0, 0.5, 0.5, 0.5, 0.5)
            ],
            "movement": 0.1,
        }
        for rank in (0, 1)
    ]
    cluster.install(fsdp={"answer": {"measured": {"ranks": ranks}}})
    status, _, _ = cluster.run("--suite", "training")
    assert status == 1
    verdict, message = cluster.verdict_of("fsdp", "virtual")
    assert verdict == "fail"
    assert "it began with the weights for step 2 that were held by rank 1 on gpu2" in message
