"""What Slurm says, in its own recorded words, and what becomes of it.

recorded/README.md says where the recordings are from.
"""

import json
import os
import random
import re
import shutil
import stat
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.hostlist import compress
from cluster.settings_file import BadConfig
from cluster.tests.test_exporter import read as read_series
from cluster.tests.test_exporter import success
from roles.slurm_exporter.files.slurm_exporter import (
    commands,
    diagnostics,
    jobs,
    main,
    nodes,
    series,
    shares,
)
from roles.slurm_exporter.files.slurm_exporter.config import (
    COLLECTORS as ALL_COLLECTORS,
)
from roles.slurm_exporter.files.slurm_exporter.config import (
    ExporterSettings,
    read,
)
from roles.slurm_exporter.files.slurm_exporter.words import (
    Nonsense,
    gpus_of_gres,
    gpus_of_tres,
    number,
    whole,
)
from tests.patience import until

RECORDED = Path(__file__).parent / "recorded"
VERSIONS = ("22.05", "24.11", "26.05")
ALL = series.Native(openmetrics=False, gpus=False)
# Of the cluster, by Slurm's commands.
COLLECTORS = tuple(name for name in ALL_COLLECTORS if name not in ("usage", "xids"))


def recorded(version, name):
    return (RECORDED / f"slurm-{version}" / name).read_text(encoding="utf-8")


def series_of(families):
    """Series by name and labels, as Slurm's own endpoint writes them."""
    samples = {}
    for family in families:
        for values, value in family.samples.items():
            labels = ",".join(
                f'{name}="{text}"' for name, text in zip(family.labels, values, strict=True)
            )
            samples[f"{family.name}{{{labels}}}" if labels else family.name] = value
    return samples


# --- recorded: nodes -------------------------------------------------------------------------


def nodes_of(version):
    if version == "22.05":
        return nodes.from_text(recorded(version, "nodes.txt"))
    return nodes.from_json(recorded(version, "nodes.json"))


@pytest.mark.parametrize("version", VERSIONS)
def test_nodes(version):
    cpu1, gpu1, gpu2, gpu3 = listed = nodes_of(version)
    assert [node.name for node in listed] == ["cpu1", "gpu1", "gpu2", "gpu3"]
    assert (gpu1.states, gpu1.partitions) == ({"mixed"}, ("gpu", "all"))
    assert (gpu1.reason, gpu1.user, gpu1.cpus, gpu1.cpus_alloc) == ("", "", 2, 1)
    assert gpu2.states == {"allocated", "drain"}
    assert gpu2.reason == "Prolog error: GPU 3 fell off the bus"
    assert "down" in gpu3.states
    assert gpu3.reason == 'disk "sda" failed: smart=bad, ticket=4711 [ops@desk]'
    assert gpu3.user == "root"
    assert (cpu1.states, cpu1.partitions) == ({"idle", "drain"}, ("all", "shut"))
    assert cpu1.reason == "State=IDLE Partitions=none"
    gpus = [(node.gpus, node.gpus_alloc) for node in listed]
    assert gpus == ([(0, 0)] * 4 if version == "22.05" else [(0, 0), (4, 3), (4, 4), (4, 0)])


@pytest.mark.parametrize("version", ["24.11", "26.05"])
def test_text_and_json_of_the_same_moment_say_the_same_of_nodes(version):
    def without_times(all_nodes):
        """Text has local times, and of the JSON not all was kept."""
        return [replace(node, reason_at=None, boot_at=None) for node in all_nodes]

    of_text = nodes.from_text(recorded(version, "nodes.txt"))
    assert without_times(of_text) == without_times(nodes_of(version))


# --- recorded: jobs --------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_jobs(version):
    queue = jobs.parse(recorded(version, "jobs.txt"))
    waiting = {job.id: job.reason for job in queue if job.state == "PENDING"}
    assert waiting == {
        "2": "Resources",
        "3": "JobHeldUser",
        "4": "PartitionDown",
        "5": waiting["5"],
        "6": "BeginTime",
        "7": "ReqNodeNotAvail",
    }
    assert waiting["5"] in ("Resources", "JobArrayTaskLimit", "ReqNodeNotAvail")
    assert sum(job.id == "5" and job.state == "PENDING" for job in queue) == 4  # tasks, each
    assert {job.partition for job in queue if job.id == "6"} == {"all"}  # of all,gpu
    running = {job.nodes: job.cpus for job in queue if job.runs}
    assert running == {("gpu1",): 1, ("gpu2",): 2}
    assert {job.state for job in queue if job.id == "8"} == {"CANCELLED"}
    assert {job.user for job in queue} == {"root"}
    assert {job.account for job in queue} == {""}


# --- recorded: statistics --------------------------------------------------------------------


def statistics_of(version):
    if version == "22.05":
        return diagnostics.from_text(recorded(version, "sdiag.txt"))
    return diagnostics.from_json(recorded(version, "sdiag.json"))


