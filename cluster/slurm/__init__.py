"""What of Slurm several programs have to know, and none of them decides."""
