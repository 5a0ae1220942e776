"""The web portal: JupyterHub, whose notebooks are Slurm jobs of their users."""