@pytest.mark.parametrize("version", VERSIONS)
def test_statistics(version):
    statistics = statistics_of(version)
    assert statistics.values["sdiag_jobs_submitted"] > 0
    assert statistics.values["schedule_cycle_max"] >= statistics.values["schedule_cycle_last"] > 0
    assert statistics.values["bf_when_last_cycle"] > 1_700_000_000
    assert statistics.values["slurmdbd_queue_size"] == 0
    assert statistics.rpcs["REQUEST_SUBMIT_BATCH_JOB"].count == 8
    assert 0 < statistics.rpcs["REQUEST_SUBMIT_BATCH_JOB"].seconds < 1


def test_labels_that_two_sections_have_are_kept_apart():
    text = recorded("22.05", "sdiag.txt")
    values = diagnostics.from_text(text).values
    cycles = [int(value) for value in re.findall(r"Total cycles: (\d+)", text)]
    assert cycles == [values["schedule_cycle_cnt"], values["bf_cycle_cnt"]]
    assert cycles[0] != cycles[1]


@pytest.mark.parametrize("version", ["24.11", "26.05"])
def test_text_and_json_of_the_same_moment_have_the_same_statistics(version):
    text = diagnostics.from_text(recorded(version, "sdiag.txt"))
    whole = statistics_of(version)
    # Asked one after the other, with the nodes in between: threads and such requests differ.
    same = {name: whole.values[name] for name in text.values if name != "server_thread_cnt"}
    assert {name: text.values[name] for name in same} == same
    assert len(same) > 25
    known = {name for name in text.rpcs if not name.endswith("_INFO")}
    assert {name: text.rpcs[name] for name in known} == {name: whole.rpcs[name] for name in known}
    assert len(known) >= 4


# --- Slurm's own names: Slurm says itself what they are ----------------------------------------

# Slurm knows no GPUs of nodes where it accounts none; its threads are those of the moment; and of
# a job that waits for one of two partitions, squeue does not tell which Slurm would try first.
NOT_THE_SAME = re.compile(
    r"slurm_(node|partition)_gpus\{|slurm_jobs_gpus_alloc|slurm_server_thread_cnt"
    r'|slurm_partition_jobs_pending\{partition="(all|gpu)"'
)
OURS = re.compile(
    r"slurm_(node_state|node_reason_info|partition_gpus_alloc|jobs_pending_reason|rpc_count"
    r"|rpc_seconds_total|job_gpu_info|job_gpus)\b"
)


def everything(native=ALL, version="26.05"):
    node_list, statistics = nodes_of(version), statistics_of(version)
    queue = jobs.parse(recorded(version, "jobs.txt"))
    return [
        *series.nodes(node_list, native),
        *series.partitions(node_list, native),
        *series.jobs(queue, native, per_job=True),
        *([] if native.openmetrics else series.scheduler(statistics)),
        *series.rpcs(statistics),
    ]


def slurms_own():
    samples = {}
    for name in ("nodes", "jobs", "partitions", "scheduler"):
        for line in recorded("26.05", f"metrics-{name}.txt").splitlines():
            if line and not line.startswith("#"):
                key, _, value = line.rpartition(" ")
                samples[key] = float(value)
    return samples


def test_slurms_own_names_have_the_values_that_slurm_gives_them():
    own, ours = slurms_own(), series_of(everything())
    native = {key: value for key, value in ours.items() if not OURS.match(key)}
    assert set(native) <= set(own)  # no name is made up
    compared = {key for key in native if not NOT_THE_SAME.match(key)}
    assert {key: native[key] for key in compared} == {key: own[key] for key in compared}
    assert len(compared) > 120


def test_what_the_controller_tells_itself_is_not_told_twice():
    own = {key.partition("{")[0] for key in slurms_own()}
    both = {family.name for family in everything(series.Native(openmetrics=True, gpus=True))}
    assert both & own == set()
    assert "slurm_node_state" in both
    gpus = {"slurm_node_gpus", "slurm_node_gpus_alloc", "slurm_partition_gpus"}
    of_25_11 = {family.name for family in everything(series.Native(openmetrics=True, gpus=False))}
    assert of_25_11 & own == gpus | {"slurm_jobs_gpus_alloc"}


def test_states_are_told_as_1_and_0_and_what_is_rare_only_as_1():
    samples = series_of(series.nodes(nodes_of("26.05"), ALL))
    assert samples['slurm_node_state{node="gpu2",state="drain"}'] == 1
    assert samples['slurm_node_state{node="gpu2",state="allocated"}'] == 1
    assert samples['slurm_node_state{node="gpu1",state="drain"}'] == 0
    rare = node(states=frozenset({"idle", "dynamic_norm"}))
    assert (
        series_of(series.nodes([rare], ALL))['slurm_node_state{node="n1",state="dynamic_norm"}']
        == 1
    )


def node(**changes):
    usual = {
        "name": "n1", "states": frozenset({"idle"}), "reason": "", "user": "", "cpus": 2,
        "cpus_effective": 2, "cpus_alloc": 0, "gpus": 0, "gpus_alloc": 0, "partitions": ("a",),
    }  # fmt: skip
    return nodes.SlurmNode(**{**usual, **changes})


