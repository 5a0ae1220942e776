"""A declaration of a cluster that nobody declared: what Slurm says, what a node shows, what neither
does; and a run that proves the cluster against it."""

import json
import re
import shlex
import sys
from dataclasses import replace

import pytest

from cluster import declaration
from cluster.declaration import Gpus, Node, Submission
from cluster.errors import DataError
from cluster.slurm import scontrol
from cluster.slurm.scontrol import SlurmConfig, SlurmNode, SlurmPartition
from validation import explain, plan, run, suites
from validation.declare import __main__ as program
from validation.declare import whole
from validation.declare.guess import guess_fabric, guess_gpus
from validation.declare.kinds import Kind, Look, Undeclarable, kinds
from validation.declare.text import render
from validation.payloads import look
from validation.payloads import node as node_payload
from validation.tests import standin
from validation.tests.conftest import declare as document_of
from validation.tests.conftest import plan_of
from validation.tests.simulated_cluster import ROOT
from validation.tests.standin_host import port

H100 = "NVIDIA H100 80GB HBM3"

# --- what scontrol prints --------------------------------------------------------------------

# A node as scontrol -o has it in 22.05, 24.11 and 26.05: what came between is other fields.
OF_22_05 = (
    "NodeName=gpu01 Arch=x86_64 CoresPerSocket=32 CPUAlloc=0 CPUTot=128 CPULoad=0.12 "
    "AvailableFeatures=ib,h100 ActiveFeatures=ib,h100 Gres=gpu:h100_sxm:8(S:0-1) NodeAddr=gpu01 "
    "NodeHostName=gpu01 Version=22.05.8 OS=Linux 5.15.0-91-generic #101-Ubuntu SMP Tue Nov 14 "
    "RealMemory=2060000 AllocMem=0 FreeMem=1990000 Sockets=2 Boards=1 State=IDLE ThreadsPerCore=2 "
    "TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=gpu,all BootTime=2023-12-01T08:00:00 "
    "SlurmdStartTime=2023-12-01T08:01:00 LastBusyTime=2023-12-02T09:00:00"
)
OF_24_11 = OF_22_05.replace("CPUAlloc=0 ", "CPUAlloc=0 CPUEfctv=126 ").replace(
    "State=IDLE", "State=MIXED+DRAIN"
) + (
    " ResumeAfterTime=None Comment=State=DOWN CPUTot=1 Reason=CPUTot=2 a fan, RealMemory=3 "
    "[root@2026-01-02T03:04:05]"
)
OF_26_05 = OF_22_05.replace("Gres=gpu:h100_sxm:8(S:0-1)", "Gres=(null) Topology=tree:s1").replace(
    "State=IDLE", "State=IDLE+CLOUD+POWERED_DOWN"
).replace("AvailableFeatures=ib,h100", "AvailableFeatures=(null)")  # fmt: skip


@pytest.mark.parametrize(
    ("line", "gres", "features", "words"),
    [
        (OF_22_05, "gpu:h100_sxm:8(S:0-1)", ("ib", "h100"), {"IDLE"}),
        (OF_24_11, "gpu:h100_sxm:8(S:0-1)", ("ib", "h100"), {"MIXED", "DRAIN"}),
        (OF_26_05, "", (), {"IDLE", "CLOUD", "POWERED_DOWN"}),
    ],
)
def test_a_node_is_read_from_the_text_of_each_release(line, gres, features, words):
    (node,) = scontrol.nodes(line + "\n")
    assert node == SlurmNode("gpu01", "gpu01", 128, 2060000, gres, features, frozenset(words))


