"""In a checkout: python -m validation.exporters.gpu; on a node: plumbline-gpu-exporter."""

import sys

from validation.exporters.gpu.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