@pytest.mark.parametrize(
    ("states", "counted"),
    [
        ({"idle", "drain"}, {"idle", "drain", "drained"}),
        ({"mixed", "drain"}, {"mixed", "draining"}),
        ({"idle", "drain", "completing"}, {"idle", "draining", "completing"}),
        ({"down", "drain", "not_responding"}, {"down", "drain", "drained", "noresp"}),
        ({"idle", "maintenance", "reserved"}, {"idle", "maint", "resv"}),
    ],
)
def test_a_node_counts_where_slurm_counts_it(states, counted):
    samples = series_of(series.nodes([node(states=frozenset(states))], ALL))
    assert {key for key in samples if key.startswith("slurm_nodes_") and samples[key]} == {
        f"slurm_nodes_{name}" for name in counted
    }


# --- jobs with GPUs --------------------------------------------------------------------------


def row(**changes):
    cells = {
        "JobID": "7", "State": "RUNNING", "Partition": "gpu", "Account": "physics",
        "UserName": "ada", "NumCPUs": "16", "NodeList": "gpu[1-2]",
        "tres-alloc": "cpu=16,mem=1T,node=2,billing=16,gres/gpu=16,gres/gpu:h100=16",
        "Reason": "None", **changes,
    }  # fmt: skip
    return "|".join(cells[column] for column in jobs.COLUMNS)


def test_a_running_job_with_gpus_is_told_with_each_of_its_nodes():
    queue = jobs.parse("\n".join([row(), row(JobID="8", State="PENDING", NodeList="")]))
    samples = series_of(series.jobs(queue, ALL, per_job=True))
    mine = {key: value for key, value in samples.items() if key.startswith("slurm_job_")}
    labels = 'hpc_job="7",user="ada",account="physics",partition="gpu"'
    assert mine == {
        f'slurm_job_gpu_info{{{labels},node="gpu1"}}': 1,
        f'slurm_job_gpu_info{{{labels},node="gpu2"}}': 1,
        'slurm_job_gpus{hpc_job="7"}': 16,
    }
    assert samples["slurm_jobs_gpus_alloc"] == 16
    assert samples["slurm_jobs_nodes_alloc"] == 2
    without = series_of(series.jobs(queue, ALL, per_job=False))
    assert not [key for key in without if key.startswith("slurm_job_")]


def test_jobs_that_ended_on_one_node_are_counted_there_by_their_result():
    states = {
        "gpu1": ["FAILED", "FAILED", "NODE_FAIL", "COMPLETED"],
        "gpu2": ["COMPLETED", "OUT_OF_MEMORY", "TIMEOUT", "CANCELLED"],
        "gpu3": ["RUNNING", "TIMEOUT"],
        "gpu[4-5]": ["FAILED"],
    }
    rows = [row(State=state, NodeList=name) for name, each in states.items() for state in each]
    samples = series_of(series.jobs(jobs.parse("\n".join(rows)), ALL, per_job=True))
    assert {key: value for key, value in samples.items() if "_jobs_ended" in key} == {
        'slurm_node_jobs_ended{node="gpu1",result="completed"}': 1,
        'slurm_node_jobs_ended{node="gpu1",result="failed"}': 3,
        'slurm_node_jobs_ended{node="gpu2",result="completed"}': 1,
        'slurm_node_jobs_ended{node="gpu2",result="failed"}': 0,
    }


def test_when_a_reason_was_set_is_told_where_it_is_known():
    document = json.loads(recorded("26.05", "nodes.json"))
    document["nodes"][0]["reason_changed_at"] = {"set": True, "infinite": False, "number": 99}
    listed = nodes.from_json(json.dumps(document))
    samples = series_of(series.nodes(listed, ALL))
    name = "slurm_node_reason_timestamp_seconds"
    assert {key: value for key, value in samples.items() if key.startswith(name)} == {
        f'{name}{{node="{listed[0].name}"}}': 99
    }


def test_a_job_that_waits_for_its_nodes_to_boot_runs_and_one_that_is_held_waits():
    rows = [
        row(State="CONFIGURING"),
        row(JobID="8", State="PENDING", Reason="launch failed requeued held"),
        row(JobID="9", State="COMPLETING"),
        row(JobID="10", State="SUSPENDED"),
        row(JobID="11", State="NODE_FAIL", Partition="cpu"),
    ]
    samples = series_of(series.jobs(jobs.parse("\n".join(rows)), ALL, per_job=False))
    counted = {key[11:]: value for key, value in samples.items() if key.startswith("slurm_jobs_")}
    assert (counted["running"], counted["configuring"], counted["completing"]) == (1, 1, 1)
    assert (counted["hold"], counted["pending"], counted["node_failed"]) == (1, 1, 1)
    assert counted["cpus_alloc"] == 32
    assert counted['pending_reason{reason="launch failed requeued held"}'] == 1
    assert samples['slurm_partition_jobs_running{partition="cpu"}'] == 0