def of_json(**changes):
    item = {
        "name": "gpu01",
        "hostname": "gpu01",
        "cpus": 128,
        "real_memory": 2060000,
        "gres": "gpu:h100_sxm:8(S:0-1)",
        "features": ["ib", "h100"],
        "state": ["IDLE"],
        "partitions": ["gpu", "all"],
        "reason": "State=DOWN",
    }
    return json.dumps({"nodes": [{**item, **changes}], "meta": {"slurm": {"release": "24.11.5"}}})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"state": "IDLE", "state_flags": [], "features": "ib,h100"},
        {"cpus": {"set": True, "infinite": False, "number": 128}},
        {"real_memory": {"set": True, "number": 2060000}},
    ],
)
def test_json_says_the_same_in_each_shape(changes):
    assert scontrol.nodes_of_json(of_json(**changes)) == scontrol.nodes(OF_22_05)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"nodes": [{}]}', of_json(cpus="128"), of_json(cpus={"set": False})],
)
def test_json_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        scontrol.nodes_of_json(text)


@pytest.mark.parametrize("change", ["CPUTot=128", "RealMemory=2060000", "State=IDLE"])
def test_a_node_without_what_is_needed_is_refused(change):
    with pytest.raises(ValueError, match=r"."):
        scontrol.nodes(OF_22_05.replace(change, ""))


def test_partitions_say_what_is_default_hidden_and_down():
    begin = "AllowGroups={} AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default={} Hidden={} "
    text = (
        f"PartitionName=gpu {begin.format('ALL', 'YES', 'NO')}Nodes=gpu[01-02,7] State=UP\n"
        f"PartitionName=secret {begin.format('ALL', 'NO', 'YES')}Nodes=gpu01 State=UP\n"
        f"PartitionName=own {begin.format('physics', 'NO', 'NO')}Nodes=gpu01 State=UP\n"
        f"PartitionName=old {begin.format('ALL', 'NO', 'NO')}Nodes=(null) State=DOWN\n"
    )
    gpu, secret, own, old = scontrol.partitions(text)
    assert gpu == SlurmPartition("gpu", ("gpu01", "gpu02", "gpu7"), True, True, True)
    assert (secret.open_, own.open_) == (False, False)
    assert (old.nodes, old.up) == ((), False)


def test_the_configuration():
    text = (
        "Configuration data as of 2026-11-26\nAccountingStorageType   = (null)\n"
        "AuthType                = auth/slurm\nClusterName             = hpc1\n"
        "SLURM_VERSION           = 26.05.2\nSlurmctldHost[0]        = ctl1(10.0.0.1)\n"
        "SlurmctldHost[1]        = ctl2\n"
    )
    assert scontrol.config(text) == SlurmConfig(
        "hpc1", "26.05.2", ("ctl1", "ctl2"), "auth/slurm", "(null)"
    )


# --- nodes -----------------------------------------------------------------------------------


def slurm(name="gpu1", gres="gpu:h100_sxm:8", *words, **changes):
    node = SlurmNode(name, name, 128, 2060000, gres, (), frozenset(words or ("IDLE",)))
    return replace(node, **changes)


def looked(names=(H100,) * 8, **changes):
    ports = (("InfiniBand", "4: ACTIVE", "400 Gb/sec (4X NDR)"),) * 8
    look = Look("gpu1", "3.11.2", "2.6.0", 128, 2063000, names, None, ports, True, ())
    return replace(look, **changes)


def gpus(gres, look=None):
    return guess_gpus(Kind((slurm(gres=gres),)).gres, look)


@pytest.mark.parametrize(
    ("gres", "declared", "assumed"),
    [
        ("", Gpus("none", 0), ()),
        ("shard:8,mps:400", Gpus("none", 0), ()),
        ("gpu:h100_sxm:8(S:0-1),shard:64", Gpus("h100_sxm", 8), ()),
        (
            "gpu:nvidia_h100_80gb_hbm3:4",  # as AutoDetect=nvml names it
            Gpus("h100_sxm", 4, gres="gpu:nvidia_h100_80gb_hbm3:4"),
            (),
        ),
        ("gpu:h100:8", Gpus("h100", 8), ("model",)),
        ("gpu:8", Gpus("unknown", 8, gres="gpu:8"), ("model",)),
        ("gpu:virtual:2", Gpus("virtual", 2), ()),
    ],
)
def test_gpus_that_nobody_looked_at(gres, declared, assumed):
    guess = gpus(gres)
    assert (guess.gpus, guess.seen, guess.assumed) == (declared, (), assumed)
    assert bool(guess.comments) == bool(assumed)


