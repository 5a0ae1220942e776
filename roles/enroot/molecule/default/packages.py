"""Releases of enroot of our own: upstream's file names, paths and dependencies, our contents.

What they share with the real packages is where files lie and what `enroot version` and
`enroot-nsenter` are called with; containers they have none.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from tests.standins.mirror import Deb, Mirror

OLD, NEW, BROKEN = "4.9.0", "4.9.1", "4.9.2"
DEPENDS = (
    "bash (>= 4.2)",
    "curl",
    "gawk | mawk",
    "jq (>= 1.5)",
    "parallel",
    "passwd",
    "squashfs-tools",
    "zstd",
    "bsdmainutils",
)
# As the real one it makes its folders before it does anything.
PROGRAM = """#!/bin/bash
set -euo pipefail
for folder in CACHE DATA RUNTIME; do
    name=ENROOT_${{folder}}_PATH
    (umask 077 && mkdir -p "${{!name}}")
done
[ "$1" = version ] && echo {version}
"""
NSENTER = "#!/bin/bash\nexec unshare --user --map-root-user --mount true\n"
PROFILE = """abi <abi/4.0>,
include <tunables/global>

profile enroot /usr/bin/enroot-nsenter flags=(unconfined) {
    userns,
}
"""


def enroot(version: str, architecture: str) -> Deb:
    hooks = ("50-mig-config", "50-sharp", "50-slurm-pmi", "50-slurm-pytorch")
    return Deb(
        "enroot",
        f"{version}-1",
        architecture,
        # What no archive has: a release that cannot be installed.
        depends=DEPENDS if version != BROKEN else (*DEPENDS, "plumbline-nobody-has-this"),
        files={
            "/usr/bin/enroot": PROGRAM.format(version=version),
            "/usr/bin/enroot-nsenter": NSENTER,
            "/etc/enroot/enroot.conf": "#ENROOT_SQUASH_OPTIONS -comp lzo -noD\n",
            "/etc/enroot/enroot.conf.d/README": "Drop-ins of enroot.conf\n",
            "/etc/enroot/hooks.d/98-nvidia.sh": "#!/bin/bash\n",
            "/etc/apparmor.d/enroot": PROFILE,
            "/usr/share/enroot/padding": random.Random(version).randbytes(200_000),
            **{f"/usr/share/enroot/hooks.d/{name}.sh": "#!/bin/bash\n" for name in hooks},
        },
    )


def caps(version: str, architecture: str) -> Deb:
    needs = (f"enroot (= {version}-1)", "libcap2-bin")
    return Deb("enroot+caps", f"{version}-1", architecture, depends=needs)


def main() -> None:
    mirror = Mirror(Path(sys.argv[1]))
    sha256 = {}
    for version in (OLD, NEW, BROKEN):
        for architecture in ("amd64", "arm64"):
            for package in (enroot(version, architecture), caps(version, architecture)):
                key = f"{version}-{architecture}-{package.name}"
                sha256[key] = mirror.deb(f"v{version}/{package.filename}", package)
    mirror.file("sha256.json", json.dumps(sha256))


if __name__ == "__main__":
    main()