@settings(deadline=None)  # other work on the machine
@given(
    st.sets(st.integers(1, 9999), min_size=1, max_size=800), st.sampled_from(["n", "r1-", "gpu"])
)
def test_hundreds_of_nodes_in_one_list_are_each_of_them(numbers, prefix):
    names = {f"{prefix}{suffix}" for suffix in numbers}
    (job,) = jobs.parse(row(NodeList=compress(names)))
    assert set(job.nodes) == names
    assert len(job.nodes) == len(names)


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("None", "None"),
        ("", "None"),
        ("(null)", "null"),
        ("Priority", "Priority"),
        ("(Resources)", "Resources"),
        ("ReqNodeNotAvail, UnavailableNodes:gpu[1-3]", "ReqNodeNotAvail"),
        ("ReqNodeNotAvail,_UnavailableNodes:gpu3", "ReqNodeNotAvail"),
        ("Nodes required for job are DOWN, DRAINED or reserved for jobs", "Resources"),
        ("Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved", "Resources"),
        ("launch_failed_requeued_held", "launch_failed_requeued_held"),
        ("QOSMaxGRESPerUser", "QOSMaxGRESPerUser"),
    ],
)
def test_a_reason_has_no_names_or_numbers_in_it(reason, word):
    assert jobs.word(reason) == word


# --- hostile: what people write ---------------------------------------------------------------

# One line of one node, without its reason; made after those recorded, with GPUs.
LINE = (
    "NodeName=n1 Arch=x86_64 CoresPerSocket=1  CPUAlloc=1 CPUEfctv=15 CPUTot=16 CPULoad=0.5 "
    "AvailableFeatures=(null) ActiveFeatures=(null) {gres} NodeAddr=10.0.0.1 NodeHostName=n1 "
    "Version=22.05.8 OS=Linux 6.1.0-18-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1  "
    "RealMemory=20000 AllocMem=1000 FreeMem=17104 Sockets=2 Boards=1 State={state} "
    "ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=gpu,all  "
    "BootTime=2026-11-21T16:15:28 SlurmdStartTime=2026-11-22T11:15:52 CfgTRES={cfg} "
    "AllocTRES={alloc} CapWatts=n/a CurrentWatts=0 AveWatts=0"
)


def line(gres="Gres=(null)", cfg="cpu=16", alloc="", state="IDLE+DRAIN", rest=""):
    return LINE.format(gres=gres, cfg=cfg, alloc=alloc, state=state) + rest + "\n"


# What an operator can type on one line; scontrol prints it as it is.
typed = st.text(
    st.one_of(
        st.sampled_from(" =\"'[]@:|,\\+"), st.characters(exclude_categories=["C", "Z"])
    ),
    min_size=1,
).map(lambda text: " ".join(text.split())).filter(bool)  # fmt: skip


@settings(deadline=None)  # other work on the machine
@given(typed, st.sampled_from(["", " Comment=a [b@2026-01-01T00:00:00] c", " Extra=x State=DOWN"]))
def test_a_reason_is_what_the_operator_wrote_and_nothing_else_of_the_node_changes(reason, after):
    rest = f" Reason={reason} [ops@2026-11-22T11:15:58]{after}"
    (result,) = nodes.from_text(line(rest=rest))
    assert (result.reason, result.user) == (reason, "ops")
    assert result.states == {"idle", "drain"}
    assert result.partitions == ("gpu", "all")


@settings(deadline=None)  # other work on the machine
@given(st.text())
def test_a_reason_in_json_is_whatever_it_is(reason):
    document = json.loads(recorded("24.11", "nodes.json"))
    document["nodes"][0]["reason"] = reason
    assert nodes.from_json(json.dumps(document))[0].reason == reason


BY_SLURM, BY_OPS = "[slurm@2026-11-22T11:00:00]", "[ops@2026-11-22T11:15:58]"


@pytest.mark.parametrize(
    ("written", "reason", "user"),
    [
        (f"first {BY_OPS}        second line", "first", "ops"),
        (f"again: Prolog error {BY_SLURM} {BY_OPS}", f"again: Prolog error {BY_SLURM}", "ops"),
        ("nobody knows", "nobody knows", ""),
    ],
)
def test_a_reason_of_two_lines_one_that_quotes_another_and_one_without_author(
    written, reason, user
):
    (result,) = nodes.from_text(line(rest=f" Reason={written}"))
    assert (result.reason, result.user) == (reason, user)


def test_a_long_or_many_lined_reason_is_one_short_line_in_the_series():
    families = series.nodes([node(reason="a\nb\x1b[31m" + "c" * 500, user="u")], ALL)
    ((_, reason, _),) = next(f for f in families if f.name == "slurm_node_reason_info").samples
    assert reason.startswith("a b [31mccc")
    assert len(reason) == series.REASON_LENGTH


