"""CUDA's start on every GPU: the payload's processes, and how its answer is judged."""

import json
import sys
from pathlib import Path

import pytest

from cluster.errors import CannotRun
from validation.model import Outcome, Reply, Verdict
from validation.payloads import cuda
from validation.payloads.config import load
from validation.tests import standin
from validation.tests.conftest import make_plan
from validation.tests.judging import judged, put

ROOT = Path(__file__).parents[2]

# As torch says it (c10/cuda/CUDAFunctions.cpp): without Fabric Manager on a board with NVSwitches,
# and with a driver older than the CUDA that torch was built for.
NO_FABRIC_MANAGER = (
    "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions "
    "before calling NumCudaDevices() that might have already set an error? Error 802: system not "
    "yet initialized"
)
TOO_OLD = (
    "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please "
    "update your GPU driver by downloading and installing a new version from the URL: "
    "http://www.nvidia.com/Download/index.aspx Alternatively, go to: https://pytorch.org to "
    "install a PyTorch version that has been compiled with your version of the CUDA driver."
)


def job_of(model="h100_sxm", count=8):
    (only,) = [job for job in make_plan(("h1", model, count)).jobs if job.payload == "cuda"]
    return only


JOB = job_of()


def judge(document, job=JOB):
    return judged("cuda", job, Reply(job.name, Outcome.EXITED, 0, "17", standin.line(document)))


def answer(job=JOB, **changes):
    return standin.cuda("h1", job.config, **changes)


# --- the check -------------------------------------------------------------------------------


def test_gpus_that_compute_pass():
    result = judge(answer())
    assert (result.verdict, result.message) == (Verdict.PASS, "")
    assert (result.value.name, result.value.value) == ("GPUs that compute", 8)
    assert (result.threshold.value, result.threshold.provenance) == (8, "declared")
    assert result.proof.hosts == ("h1",)


def test_a_model_that_nobody_knows_is_still_started():
    job = job_of("tpu_v9", 4)
    assert judge(answer(job), job).verdict is Verdict.PASS


@pytest.mark.parametrize("error", [NO_FABRIC_MANAGER, TOO_OLD])
def test_what_all_gpus_lack_is_told_once_in_torchs_words(error):
    result = judge(answer(errors=dict.fromkeys(range(8), error)))
    assert result.verdict is Verdict.FAIL
    assert result.message.startswith(f"all 8 GPUs: {error[:250]}")
    assert result.value.value == 0
    assert result.blamed is None  # the node, which is the only one


def test_one_gpu_that_does_not_start_is_named():
    result = judge(answer(errors={3: "AcceleratorError: CUDA error: out of memory"}))
    assert (result.verdict, result.value.value) == (Verdict.FAIL, 7)
    assert result.message == "GPU 3: AcceleratorError: CUDA error: out of memory"
    job = job_of(count=1)
    assert judge(answer(job, errors={0: "lost"}), job).message == "GPU 0: lost"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ((3, "start", "name"), "NVIDIA H100 PCIe", "GPU 3 is NVIDIA H100 PCIe, h100_sxm is known"),
        ((3, "start", "uuid"), "GPU-h1-2", "the same GPU was measured twice"),
        ((3, "start", "error"), "", "GPU 3: no reason"),
        ((3, "index"), 4, "figures of 8 GPUs ([0, 1, 2, 4, 4, 5, 6, 7]), 8 are declared"),
        ((7,), ..., "figures of 7 GPUs"),
        ((3, "start"), None, "start is no object"),
    ],
)
def test_one_fault(path, value, message):
    document = answer()
    put(document["measured"]["gpus"], path, value)
    result = judge(document)
    assert (result.verdict, message in result.message) == (Verdict.FAIL, True), result.message


# --- the payload -----------------------------------------------------------------------------

WORKER = """
import sys
sys.path.insert(0, sys.argv[1])
import os, time, torch
from validation.payloads import gpu_device, gpu_worker
here = os.environ["CUDA_VISIBLE_DEVICES"]
def init():
    if here in sys.argv[3].split(","):
        if sys.argv[2] == "hang":
            time.sleep(600)
        raise RuntimeError(sys.argv[2])
torch.cuda.init = init
started = gpu_device.start
def start(kind, places):  # what comes after init needs a GPU
    gpu_device._cuda_init()
    device, found = started("cpu")
    return device, {**found, "name": "NVIDIA H100 80GB HBM3", "uuid": f"GPU-h1-{here}",
                    "multiprocessors": 132, "l2_bytes": 50 << 20}
gpu_device.start = start
gpu_worker.main()
"""


def measure(words, broken, gpus=2, start_limit_s=60.0):
    """The real payload and workers, in which torch.cuda.init fails with these words."""
    command = [sys.executable, "-I", "-c", WORKER, str(ROOT), words, broken]
    config = cuda.Config(gpus=gpus, start_limit_s=start_limit_s)
    document = answer(job_of(count=gpus))
    document["measured"] = cuda.measure(config, {}, command)
    return judge(document, job_of(count=gpus))


@pytest.mark.sample(1)
@pytest.mark.parametrize("error", [NO_FABRIC_MANAGER, TOO_OLD])
def test_torchs_own_words_arrive(error):
    text = error.removeprefix("RuntimeError: ")
    result = measure(text, "0,1")
    assert result.verdict is Verdict.FAIL
    assert result.message.startswith(f"all 2 GPUs: {error[:250]}")


@pytest.mark.long
def test_a_gpu_that_hangs_costs_its_own_answer():
    result = measure("hang", "1", start_limit_s=20.0)
    assert (result.verdict, result.value.value) == (Verdict.FAIL, 1)
    assert result.message == "GPU 1: the process did not end in 20 s and was killed"


def test_gpus_that_start_pass():
    assert measure("", "none").verdict is Verdict.PASS


def test_on_a_machine_without_gpus_every_one_fails():
    gpus = cuda.measure(cuda.Config(gpus=2), {})["gpus"]
    assert [gpu["index"] for gpu in gpus] == [0, 1]
    assert all("CUDA" in gpu["start"]["error"] for gpu in gpus)


@pytest.mark.parametrize("config", [{}, {"gpus": 0}, {"gpus": 1, "start_limit_s": 0.0}])
def test_what_cannot_be_asked_is_refused(config):
    with pytest.raises(CannotRun):
        load(cuda.Config, json.dumps(config))
