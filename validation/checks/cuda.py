"""CUDA starts and computes on every GPU of a node.

What it checks   torch.cuda.init() and a first kernel succeed on each declared GPU, each in its own
                 process, and the GPU's name belongs to the declared model.
Why it matters   A program may be unable to use a GPU that NVML lists: without the Fabric Manager,
                 with a driver too old for torch, or after an error that only a reset clears. One
                 such node would fail the ranks of all nodes, so this check comes first.
What to do       The message is torch's own. `system not yet initialized` (802): the Fabric Manager
                 does not run, or does not match the driver. `driver … is too old`: install a torch
                 for this driver, or a newer driver. `no CUDA-capable device`: the job has no access
                 to the device nodes. `Found no NVIDIA driver`: its kernel module is not loaded, or
                 a container lacks its library (libcuda.so.1): apply the role nvidia_driver again,
                 or repair the image's runtime. `not compiled with CUDA`: the declared Python has
                 torch for CPUs. A missing library: torch was installed without a library of CUDA
                 that it needs, or for another one: install torch again with all that it requires.
                 On a single GPU: read its XID, then reset the board.
                 $ ssh {node} 'nvidia-smi; systemctl status nvidia-fabricmanager'
                 $ ssh {node} 'dmesg | grep -i -e xid -e nvrm | tail'
"""

from validation.checks import computed
from validation.checks.document import Document, answer
from validation.checks.gpus import cuda_names
from validation.model import Job, Metric, Reply, Result, Threshold, Tier, When
from validation.thresholds import Rules

NAME = "cuda"
TIER = Tier.NODE
PAYLOAD = "cuda"

CAUSES = {
    "`system not yet initialized` (802)": When(
        r"not yet initialized|\b802\b",
        ("ssh {node} 'nvidia-smi; systemctl status nvidia-fabricmanager'",),
    ),
    "`driver … is too old`": When(r"too old", ("ssh {node} nvidia-smi",)),
    "`no CUDA-capable device`": When(
        r"no CUDA-capable device", ("ssh {node} 'ls -l /dev/nvidia[0-9]*; nvidia-smi -L'",)
    ),
    "`Found no NVIDIA driver`": When(
        r"Found no NVIDIA driver|driver version is insufficient",
        ("ssh {node} 'nvidia-smi; lsmod | grep nvidia; ldconfig -p | grep libcuda.so'",),
    ),
    "A missing library": When(
        r"cannot open shared object file",
        ("ssh {node} \"/opt/plumbline/bin/python -c 'import torch'\"",),
    ),
    "`not compiled with CUDA`": When(
        r"not compiled with CUDA",
        ("ssh {node} \"/opt/plumbline/bin/python -c 'import torch; print(torch.version.cuda)'\"",),
    ),
    "On a single GPU": When(
        r"^GPU [0-9]+: ", ("ssh {node} 'dmesg | grep -i -e xid -e nvrm | tail'",)
    ),
}


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Result:
        declared = job.nodes[0].gpus
        gpus = computed.answered(document, "cuda", declared.devices, declared)
        report = computed.Report()
        expected = Threshold("=", len(gpus), "GPUs", "declared", "inventory")
        working = [gpu for gpu in gpus if gpu.problem is None]
        broken = [gpu for gpu in gpus if gpu.problem is not None]
        value = Metric("GPUs that compute", len(working), "GPUs")
        report.judged.append((value, expected))
        if not working and len({gpu.problem for gpu in broken}) == 1:
            who = "GPU 0" if len(broken) == 1 else f"all {len(broken)} GPUs"
            report.fail(f"{who}: {broken[0].problem}", value, expected)
        else:
            for gpu in broken:
                report.fail(f"{gpu.title}: {gpu.problem}", value, expected)
        known = cuda_names(declared, rules)
        for gpu in working:
            if known and gpu.name not in known:
                named = Threshold("in", ", ".join(known), "", "declared", "inventory")
                report.fail(
                    f"{gpu.title} is {gpu.name}, {rules.hardware} is known as {', '.join(known)}",
                    Metric(gpu.title, gpu.name),
                    named,
                )
        return report.result(NAME, job, document, rules)

    return answer(NAME, job, reply, judge)
