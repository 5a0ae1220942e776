"""Which jobs have which GPU: the files that prolog and epilog keep, as dcgm-exporter reads them.

A file is named by the GPU, `3`, or by GPU and instance of MIG, `3.9`; each line is a job's id.
https://docs.nvidia.com/datacenter/dcgm/latest/installation/install-dcgm-exporter.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

NAME = re.compile(r"\d+(\.\d+)?")

JobsOfGpu = Mapping[str, tuple[str, ...]]


def read(folder: Path) -> JobsOfGpu:
    """Jobs by the name of the file. Nobody has a GPU where there is no folder: no job has run yet.

    Raises OSError where there is one that cannot be read.
    """
    try:
        files = [path for path in folder.iterdir() if NAME.fullmatch(path.name)]
    except FileNotFoundError:
        return {}
    jobs = {}
    for path in files:
        try:
            jobs[path.name] = tuple(path.read_text(encoding="ascii").split())
        except FileNotFoundError:  # its job ended meanwhile
            continue
    return jobs
