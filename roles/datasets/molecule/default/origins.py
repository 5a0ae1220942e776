"""Real data sets for the scenario: where pip and APT find them today, with the hashes they give.

vega_datasets is a package of tables (BSD-3-Clause); its 0.8.0 is fetched as a source archive, its
0.9.0 as a wheel, which is a zip. miscfiles is a Debian package, published as the file that it is.

    origins.py DEBIAN     DEBIAN is what `apt-get download --print-uris miscfiles` printed

prints the list for datasets_published.
"""

from __future__ import annotations

import json
import subprocess
import sys

KINDS = {"0.8.0": "--no-binary=:all:", "0.9.0": "--only-binary=:all:"}
ASK = ("--dry-run", "--quiet", "--no-deps", "--ignore-installed", "--no-build-isolation")
WORDS = {
    "description": "Tables that examples of Vega use.",
    "source": "https://github.com/altair-viz/vega_datasets",
    "licence": "BSD-3-Clause",
}


def of_pip(version: str) -> dict[str, str]:
    """Address and hash of one file of the package index."""
    options = [*ASK, KINDS[version], "--report=-", f"vega_datasets=={version}"]
    command = [sys.executable, "-m", "pip", "install", *options]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = json.loads(said)["install"][0]["download_info"]
    return {"url": found["url"], "sha256": found["archive_info"]["hashes"]["sha256"]}


def of_debian(printed: str) -> dict[str, str]:
    address, _, _, digest = printed.split()
    return {"url": address.strip("'"), "sha256": digest.removeprefix("SHA256:")}


def main() -> None:
    published = [
        {"name": "vega", "version": version, **WORDS, "files": [of_pip(version)]}
        for version in KINDS
    ]
    published[1]["files"][0]["archive"] = "zip"
    words = {"description": "Lists of words and codes.", "source": "https://packages.debian.org"}
    published.append(
        {
            **{"name": "miscfiles", "version": "1", "licence": "GPL-2.0-or-later"},
            **{"files": [of_debian(sys.argv[1])], "readers": "researchers", **words},
        }
    )
    json.dump(published, sys.stdout, indent=1)


main()