@pytest.mark.parametrize(
    ("gres", "used", "cfg", "alloc", "expected"),
    [
        ("Gres=gpu:h100:8(S:0-1)", "gpu:h100:3(IDX:0,2,4)", "cpu=2", "", (8, 3)),
        ("Gres=gpu:8", "gpu:0(IDX:N/A)", "cpu=2,gres/gpu=8", "", (8, 0)),
        # 22.05 knows the GPUs of a node that never registered from what is accounted alone.
        ("Gres=(null)", "gpu:0", "cpu=2,gres/gpu=8,gres/gpu:h100=8", "cpu=1,gres/gpu=2", (8, 2)),
        ("Gres=gpu:a:2(S:0),gpu:b:2(S:1),nic:4", "gpu:a:1(IDX:0),gpu:b:0(IDX:N/A)", "", "", (4, 1)),
        ("Gres=gpu:1g.10gb:7(S:0)", "gpu:1g.10gb:7(IDX:0-6)", "", "", (7, 7)),
        ("Gres=gpu", "gpu:0", "", "", (1, 0)),
        ("Gres=shard:gpu:4", "shard:0", "", "", (0, 0)),
    ],
)
def test_gpus_of_a_node(gres, used, cfg, alloc, expected):
    (result,) = nodes.from_text(line(gres=f"{gres} GresUsed={used}", cfg=cfg, alloc=alloc))
    assert (result.gpus, result.gpus_alloc) == expected


def test_a_node_that_does_not_answer_in_the_words_of_an_older_version():
    (node,) = nodes.from_text(line(state="DOWN*+DRAIN"))
    assert node.states == {"down", "drain", "not_responding"}


def test_small_words():
    assert [number(text) for text in ("7", "2K", "1.5K")] == [7, 2048, 1536]
    assert [whole(3), whole({"set": True, "infinite": False, "number": 3})] == [3, 3]
    assert gpus_of_tres("cpu=4,gres/gpu:a=1,gres/gpu:b=2") == 3
    assert gpus_of_gres("") == 0
    for value in (True, -1, "3", None, {"set": False, "number": 3}, {"set": True, "number": "3"}):
        with pytest.raises(Nonsense):
            whole(value)


# --- hostile: nonsense ------------------------------------------------------------------------

PARSERS = {
    "nodes.from_json": nodes.from_json,
    "nodes.from_text": nodes.from_text,
    "jobs.parse": jobs.parse,
    "shares.parse": shares.parse,
    "diagnostics.from_json": diagnostics.from_json,
    "diagnostics.from_text": diagnostics.from_text,
}


@pytest.mark.parametrize("parser", PARSERS.values(), ids=PARSERS)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "slurm_load_node error: Unable to contact slurm controller (connect failure)\n",
        "<html><body>502 Bad Gateway</body></html>",
        '{"nodes": [], "statistics": {}, "errors": []}',
        '{"nodes": [{}], "statistics": [], "errors": []}',
        '{"nodes": [7], "statistics": 7, "errors": [{"error": "no"}]}',
        "[" * 100_000,
        "\0\0\0",
    ],
    ids=["nothing", "error", "html", "empty", "hollow", "errors", "deep", "zeros"],
)
def test_nonsense_is_no_value(parser, text):
    if parser is jobs.parse and not text:
        assert parser(text) == ()  # an idle cluster
        return
    with pytest.raises(Nonsense):
        parser(text)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@settings(deadline=None)  # other work on the machine
@given(st.data())
def test_a_document_with_anything_anywhere_is_read_or_refused(data):
    for name, parser, below in (
        ("nodes.json", nodes.from_json, "nodes"),
        ("sdiag.json", diagnostics.from_json, "statistics"),
    ):
        document = json.loads(recorded("26.05", name))
        place = document[below][0] if below == "nodes" else document[below]
        key = data.draw(st.sampled_from(sorted(place)))
        if data.draw(st.booleans()):
            place[key] = data.draw(ANY_JSON)
        else:
            del place[key]
        with suppress(Nonsense):
            parser(json.dumps(document))


@settings(deadline=None)  # other work on the machine
@given(st.sampled_from(sorted(PARSERS)), st.data())
def test_a_text_with_anything_cut_out_or_put_in_is_read_or_refused(name, data):
    text = {
        "nodes.from_json": recorded("24.11", "nodes.json"),
        "nodes.from_text": recorded("22.05", "nodes.txt"),
        "jobs.parse": recorded("22.05", "jobs.txt"),
        "shares.parse": SHARES,
        "diagnostics.from_json": recorded("24.11", "sdiag.json"),
        "diagnostics.from_text": recorded("22.05", "sdiag.txt"),
    }[name]
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, len(text)))
    with suppress(Nonsense):
        PARSERS[name](text[:begin] + data.draw(st.text(max_size=20)) + text[end:])


def test_a_row_with_a_cell_too_many_or_too_few_is_refused():
    assert jobs.parse(row())
    for text in (row() + "|x", row().rpartition("|")[0], row(State="running")):
        with pytest.raises(Nonsense, match="no row of a job"):
            jobs.parse(text)


def test_a_node_that_is_there_twice_is_refused():
    with pytest.raises(Nonsense, match="twice"):
        nodes.from_text(line() + line())


# --- shares -----------------------------------------------------------------------------------

