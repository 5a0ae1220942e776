#!/bin/bash
# A shell on a node with a GPU, for half an hour; `exit` gives it back.
exec srun --gpus=1 --cpus-per-task=1 --mem=2G --time=00:30:00 --pty bash -l
