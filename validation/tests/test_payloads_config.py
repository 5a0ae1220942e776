"""What goes into a payload and what comes out: configuration, Slurm's variables, document."""

import json
import math
from dataclasses import FrozenInstanceError

import pytest

from cluster.errors import CannotRun
from validation.payloads import all_reduce, ddp, document, node, pipeline
from validation.payloads.config import load
from validation.payloads.rendezvous import from_slurm, node_name

ALL_REDUCE = {"backend": "gloo", "timeout_s": 60, "sizes_bytes": [4, 4096]}
TRAINING = {"backend": "gloo", "timeout_s": 60, "seed": 1, "steps": 3, "width": 8, "lr": 0.1}
DDP = {**TRAINING, "batch_per_rank": 4, "depth": 2}
PIPELINE = {**TRAINING, "microbatches": 4, "microbatch_size": 2, "layers_per_stage": 1}


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (all_reduce.Config, ALL_REDUCE),
        (ddp.Config, DDP),
        (pipeline.Config, PIPELINE),
        (node.Config, {"munge_credential": "MUNGE:x:"}),
        (node.Config, {"munge_credential": None}),
        (node.Config, {"torch": True, "nonce": "run-7f"}),
        (ddp.Config, {**DDP, "nonce": "run-7f", "cpus_per_rank": 4, "join_timeout_s": 30}),
    ],
)
def test_a_configuration_arrives_whole(kind, config):
    loaded = load(kind, json.dumps(config))
    for key, value in config.items():
        assert getattr(loaded, key) == (tuple(value) if isinstance(value, list) else value)
    with pytest.raises(FrozenInstanceError):
        loaded.backend = "other"


@pytest.mark.parametrize(
    ("kind", "config", "complaint"),
    [
        (all_reduce.Config, "", "not valid JSON"),
        (all_reduce.Config, "[]", "not a JSON object"),
        (ddp.Config, {**DDP, "stpes": 3}, 'unknown key "stpes"'),
        (ddp.Config, {k: v for k, v in DDP.items() if k != "lr"}, 'lacks the key "lr"'),
        (ddp.Config, {**DDP, "steps": "3"}, "steps is '3', not an integer"),
        (ddp.Config, {**DDP, "steps": 3.0}, "not an integer"),
        (ddp.Config, {**DDP, "steps": True}, "not an integer"),
        (ddp.Config, {**DDP, "steps": 0}, "steps is 0, not above zero"),
        (ddp.Config, {**DDP, "lr": -1}, "lr is -1.0, not above zero"),
        (ddp.Config, json.dumps({**DDP, "lr": math.nan}), "not valid JSON"),
        (ddp.Config, {**DDP, "lr": 1e400}, "not valid JSON"),
        (ddp.Config, {**DDP, "lr": False}, "not a number"),
        (ddp.Config, {**DDP, "backend": "mpi"}, 'backend is "mpi"'),
        (ddp.Config, {**DDP, "backend": None}, "not a text"),
        (ddp.Config, {**DDP, "timeout_s": 0}, "timeout_s"),
        (all_reduce.Config, {**ALL_REDUCE, "sizes_bytes": []}, "not a list of integers"),
        (all_reduce.Config, {**ALL_REDUCE, "sizes_bytes": [4, "8"]}, "not an integer"),
        (all_reduce.Config, {**ALL_REDUCE, "sizes_bytes": [6]}, "no multiple of 4 bytes"),
        (all_reduce.Config, {**ALL_REDUCE, "sizes_bytes": [0]}, "no multiple of 4 bytes"),
        (all_reduce.Config, {**ALL_REDUCE, "warmup": 0}, "warmup is 0"),
        (all_reduce.Config, {**ALL_REDUCE, "dtype": "int8"}, "only float32"),
        (node.Config, {"munge_credential": 7}, "not a text"),
        (node.Config, {"torch": 1}, "torch is 1, not true or false"),
        (ddp.Config, {**DDP, "cpus_per_rank": 0}, "cpus_per_rank is 0, not above zero"),
        (ddp.Config, {**DDP, "join_timeout_s": 0}, "join_timeout_s is 0"),
        (ddp.Config, {**DDP, "nonce": 7}, "nonce is 7, not a text"),
    ],
)
def test_a_wrong_configuration_is_refused_in_one_sentence(kind, config, complaint):
    text = config if isinstance(config, str) else json.dumps(config)
    with pytest.raises(CannotRun, match=complaint) as caught:
        load(kind, text)
    assert "\n" not in str(caught.value)