# Made after sshare(1): accounts are indented, and have no factor under Fair Tree.
SHARES = """\
root||
 root|root|1.000000
 physics||
  physics|ada|0.750000
  physics|ada|0.500000
  physics|bob|0.000000
 chemistry||0.250000
"""


def test_shares():
    samples = series_of(series.fairshare(shares.parse(SHARES)))
    assert samples == {
        'slurm_account_fairshare{account="root",user="root"}': 1,
        'slurm_account_fairshare{account="physics",user="ada"}': 0.75,
        'slurm_account_fairshare{account="physics",user="bob"}': 0,
        'slurm_account_fairshare{account="chemistry",user=""}': 0.25,
    }


@pytest.mark.parametrize("factor", ["nan", "inf", "much"])
def test_a_share_that_is_no_number_is_refused(factor):
    with pytest.raises(Nonsense, match="fair share of physics ada"):
        shares.parse(f"physics|ada|{factor}")


# --- whole rounds, with commands that only print ------------------------------------------------


class Stand:
    """A folder of stand-ins for Slurm's commands; each writes down that it was called, and how."""

    def __init__(self, folder, monkeypatch, version):
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.log = folder / "calls"
        self.log.touch()
        self.file = folder / "slurm.prom"
        monkeypatch.setenv("PATH", f"{self.bin}:{os.environ['PATH']}")
        text = version == "22.05"
        self.answers(
            scontrol=recorded(version, "nodes.txt" if text else "nodes.json"),
            squeue=recorded(version, "jobs.txt"),
            sdiag=recorded(version, "sdiag.txt" if text else "sdiag.json"),
            sshare=SHARES,
            sacct="COMPLETED|3600|2026-11-18T02:00:00|cpu=8,gres/gpu=8\n",
        )
        self.version = version

    def answers(self, **texts):
        for name, text in texts.items():
            file = self.bin / f"{name}.out"
            file.write_text(text, encoding="utf-8")
            self.does(name, f"cat {file}")

    def does(self, name, script):
        file = self.bin / name
        first = ""
        if name == "scontrol":
            first = 'if [ "$1" = --version ]; then echo "slurm-wlm $(cat $0.version).5"; exit; fi\n'
        file.write_text(f'#!/bin/sh\necho "{name} $*" >> {self.log}\n{first}{script}\n', "utf-8")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    @property
    def calls(self):
        return self.log.read_text(encoding="utf-8").splitlines()

    def exporter(self, **changes):
        (self.bin / "scontrol.version").write_text(self.version, encoding="utf-8")
        usual = {
            "file": self.file, "interval_s": 80, "limit_s": 20, "collectors": COLLECTORS,
            "openmetrics": False, "per_job": True,
            "ledger": self.file.parent / "history/node-history.sqlite", "accounting": False,
            "controller": "", "prometheus": None,
        }  # fmt: skip
        daemon = main.exporter(ExporterSettings(**{**usual, **changes}))
        daemon.say = lambda text: None
        return daemon


@pytest.fixture
def stand(tmp_path, monkeypatch, request):
    return Stand(tmp_path, monkeypatch, getattr(request, "param", "24.11"))


@pytest.mark.parametrize("stand", VERSIONS, indirect=True)
def test_a_round_asks_each_command_once_and_all_collectors_answer(stand):
    daemon = stand.exporter()
    daemon.round()
    assert success(read_series(stand.file)) == dict.fromkeys(COLLECTORS, 1.0)
    text = stand.version == "22.05"
    commands = [jobs.COMMAND, shares.COMMAND]
    commands += [nodes.TEXT, diagnostics.TEXT] if text else [nodes.JSON, diagnostics.JSON]
    lines = ["scontrol --version", *map(" ".join, commands)]
    calls = [call.strip() for call in stand.calls]
    assert sorted(call for call in calls if not call.startswith("sacct ")) == sorted(lines)
    daemon.round()
    daemon.round()
    assert len(stand.calls) == 1 + 3 * 4 + 1  # accounting once


@pytest.mark.parametrize(
    ("states", "own", "active"),
    [("up up", 0, True), ("up up", 1, False), ("up down", 0, True), ("down up", 1, True)],
)
def test_of_two_controllers_the_first_that_answers_tells(stand, states, own, active):
    first, second = states.upper().split()
    answer = f"Slurmctld(primary) at ctl1 is {first}\\nSlurmctld(backup) at ctl2 is {second}\\n"
    nodes_file = stand.bin / "scontrol.out"
    stand.does("scontrol", f"if [ $1 = ping ]; then printf '{answer}'; else cat {nodes_file}; fi")
    stand.exporter(controller=("ctl1", "ctl2")[own]).round()
    told = read_series(stand.file)
    assert success(told) == dict.fromkeys(("turn", *(COLLECTORS if active else ())), 1.0)
    assert [value for key, value in told.items() if key[0] == "slurm_exporter_active"] == [active]
    assert any(key[0] == "slurm_node_state" for key in told) == active


