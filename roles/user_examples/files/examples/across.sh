#!/bin/bash
# across.sh NODES GPUS PROGRAM [ARGUMENT...]: one process for each of so many GPUs, on so many nodes of this job.
set -euo pipefail
nodes=$1 gpus=$2
shift 2
mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
these=$(IFS=, && echo "${hosts[*]:0:nodes}")
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" # of each process; torchrun would say that it sets it
# torchrun meets on a port of its own for each job, and starts the processes of its node. Where one of them ends, the
# others would wait for it until the job's time is over.
exec srun --kill-on-bad-exit=1 --nodes="$nodes" --nodelist="$these" --ntasks="$nodes" \
    --gpus-per-node="$gpus" --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    torchrun --nnodes="$nodes" --nproc-per-node="$gpus" \
    --rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="${hosts[0]}:$((20000 + SLURM_JOB_ID % 10000))" "$@"
