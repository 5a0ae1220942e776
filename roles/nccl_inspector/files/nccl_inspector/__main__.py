"""The program from a checkout; on a node it is plumbline-nccl-inspector.

python -m roles.nccl_inspector.files.nccl_inspector
"""

import sys

from roles.nccl_inspector.files.nccl_inspector.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
