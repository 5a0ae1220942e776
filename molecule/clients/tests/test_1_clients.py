"""What users bring, on the running cluster: each program as its guide says, by an ordinary user."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.live_cluster import REPOSITORY

SCENARIO = REPOSITORY / "molecule/clients"
REQUIREMENTS = (SCENARIO / "requirements.txt").read_text(encoding="utf-8")
FOR_TORCH = (SCENARIO / "requirements-torch.txt").read_text(encoding="utf-8")

# By the package of requirements.txt: a script in the virtual environment, and what it prints.
CLIENTS = {
    "submitit": (
        """python - <<'END'
import socket, submitit
executor = submitit.AutoExecutor(folder="logs")
executor.update_parameters(timeout_min=5, nodes=2, tasks_per_node=1)
print("hosts", *sorted(executor.submit(socket.gethostname).results()))
executor.update_parameters(nodes=1, slurm_array_parallelism=4)
print("sum", sum(job.result() for job in executor.map_array(lambda number: number, range(8))))
END""",
        r"hosts gpu\d gpu\d\nsum 28",
    ),
    "dask-jobqueue": (
        """python - <<'END'
from dask.distributed import Client
from dask_jobqueue import SLURMCluster
workers = {"cores": 1, "memory": "400MB", "walltime": "00:05:00"}
with SLURMCluster(**workers) as cluster, Client(cluster) as client:
    cluster.scale(jobs=2)
    client.wait_for_workers(2, timeout=240)
    print("sum", sum(client.gather(client.map(lambda number: number * 2, range(8)))))
END""",
        "sum 56",
    ),
    "parsl": (
        """python - <<'END'
import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.launchers import SrunLauncher
from parsl.providers import SlurmProvider
provider = SlurmProvider(
    "gpu", nodes_per_block=2, walltime="00:05:00", launcher=SrunLauncher(), exclusive=False,
    worker_init="source ~/clients/bin/activate", mem_per_node=1)
with parsl.load(Config([HighThroughputExecutor(provider=provider, max_workers_per_node=1)])):
    double = parsl.python_app(lambda number: number * 2)
    print("sum", sum(future.result() for future in [double(number) for number in range(8)]))
END""",
        "sum 56",
    ),
    "simple_slurm": (
        """python - <<'END'
from simple_slurm import Slurm
job = Slurm(job_name="simple", time="00:05:00", output="simple.out", wait=True).sbatch("hostname")
print("job", job, open("simple.out").read())
END""",
        r"job \d+ gpu\d",
    ),
    "hydra-submitit-launcher": (
        """cat >app.py <<'END'
import hydra, os
@hydra.main(version_base=None, config_path=None)
def main(config):
    print("value", config.value, os.environ["SLURM_JOB_ID"])
