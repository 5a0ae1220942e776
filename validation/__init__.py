"""Proves a Slurm GPU cluster with real jobs: `python -m validation.run`."""
