"""Slurm: what a job's command line is, how jobs are started and waited for, what nodes are."""