def test_who_stands_by_still_tells_of_the_jobs_of_its_own_host(stand):
    stand.does(
        "scontrol",
        "echo 'Slurmctld(primary) at ctl1 is UP'; echo 'Slurmctld(backup) at ctl2 is UP'",
    )
    stand.exporter(controller="ctl2", collectors=(*COLLECTORS, "usage")).round()
    assert set(success(read_series(stand.file))) == {"turn", "usage"}


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("echo 'Slurmctld(primary) at ctl1 is UP'", "scontrol ping does not name ctl2"),
        ("echo 'Slurmctld(backup) at ctl2 is DOWN'", "ctl2 does not answer"),
        ("exit 1", "scontrol"),
    ],
)
def test_who_cannot_find_out_whose_turn_it_is_tells_nothing_and_says_so(stand, script, sentence):
    stand.does("scontrol", script)
    daemon = stand.exporter(controller="ctl2")
    log: list[str] = []
    daemon.say = log.append
    daemon.round()
    assert success(read_series(stand.file)) == {"turn": 0.0}
    assert log[0].startswith("turn: ")
    assert sentence in log[0]


OF_COMMAND = {
    "scontrol": {"nodes", "partitions", "history"},
    "squeue": {"jobs"},
    "sshare": {"fairshare"},
    "sdiag": {"scheduler", "rpcs"},
}
FAULTS = {
    "fails": "echo 'Unable to contact slurm controller' >&2; exit 1",
    "hangs": "sleep {seconds} & sleep {seconds}",
    "says nothing": "",
    "says nonsense": "echo nodes: 1",
    "dies": "kill -9 $$",
}


@pytest.mark.parametrize("command", OF_COMMAND)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_command_takes_its_own_collectors_with_it_and_no_other(stand, command, fault):
    daemon = stand.exporter(limit_s=3.0 if fault == "hangs" else 20.0)
    daemon.round()
    before = read_series(stand.file)
    seconds = random.randrange(10**6, 10**9)  # by which its processes are known
    stand.does(command, FAULTS[fault].format(seconds=seconds))
    daemon.round()
    after = read_series(stand.file)
    gone = OF_COMMAND[command]
    if (command, fault) == ("squeue", "says nothing"):
        gone = set()  # a queue without jobs is one
    assert {name for name, value in success(after).items() if not value} == gone
    if not gone:
        return
    names = {key[0] for key in before} - {key[0] for key in after}
    of = {
        "scontrol": r"(slurm|plumbline)_(node|nodes|partition)(_|$)(?!jobs)",
        "squeue": r"slurm_(jobs|job|partition_jobs)(_|$)",
        "sshare": r"slurm_account_fairshare",
        "sdiag": r"slurm_(?!(node|nodes|partition|jobs|job|account)(_|$))",
    }[command]
    expected = {key[0] for key in before if re.match(of, key[0])}
    assert names == expected != set()
    until(lambda: not left_behind(seconds), 10)  # killed is not yet gone
    # And back, when it is well again.
    stand.answers(**{command: (stand.bin / f"{command}.out").read_text(encoding="utf-8")})
    daemon.round()
    assert set(success(read_series(stand.file)).values()) == {1.0}


def left_behind(seconds):
    files = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if file.read_bytes() == f"sleep\0{seconds}\0".encode():
                files.append(file)
        except OSError:
            continue
    return files


def test_a_command_that_is_missing_is_one_sentence(stand):
    (stand.bin / "squeue").unlink()
    if shutil.which("squeue"):
        pytest.skip("this machine has Slurm")
    log: list[str] = []
    daemon = stand.exporter()
    daemon.say = log.append
    daemon.round()
    assert log == ["jobs: squeue cannot be started: No such file or directory"]


def test_a_version_that_nobody_tells_is_asked_for_again(stand):
    daemon = stand.exporter()
    (stand.bin / "scontrol.version").unlink()
    daemon.round()
    by_collector = success(read_series(stand.file))
    assert {name for name, value in by_collector.items() if value} == {
        "jobs",
        "fairshare",
        "outcomes",
    }
    (stand.bin / "scontrol.version").write_text("24.11", encoding="utf-8")
    daemon.round()
    assert set(success(read_series(stand.file)).values()) == {1.0}


@pytest.mark.parametrize("stand", ["26.05"], indirect=True)
def test_beside_an_openmetrics_endpoint_only_what_it_lacks_is_told(stand):
    stand.exporter(openmetrics=True).round()
    samples = read_series(stand.file)
    assert {key[0] for key in samples if not key[0].startswith("plumbline_")} == {
        "slurm_account_fairshare",
        "slurm_jobs_pending_reason",
        "slurm_node_reason_info",
        "slurm_node_state",
        "slurm_partition_gpus_alloc",
        "slurm_rpc_count",
        "slurm_rpc_seconds_total",
    }
    assert set(success(samples)) == set(COLLECTORS) - {"scheduler"}


def test_commands_see_nothing_that_changes_what_they_print(monkeypatch):
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    seen = dict(line.split("=", 1) for line in commands.run(("env",), 10).splitlines())
    assert (seen["LC_ALL"], seen["SLURM_CONF"]) == ("C", "/etc/slurm/slurm.conf")
    assert not {"SQUEUE_FORMAT", "SLURM_TIME_FORMAT"} & set(seen)


