from tests.mig_live import slurm, whole
from tests.role_play import play

__all__ = ["play", "slurm", "whole"]
