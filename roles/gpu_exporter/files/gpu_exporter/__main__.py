"""The program from a checkout; on a node it is plumbline-gpu-exporter.

python -m roles.gpu_exporter.files.gpu_exporter
"""

import sys

from roles.gpu_exporter.files.gpu_exporter.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