@pytest.mark.parametrize(
    ("gres", "names", "declared", "seen"),
    [
        ("gpu:8", (H100,) * 8, Gpus("h100_sxm", 8, gres="gpu:8"), ("model",)),
        ("gpu:big:8", (H100,) * 8, Gpus("h100_sxm", 8, gres="gpu:big:8"), ("model",)),
        (
            "gpu:big:4,gpu:small:4",
            (H100,) * 8,
            Gpus("h100_sxm", 8, gres="gpu:big:4,gpu:small:4"),
            ("model",),
        ),
        ("gpu:x:2", ("TPU v9",) * 2, Gpus("tpu-v9", 2, gres="gpu:x:2"), ("model",)),
        (
            "gpu:nvidia_h100_80gb_hbm3_1g.10gb:8,gpu:3g.40gb:2",
            (H100,) * 2,
            Gpus(
                "h100_sxm",
                2,
                mig=(("1g.10gb", 4), ("3g.40gb", 1)),
                gres="gpu:nvidia_h100_80gb_hbm3_1g.10gb:8,gpu:3g.40gb:2",
            ),
            ("model", "mig"),
        ),
    ],
)
def test_gpus_of_a_node_that_was_looked_at(gres, names, declared, seen):
    guess = gpus(gres, looked(names))
    assert (guess.gpus, guess.seen, guess.assumed, guess.comments) == (declared, seen, (), ())


@pytest.mark.parametrize(
    ("gres", "look", "why"),
    [
        ("gpu:a100:4,gpu:v100:2", None, "GPUs of more than one type"),
        ("gpu:8", looked((H100,) * 4 + ("Tesla T4",) * 4), "GPUs of more than one model"),
        ("gpu:1g.10gb:14", None, "of how many GPUs only a look tells"),
        ("gpu:1g.10gb:13", looked((H100,) * 2), "unlike each other"),
        ("gpu:1g.10gb:7,gpu:h100:1", looked((H100,) * 2), "whole GPUs beside instances"),
    ],
)
def test_what_a_declaration_has_no_words_for_is_left_out(gres, look, why):
    with pytest.raises(Undeclarable, match=why):
        gpus(gres, look)


def test_what_slurm_and_the_node_say_otherwise_is_told():
    assert gpus("gpu:8", looked((H100,) * 7)).gpus.count == 8
    assert gpus("gpu:8", looked((H100,) * 7)).comments == (
        "Slurm has 8 GPUs, NVML on the node lists 7",
    )
    told = gpus("gpu:h100_sxm:8", looked((), nvml="no driver")).comments
    assert told == ("Slurm has 8 GPUs, NVML on the node lists 0 (no driver)",)
    assert gpus("", looked()).comments == (
        f"the node shows 8 × {H100}, and Slurm has no Gres for it",
    )


