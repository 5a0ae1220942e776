"""In a checkout: python -m validation.exporters.slurm; on a node: plumbline-slurm-exporter."""

import sys

from validation.exporters.slurm.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
