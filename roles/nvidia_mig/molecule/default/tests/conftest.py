from tests.mig_live import slurm

__all__ = ["slurm"]
