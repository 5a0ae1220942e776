from tests.mig_live import slurm, whole

__all__ = ["slurm", "whole"]