@pytest.mark.parametrize(
    ("ports", "fabric", "comments"),
    [
        ([("InfiniBand", "4: ACTIVE", "200 Gb/sec (4X HDR)")], "ib_hdr200", 0),
        ([("InfiniBand", "4: ACTIVE", "200 Gb/sec (2X NDR)")], "ib_ndr200", 0),
        ([("Ethernet", "4: ACTIVE", "100 Gb/sec (4X EDR)")], "roce_100", 0),
        # A slow port for storage: the lowest rate, which nothing falls below.
        (
            [
                ("InfiniBand", "4: ACTIVE", "400 Gb/sec (4X NDR)"),
                ("InfiniBand", "4: ACTIVE", "100 Gb/sec (4X EDR)"),
            ],
            "ib_edr100",
            1,
        ),
        ([("InfiniBand", "1: DOWN", "400 Gb/sec (4X NDR)")], "ethernet", 1),
        ([("InfiniBand", "4: ACTIVE", "56 Gb/sec (4X FDR)")], "ethernet", 1),
        ([("Unknown", "4: ACTIVE", "100 Gb/sec (4X EDR)")], "ethernet", 0),
        ([], "ethernet", 0),
    ],
)
def test_the_fabric_is_that_of_the_ports_that_are_up(ports, fabric, comments):
    guess = guess_fabric(looked(ports=tuple(ports)))
    assert (guess.fabric, guess.seen, guess.assumed) == (fabric, ("fabric",), ())
    assert len(guess.comments) == comments


def test_without_a_look_the_fabric_is_assumed():
    assert guess_fabric(None).assumed == ("fabric",)


@pytest.mark.parametrize(
    ("states", "chosen"),
    [
        ((("MIXED",), ("IDLE",)), "n1"),
        ((("DOWN",), ("ALLOCATED",)), "n1"),
        ((("IDLE", "DRAIN"), ("IDLE", "POWERED_DOWN")), None),
        ((("IDLE", "NOT_RESPONDING"), ("IDLE", "MAINTENANCE")), None),
    ],
)
def test_a_node_in_service_is_looked_at(states, chosen):
    nodes = [slurm(f"n{number}", "gpu:8", *words) for number, words in enumerate(states)]
    (kind,) = kinds(nodes)
    assert (kind.to_look_at and kind.to_look_at.name) == chosen


def test_nodes_of_one_type_and_different_counts_are_two_kinds():
    nodes = [slurm("a", "gpu:h100:8"), slurm("b", "gpu:h100:4"), slurm("c", "gpu:h100:8(S:0)")]
    assert [kind.names for kind in kinds(nodes)] == ["a,c", "b"]


# --- the whole -------------------------------------------------------------------------------

CONFIG = SlurmConfig("hpc1", "24.11.5", ("ctl1",), "auth/munge", "(null)")


def declared(nodes, partitions=None, looks=None, config=CONFIG):
    names = tuple(node.name for node in nodes)
    partitions = partitions or [SlurmPartition("gpu", names, True, True, True)]
    return whole.declare(
        config,
        nodes,
        partitions,
        looks or {},
        "login1",
        "/usr/bin/python3",
        Submission(account="a"),
    )


def read_again(result, tmp_path):
    file = tmp_path / "declaration.yml"
    file.write_text(render(result, "24.11.5", str(file)))
    return declaration.load(file)


def test_what_is_written_is_what_is_read(tmp_path):
    awkward = ("on", "1e3", "0x1F", "null", "n-1", "gpu.example.org", "007")
    nodes = [*(slurm(name) for name in awkward), slurm("mig1", "gpu:1g.10gb:14")]
    looks = {
        "on": looked(node="on"),
        "mig1": looked((H100,) * 2, node="mig1", dcgmi=False, shared=("/home (nfs4)",)),
    }
    result = declared(nodes, looks=looks)
    assert read_again(result, tmp_path) == result.declaration
    mig1 = result.declaration.nodes["mig1"]
    assert mig1.gpus.mig == (("1g.10gb", 7),)
    assert (mig1.without, mig1.seen) == (("dcgm",), ("model", "mig", "fabric"))
    text = (tmp_path / "declaration.yml").read_text()
    assert "  # seen on on: 128 CPUs, 2063000 MiB" in text
    assert "/home (nfs4)" in text