@pytest.mark.parametrize(
    ("output", "version"),
    [("slurm-wlm 22.05.8", (22, 5)), ("slurm 26.05.2", (26, 5)), ("slurm 24.11.0-0rc1", (24, 11))],
)
def test_versions(stand, output, version):
    (stand.bin / "scontrol").write_text(f"#!/bin/sh\necho {output}\n", encoding="utf-8")
    assert commands.version(10) == version


# --- cost ---------------------------------------------------------------------------------------


def big(node_count, job_count):
    """A cluster's answers: nodes of 8 GPUs, every tenth drained; a third of the jobs run."""
    document = json.loads(recorded("26.05", "nodes.json"))
    usual = document["nodes"][1]
    drained = {"state": ["IDLE", "DRAIN"], "reason_set_by_user": "root", "reason": "disk failed"}
    busy = {"state": ["MIXED"], "gres": "gpu:h100:8(S:0-1)", "gres_used": "gpu:h100:8(IDX:0-7)"}
    document["nodes"] = [
        usual | busy | {"name": f"gpu{i:04}"} | ({} if i % 10 else drained)
        for i in range(node_count)
    ]
    rows = []
    for i in range(job_count):
        where = f"gpu[{i % node_count:04}-{min(i % node_count + 3, node_count - 1):04}]"
        runs = {"NodeList": where} if i % 3 == 0 else {"State": "PENDING", "NodeList": ""}
        rows.append(row(JobID=str(i), UserName=f"user{i % 200}", **runs))
    return json.dumps(document, indent=2), "\n".join(rows) + "\n"


def test_a_thousand_nodes_and_ten_thousand_jobs_cost_seconds_and_five_commands(stand):
    listed, queue = big(1000, 10_000)
    stand.answers(scontrol=listed, squeue=queue)
    daemon = stand.exporter()
    begin = time.process_time()
    daemon.round()
    taken = time.process_time() - begin
    samples = read_series(stand.file)
    assert set(success(samples).values()) == {1.0}
    assert samples[("slurm_nodes",)] == 1000
    assert samples[("slurm_jobs",)] == 10_000
    assert samples[("slurm_partition_gpus", ("partition", "gpu"))] == 8000
    assert len(stand.calls) == 1 + 5
    # One or two on a quiet machine; a cost that grew with the square would be minutes.
    assert taken < 15


# --- configuration --------------------------------------------------------------------------------


@pytest.fixture
def configured(tmp_path):
    """A function that writes a configuration."""

    def write(document=None, **changes):
        settings = {
            "file": "/var/lib/prometheus/node-exporter/slurm.prom", "interval_s": 60, "limit_s": 15,
            "collectors": list(COLLECTORS), "openmetrics": False, "per_job": True,
            "ledger": str(tmp_path / "node-history.sqlite"), "accounting": False,
            "controller": "", "prometheus": {},
        }  # fmt: skip
        file = tmp_path / "config.json"
        file.write_text(json.dumps(settings | changes if document is None else document), "utf-8")
        return file

    return write


def test_the_configuration(configured):
    assert read(configured()).collectors == COLLECTORS


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"limit_s": 16}, "4 commands of 16 s do not fit into 60 s"),
        ({"limit_s": 0}, "do not fit"),
        ({"collectors": ["nodes", "moon"]}, "there is no collector moon"),
        ({"file": "/tmp/slurm.txt"}, "does not end in .prom"),
        ({"openmetrics": "no"}, "'no' is neither true nor false"),
        ({"per_job": None}, "neither true nor false"),
        ({"interval_s": "often"}, "could not convert"),
    ],
)
def test_a_configuration_that_cannot_work_is_one_sentence(configured, capsys, changes, words):
    file = configured(**changes)
    with pytest.raises(BadConfig, match=re.escape(words)):
        read(file)
    assert main.main(["--config", str(file)]) == 2
    assert words in capsys.readouterr().err


def test_a_configuration_that_is_missing_or_lacks_a_word_is_one_sentence(configured, tmp_path):
    with pytest.raises(BadConfig, match="cannot be read: No such file"):
        read(tmp_path / "none")
    with pytest.raises(BadConfig, match="has no file"):
        read(configured({}))
    with pytest.raises(BadConfig):
        read(configured([]))


def test_once_prints_a_round_and_says_whether_all_is_well(stand, configured, capsys):
    stand.exporter()  # the version
    file = configured(file=str(stand.file))
    assert main.main(["--config", str(file), "--once"]) == 0
    assert "slurm_nodes 4.0\n" in capsys.readouterr().out
    stand.does("squeue", "exit 3")
    assert main.main(["--config", str(file), "--once"]) == 1
    shown = capsys.readouterr()
    assert "jobs: squeue ended with exit status 3" in shown.err
    assert 'collector_success{collector="jobs",exporter="slurm"} 0.0\n' in shown.out
    assert not stand.file.exists()
