"""The program from a checkout, for archives on the control node; on a host it is plumbline-backup.

python -m roles.backup.files.backup unpack --help
"""

import sys

from roles.backup.files.backup.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