SLURM = {
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_NTASKS": "4",
    "SLURM_JOB_ID": "123456",
    "SLURM_STEP_ID": "2",
    "SLURM_JOB_NODELIST": "gpu[07-10]",
    "SLURM_STEP_NODELIST": "gpu[09,10]",
}


def test_a_task_is_a_rank():
    rendezvous = from_slurm(SLURM)
    assert (rendezvous.rank, rendezvous.local_rank, rendezvous.world_size) == (2, 0, 4)
    assert rendezvous.nodes == ("gpu09", "gpu10")
    assert rendezvous.master_addr == "gpu09"
    assert rendezvous.master_port == 20_000 + (123_456 * 16 + 2) % 10_000


def test_ranks_meet_on_a_port_that_linux_gives_to_nobody_else():
    """The kernel's own choice begins at 32768 (ip_local_port_range)."""
    ports = {from_slurm({**SLURM, "SLURM_JOB_ID": str(job)}).master_port for job in range(30_000)}
    assert (min(ports), max(ports)) == (20_002, 29_986)


def test_steps_of_one_job_do_not_meet_each_other():
    """What hung in one may still listen when the next begins."""
    steps = [from_slurm({**SLURM, "SLURM_STEP_ID": str(step)}).master_port for step in range(16)]
    assert len(set(steps)) == 16
    following = from_slurm({**SLURM, "SLURM_JOB_ID": "123457", "SLURM_STEP_ID": "0"})
    assert following.master_port not in steps


def test_without_a_step_the_job_says_the_nodes():
    assert from_slurm({**SLURM, "SLURM_STEP_NODELIST": ""}).master_addr == "gpu07"


@pytest.mark.parametrize("missing", ["SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"])
def test_a_missing_variable_is_an_error_and_never_localhost(missing):
    with pytest.raises(CannotRun, match=f"{missing} is not set"):
        from_slurm({key: value for key, value in SLURM.items() if key != missing})


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"SLURM_STEP_NODELIST": "", "SLURM_JOB_NODELIST": ""}, "neither SLURM_STEP_NODELIST nor"),
        ({"SLURM_STEP_NODELIST": "gpu[9-"}, "unbalanced"),
        ({"SLURM_NTASKS": "2"}, "SLURM_PROCID is 2, but SLURM_NTASKS says 2 ranks"),
        ({"SLURM_STEP_NODELIST": "gpu[1-5]"}, "4 ranks for 5 nodes"),
        ({"SLURM_NTASKS": "four"}, "'four', not a number"),
        ({"SLURM_PROCID": "-1"}, "'-1', not a number"),
        ({"SLURM_JOB_ID": ""}, "'', not a number"),
        ({"SLURM_STEP_ID": "batch"}, "'batch', not a number"),
    ],
)
def test_variables_that_make_no_sense_are_refused(change, complaint):
    with pytest.raises(CannotRun, match=complaint):
        from_slurm({**SLURM, **change})


def test_a_node_has_the_name_slurm_gave_it():
    assert node_name({"SLURMD_NODENAME": "gpu07"}) == "gpu07"
    assert node_name({}) != ""


def test_the_document_is_strict_json_on_one_line():
    measured = {"losses": [0.5, math.nan, math.inf, -math.inf], "wrong": 0, "text": "two\nlines"}
    line = document.encode("ddp", {"world_size": 2}, measured, "run-7f")
    assert "\n" not in line
    assert json.loads(line, parse_constant=pytest.fail) == {
        "plumbline": 1,
        "payload": "ddp",
        "nonce": "run-7f",
        "proof": {"world_size": 2},
        "measured": {
            "losses": [0.5, "nan", "inf", "-inf"],
            "wrong": 0,
            "text": "two\nlines",
        },
    }
