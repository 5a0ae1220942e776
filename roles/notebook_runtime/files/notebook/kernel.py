"""A kernel with the Python of a module: its own packages first, then ipykernel from here.

`kernel.py PREFIX -f CONNECTION_FILE`, run by the module's Python; PREFIX has the environment of
notebooks. A module of another Python than that one's needs an ipykernel of its own.
"""

from __future__ import annotations

import glob
import os
import sys

NAME = f"python{sys.version_info.major}.{sys.version_info.minor}"


def main() -> None:
    """Becomes a kernel."""
    prefix = os.path.join(sys.argv.pop(1), "env")
    sys.path[0] = ""  # as an interpreter without a program; and not this folder
    sys.path.append(os.path.join(prefix, "lib", NAME, "site-packages"))
    try:
        from ipykernel.kernelapp import launch_new_instance  # noqa: PLC0415 - found there
    except ImportError:
        others = ", ".join(os.path.basename(path) for path in glob.glob(f"{prefix}/lib/python3.*"))
        sys.exit(f"{sys.executable} is {NAME} and has no ipykernel; the portal's is for {others}.")
    launch_new_instance()


if __name__ == "__main__":
    main()
