# What the programs need; every job here reads it first. Loaded in the job, so the same on each node.
module load pytorch