def test_every_node_is_declared_or_named_as_left_out(tmp_path):
    nodes = [
        slurm("gpu1"),
        slurm("future1", "gpu:8", "FUTURE"),
        slurm("cloud1", "gpu:h100_sxm:8", "IDLE", "CLOUD", "POWERED_DOWN"),
        slurm("down1", "gpu:h100_sxm:8", "DOWN", "NOT_RESPONDING"),
        slurm("ext1", "gpu:8", "IDLE", "EXTERNAL"),
        slurm("homeless"),
        slurm("two1", "gpu:a100:4,gpu:v100:2"),
    ]
    names = tuple(node.name for node in nodes if node.name != "homeless")
    partitions = [
        SlurmPartition("secret", names, False, True, False),
        SlurmPartition("gpu", names, True, True, True),
        SlurmPartition("old", ("homeless",), False, False, True),
    ]
    result = declared(nodes, partitions)
    assert list(result.declaration.nodes) == ["gpu1", "cloud1", "down1"]
    assert [item.name for item in result.declaration.partitions] == ["gpu", "secret"]
    assert [sentence.split()[0] for sentence in result.left_out] == [
        "future1", "ext1", "homeless", "two1",
    ]  # fmt: skip
    assert read_again(result, tmp_path) == result.declaration
    assert (
        "#   homeless is in no partition that is up" in (tmp_path / "declaration.yml").read_text()
    )


def test_no_node_is_no_declaration():
    with pytest.raises(Undeclarable, match="no node can be declared: f1 is FUTURE"):
        declared([slurm("f1", "", "FUTURE")])


def test_a_cluster_without_munge_says_so():
    result = declared([slurm()], config=replace(CONFIG, auth="auth/slurm"))
    assert result.declaration.nodes["gpu1"].without == ("munge",)


def test_what_a_node_does_without_is_skipped_with_its_reason():
    document = document_of(("gpu1", "virtual", 2), ("gpu2", "virtual", 2))
    document["nodes"][0]["without"] = ["munge"]
    planned = {(c.check, c.subject.name): c.skip for c in plan_of(document).checks}
    reason = "the declaration says that the node has no MUNGE"
    assert planned["munge", "gpu1"] == reason
    assert planned["munge", "gpu2"] is None
    without = [job.checks for job in plan_of(document).node_jobs if job.hosts == ("gpu1",)]
    assert "munge" not in without[0]


def test_doubts_are_notes_of_a_run():
    nodes = [
        Node(f"n{number}", 1, 1, Gpus("x", 1), "ethernet", seen=("model",), assumed=("fabric",))
        for number in (1, 2, 3)
    ]
    assert whole.doubts(nodes) == [
        "the model of n[1-3] is seen on the nodes, not declared",
        "the fabric of n[1-3] is assumed",
    ]
    assert whole.doubts([replace(nodes[0], seen=(), assumed=())]) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [("without", ["cuda"]), ("seen", ["cpus"]), ("assumed", "fabric"), ("seen", [["model"]])],
)
def test_words_that_mean_nothing_there_are_refused(field, value):
    document = document_of(("gpu1", "virtual", 2))
    document["nodes"][0][field] = value
    with pytest.raises(DataError, match=rf"nodes\[0\]\.{field}"):
        declaration.parse(document, "test")


# --- the program -----------------------------------------------------------------------------


@pytest.fixture
def declare_here(cluster, monkeypatch, tmp_path):
    def run(*more):
        file = tmp_path / "declaration.yml"
        words = ["--from-slurm", "--python", sys.executable, "--output", str(file), *more]
        status = program.main(words)
        return status, file, *cluster.capsys.readouterr()

    return run


def test_a_cluster_is_declared_and_proven(cluster, declare_here):
    cluster.install(("gpu1", "virtual", 2), ("gpu2", "virtual", 2))
    status, file, out, err = declare_here("--look")
    assert status == 0
    assert err.strip().startswith("looking at gpu1")
    whole = declaration.load(file)
    assert whole.nodes["gpu2"].gpus == Gpus("virtual", 2)
    assert whole.nodes["gpu2"].seen == ("fabric",)
    assert (whole.cluster, whole.controller) == ("hpc1", ("ctl1",))
    assert "the fabric of gpu[1-2] is seen on the nodes, not declared" in out
    (cluster.path / "cluster.json").unlink()
    cluster.arguments = lambda *more: [
        "--here", "--declaration", str(file), "--output", str(cluster.output), *more,
    ]  # fmt: skip
    status, out, _ = cluster.run()
    assert status == 0
    assert "All 2 nodes pass." in out
    assert "the fabric of gpu[1-2] is seen on the nodes, not declared" in out


