"""A stand-in for a release of Slurm: a tarball with packaging that is laid out as SchedMD's.

It is built by debhelper, as the real one, and compiles one file. Its programs print their version.
"""

from __future__ import annotations

import hashlib
import io
import sys
import tarfile
from pathlib import Path

# How configure is called is what the role changes; the tab and the words are as upstream's.
RULES = """\
#!/usr/bin/make -f

%:
\tdh $@

override_dh_update_autotools_config:

override_dh_autoreconf:

override_dh_auto_configure:
\tdh_auto_configure -- --sysconfdir=/etc/slurm --with-pmix SUCMD=/bin/su

override_dh_auto_install:
\tdh_auto_install
\ttest -n "$(DEB_BUILD_GNU_TYPE)"
"""
CONTROL = """\
Source: slurm-smd
Section: admin
Priority: optional
Maintainer: Plumbline's tests <tests@localhost>
Build-Depends: debhelper (>= 12)

Package: slurm-smd
Architecture: any
Depends: ${{shlibs:Depends}}, ${{misc:Depends}}
Conflicts: slurm-wlm-basic-plugins
Description: Stand-in for slurm-smd, made by a test

Package: slurm-smd-client
Architecture: any
Depends: slurm-smd (= ${{binary:Version}}), ${{misc:Depends}}
Conflicts: slurm-client
Description: Stand-in for slurm-smd-client, made by a test
"""
CHANGELOG = """\
slurm-smd ({version}-1) UNRELEASED; urgency=medium

  * A stand-in.

 -- Plumbline's tests <tests@localhost>  Thu, 01 Jan 2026 00:00:00 +0000
"""
# Long enough to be interrupted.
CONFIGURE = """\
#!/bin/sh
echo "$*" > configured
sleep 10
"""
MAKEFILE = """\
all: core.o
core.o: core.c
\t$(CC) -c core.c -o core.o
install:
\tinstall -d $(DESTDIR)/usr/bin $(DESTDIR)/usr/share/slurm-smd
\tinstall -m 755 sinfo $(DESTDIR)/usr/bin/sinfo
\tinstall -m 644 configured $(DESTDIR)/usr/share/slurm-smd/configured
clean distclean check:
"""


def files(version: str) -> dict[str, str]:
    return {
        "debian/rules": RULES,
        "debian/control": CONTROL.format(),
        "debian/changelog": CHANGELOG.format(version=version),
        "debian/compat": "12\n",
        "debian/slurm-smd.install": "usr/share/slurm-smd/configured\n",
        "debian/slurm-smd-client.install": "usr/bin/sinfo\n",
        "configure": CONFIGURE,
        "Makefile": MAKEFILE,
        "core.c": "int core(void) { return 0; }\n",
        "sinfo": f"#!/bin/sh\necho slurm {version}\n",
    }


def make(folder: Path, version: str) -> Path:
    """The tarball, and beside it a file with its SHA-256."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"slurm-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as packed:
        for name, content in files(version).items():
            member = tarfile.TarInfo(f"slurm-{version}/{name}")
            member.size = len(content.encode())
            member.mode = 0o755 if content.startswith("#!") else 0o644
            packed.addfile(member, io.BytesIO(content.encode()))
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_name(f"slurm-{version}.sha256").write_text(f"{sha256}\n")
    return path


if __name__ == "__main__":
    make(Path(sys.argv[1]), sys.argv[2])
