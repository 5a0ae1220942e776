"""The program from a checkout; on a controller it is plumbline-slurm-exporter.

python -m roles.slurm_exporter.files.slurm_exporter
"""

import sys

from roles.slurm_exporter.files.slurm_exporter.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