def test_a_node_that_does_not_answer_is_declared_without_a_look(cluster, declare_here):
    cluster.install(("gpu1", "virtual", 2), ("h1", "h100_sxm", 2), **{"look-h1": "crash"})
    status, file, out, _ = declare_here("--look")
    assert status == 0
    assert "h1: not looked at: exit status 1: look, rank 1 on h1: out of luck" in out
    assert declaration.load(file).nodes["h1"].assumed == ("fabric",)
    assert "not looked at: exit status 1" in file.read_text()


def test_what_a_node_shows_is_declared(cluster, declare_here):
    look = {"names": [H100] * 2, "ports": [port(0), port(1)], "dcgmi": None, "torch": None}
    states = {"h1": ["idle", 2, 2000, "gpu:2", "none"]}
    faults = {"look-h1": {"arguments": look}}
    cluster.install(("h1", "h100_sxm", 2), states=states, **faults)
    status, file, *_ = declare_here("--look")
    assert status == 0
    assert declaration.load(file).nodes["h1"] == Node(
        "h1", 2, 2000, Gpus("h100_sxm", 2, gres="gpu:2"), "ib_ndr400",
        without=("dcgm",), seen=("model", "fabric"),
    )  # fmt: skip


def test_a_file_is_never_overwritten(cluster, declare_here):
    cluster.install()
    status, file, *_ = declare_here()
    before = file.read_text()
    file.write_text(before + "# corrected\n")
    status, file, _, err = declare_here()
    assert status == 2
    assert "exists: remove it, or name another with --output" in err
    assert file.read_text().endswith("# corrected\n")


def test_without_slurm_it_says_so(declare_here, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    status, file, _, err = declare_here()
    assert (status, err) == (2, "declare: there is no scontrol here: start it on a login node\n")
    assert not file.exists()


def test_the_look_is_what_the_payload_measures(monkeypatch):
    """The stand-in has the fields of the payload, so that what is read of it is there."""
    monkeypatch.setattr(node_payload, "_torch", lambda: ("2.6.0", None))  # its import takes seconds
    measured = look.measure(look.Config())
    made = standin.look("gpu1", {})["measured"]
    assert set(made) == set(measured)
    assert set(made["node"]) == set(measured["node"])


def test_dcgm_is_skipped_in_the_suite_that_has_it():
    document = document_of(("h1", "h100_sxm", 8), ("h2", "h100_sxm", 8))
    for node in document["nodes"]:
        node["without"] = ["dcgm"]
    whole = plan.make(
        declaration.parse(document, "test"), suites.load("burn-in"), plan.Selection(), "run"
    )
    skips = {c.skip for c in whole.checks if c.check == "dcgm"}
    assert skips == {"the declaration says that the node has no DCGM"}
    assert not [job for job in whole.node_jobs if job.payload == "dcgm"]


COMMAND = re.compile(r"^python -m (validation\.\w+) ?([^#\n]*)", re.MULTILINE)
PAGES = ("any-slurm-cluster.md", "validate.md")


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_the_pages_have_options_that_there_are(page):
    parsers = {
        "validation.run": lambda: run._parser(run.PROGRAM),
        "validation.declare": program._parser,
        "validation.explain": explain._parser,
    }
    text = (ROOT / "docs/operate" / page).read_text(encoding="utf-8")
    commands = COMMAND.findall(text)
    assert commands
    for module, words in commands:
        parsers[module]().parse_args(shlex.split(words))