main()
END
python app.py --multirun +value=1,2 hydra/launcher=submitit_slurm hydra.launcher.timeout_min=5
cat multirun/*/*/.submitit/*/*_log.out""",
        r"value 1 \d+[\s\S]*value 2 \d+",
    ),
    "snakemake": (
        """cat >Snakefile <<'END'
rule all:
    input: expand("{part}.out", part=list("abc"))
rule part:
    output: "{part}.out"
    resources: runtime=5, mem_mb=200
    shell: "hostname >{output}"
END
snakemake --executor slurm --jobs 3 --latency-wait 30 2>&1; cat ?.out""",
        r"4 of 4 steps \(100%\) done[\s\S]*gpu\d\ngpu\d\ngpu\d",
    ),
    "mpi4py": (
        """srun --nodes=2 --ntasks-per-node=1 python -c '
from mpi4py import MPI
world = MPI.COMM_WORLD
print("sum", world.allreduce(world.rank + 1), "of", world.size)'""",
        r"sum 3 of 2\nsum 3 of 2",
    ),
    "ReFrame-HPC": (
        """cat >check.py <<'END'
import reframe as rfm
import reframe.utility.sanity as sn
@rfm.simple_test
class Hostname(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "hostname"
    num_tasks = 2
    sanity_patterns = sn.assert_found("gpu", "rfm_job.out")
END
cat >settings.py <<'END'
site_configuration = {
    "systems": [{"name": "demo", "hostnames": [".*"], "modules_system": "lmod", "partitions": [
        {"name": "gpu", "scheduler": "slurm", "launcher": "srun", "environs": ["plain"]},
    ]}],
    "environments": [{"name": "plain"}]}
END
reframe --nocolor -C settings.py -c check.py -r""",
        r"PASSED\s+\] Ran 1/1",
    ),
    "ray": (
        """cat >app.py <<'END'
import socket, time
import ray
ray.init(address="auto", log_to_driver=False)
while len(ray.nodes()) < 2:
    time.sleep(1)
@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def host():
    time.sleep(3)
    return socket.gethostname()
print("hosts", *sorted(set(ray.get([host.remote() for _ in range(2)]))))
END
cat >ray.sbatch <<'END'
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --time=5 --mem=1500 --output=ray.out
head=$(scontrol show hostnames | head -n 1)
options="--num-cpus=1 --object-store-memory=100000000 --disable-usage-stats --block"
srun --overlap --nodes=1 --ntasks=1 --nodelist=$head ray start --head --port=6379 $options &
sleep 15
srun --overlap --nodes=1 --ntasks=1 --exclude=$head ray start --address=$head:6379 $options &
srun --overlap --nodes=1 --ntasks=1 --nodelist=$head python app.py
END
timeout 150 sbatch --wait ray.sbatch; cat ray.out""",
        r"hosts gpu1 gpu2",
    ),
}
# What the cluster itself has: a module, and the Open MPI that the distribution's torch brings.
OF_THE_CLUSTER = {
    "torchrun": (
        """cat >train.py <<'END'
import torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(value)
print("sum", int(value), "of", dist.get_world_size(), flush=True)
dist.destroy_process_group()
END
cat >torch.sbatch <<'END'
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --time=5 --output=torch.out
module load pytorch
srun torchrun --nnodes=2 --nproc-per-node=1 --rdzv-id=$SLURM_JOB_ID --rdzv-backend=c10d \\
    --rdzv-endpoint=$(scontrol show hostnames | head -n 1):29500 train.py
END
deactivate && timeout 120 sbatch --wait torch.sbatch; cat torch.out""",
        r"sum 3 of 2\nsum 3 of 2",
    ),
    "the distribution's Open MPI": (
        """export MPI4PY_MPIABI=openmpi MPI4PY_LIBMPI=/usr/lib/$(uname -m)-linux-gnu/libmpi.so.40
srun --mpi=pmix --time=2 --nodes=2 --ntasks-per-node=1 python -c '
from mpi4py import MPI
world = MPI.COMM_WORLD
print("sum", world.allreduce(world.rank + 1), "of", world.size, MPI.Get_library_version())'""",
        r"sum 3 of 2 Open MPI v5.0.7",
    ),
}
# By the package of requirements-torch.txt: in a virtual environment that a job made on a node, with
# the node's torch. A line is learned by both nodes together; each must end with its slope, 3.
WITH_TORCH = {
    "lightning": (
        """cat >train.py <<'END'
import lightning, torch
from torch.utils.data import DataLoader, TensorDataset
class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def training_step(self, batch, _):
        x, y = batch
        return ((self.layer(x) - y) ** 2).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)
x = torch.linspace(-1, 1, 64).unsqueeze(1)
off = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
trainer = lightning.Trainer(
    accelerator="cpu", devices=1, num_nodes=2, strategy="ddp", max_epochs=20,
    **dict.fromkeys(off, False))
line = Line()
trainer.fit(line, DataLoader(TensorDataset(x, 3 * x + 1), batch_size=16))
cluster = type(trainer.strategy.cluster_environment).__name__
slope = line.layer.weight.item()
print("rank", trainer.global_rank, "of", trainer.world_size, cluster, f"{slope:.2f}", flush=True)
END
cat >train.sbatch <<'END'
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --time=5 --mem=1500 --output=train.out
module load pytorch
. ~/torch-clients/bin/activate
srun python train.py
END
timeout 240 sbatch --wait train.sbatch; grep ^rank train.out | sort; cat train.out""",
        r"rank 0 of 2 SLURMEnvironment 3\.00\nrank 1 of 2 SLURMEnvironment 3\.00",
    ),
    "accelerate": (
        """cat >train.py <<'END'
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
accelerator = Accelerator(cpu=True)
layer = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
x = torch.linspace(-1, 1, 64).unsqueeze(1)
loader = DataLoader(TensorDataset(x, 3 * x + 1), batch_size=16)
model, optimizer, loader = accelerator.prepare(layer, optimizer, loader)
for _ in range(20):
    for inputs, outputs in loader:
        optimizer.zero_grad()
        accelerator.backward(((model(inputs) - outputs) ** 2).mean())
        optimizer.step()
rank, size = accelerator.process_index, accelerator.num_processes
total = int(accelerator.reduce(torch.tensor([rank + 1.0]), "sum"))
slope = accelerator.unwrap_model(model).weight.item()
print("rank", rank, "of", size, "sum", total, f"{slope:.2f}", flush=True)
accelerator.end_training()
END
cat >train.sbatch <<'END'
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --time=5 --mem=1500 --output=train.out
module load pytorch
. ~/torch-clients/bin/activate
export HEAD=$(scontrol show hostnames | head -n 1)
srun bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS \\
    accelerate launch --cpu --num_machines=2 --num_processes=2 --machine_rank=$SLURM_PROCID \\
    --main_process_ip=$HEAD --main_process_port=29502 --mixed_precision=no --dynamo_backend=no \\
    train.py'
END
timeout 240 sbatch --wait train.sbatch; grep ^rank train.out | sort; cat train.out""",
        r"rank 0 of 2 sum 3 3\.00\nrank 1 of 2 sum 3 3\.00",
    ),
}
# Installed for others: a launcher of Dask, an MPI, a plugin. The auditor has a test of its own.
HELPERS = {"clustermax", "distributed", "openmpi", "snakemake-executor-plugin-slurm"}


@pytest.fixture(scope="module")
def shell(operator):
    """A function that runs a script as the user by SSH, where what they brought is installed."""

    def run(script: str):
        return operator.virtual_cluster("ssh", "ada@login1", f"bash -c {shlex.quote(script)}")

    made = run(
        f"python3 -m venv ~/clients && printf %s {shlex.quote(REQUIREMENTS)} >~/clients/list"
        " && ~/clients/bin/pip install --quiet --requirement ~/clients/list"
    )
    assert made.returncode == 0, made.stdout + made.stderr
    return run


def packages(requirements: str) -> set[str]:
    return set(re.findall(r"^([\w-]+)==", requirements, re.MULTILINE))


def test_every_requirement_is_used():
    assert packages(REQUIREMENTS) == CLIENTS.keys() | HELPERS
    assert packages(FOR_TORCH) == WITH_TORCH.keys()


@pytest.fixture(scope="module")
def on_a_node(shell) -> None:
    """The virtual environment of those that need torch."""
    make = (
        "python3 -m venv --system-site-packages ~/torch-clients"
        " && ~/torch-clients/bin/pip install --quiet --requirement ~/torch-clients.txt"
    )
    made = shell(
        f"printf %s {shlex.quote(FOR_TORCH)} >~/torch-clients.txt"
        f" && srun --time=10 --mem=1500 bash -c {shlex.quote(make)}"
    )
    assert made.returncode == 0, made.stdout + made.stderr


@pytest.mark.parametrize("name", CLIENTS | OF_THE_CLUSTER)
def test_it_does_what_its_guide_says(shell, name):
    script, pattern = (CLIENTS | OF_THE_CLUSTER)[name]
    folder = re.sub(r"\W", "-", name)
    begin = f"mkdir -p ~/work/{folder} && cd ~/work/{folder} && . ~/clients/bin/activate"
    done = shell(f"{begin} && {script}")
    assert re.search(pattern, done.stdout), done.stdout + done.stderr


@pytest.mark.parametrize("name", WITH_TORCH)
def test_it_trains_on_two_nodes_as_its_guide_says(shell, on_a_node, name):
    script, pattern = WITH_TORCH[name]
    done = shell(f"mkdir -p ~/work/{name} && cd ~/work/{name} && {script}")
    assert re.search(pattern, done.stdout), done.stdout + done.stderr
