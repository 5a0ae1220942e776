"""Stand-ins: a package that is called apptainer, wheels with a library that tells a version."""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tests.standins.mirror import Deb, Mirror

LIBRARY = "int ncclGetVersion(int *version) { *version = %d; return 0; }\n"
METADATA = "Metadata-Version: 2.1\nName: nvidia-nccl-cu13\nVersion: 2.99.1\n"
WHEEL = "simple/nvidia-nccl-cu13/nvidia_nccl_cu13-2.99.1-py3-none-any.whl"


def wheel(code: int) -> bytes:
    """As NVIDIA's wheels are laid out."""
    with tempfile.TemporaryDirectory(prefix="plumbline-nccl-") as scratch:
        source, library = Path(scratch) / "nccl.c", Path(scratch) / "libnccl.so.2"
        source.write_text(LIBRARY % code, encoding="utf-8")
        argv = ["cc", "-shared", "-fPIC", "-o", str(library), str(source)]
        subprocess.run(argv, check=True, capture_output=True)
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("nvidia/nccl/include/nccl.h", "#define NCCL_MAJOR 2\n")
            archive.write(library, "nvidia/nccl/lib/libnccl.so.2")
            archive.writestr("nvidia_nccl_cu13-2.99.1.dist-info/METADATA", METADATA)
            archive.writestr("nvidia_nccl_cu13-2.99.1.dist-info/WHEEL", "Wheel-Version: 1.0\n")
    return packed.getvalue()


def fill(folder: Path) -> None:
    mirror = Mirror(folder)
    apptainer = Deb(
        "apptainer",
        "1.4.5",
        files={"/usr/bin/apptainer": "#!/bin/sh\necho apptainer version 1.4.5\n"},
    )
    mirror.file("apptainer.sha256", mirror.deb("apptainer_1.4.5_amd64.deb", apptainer))
    mirror.file("nccl.sha256", mirror.file(WHEEL, wheel(29901)))
    mirror.file(
        "simple/nvidia-nccl-cu13/index.html", f'<a href="{Path(WHEEL).name}">x</a>'.encode()
    )
    mirror.file("other.sha256", mirror.file("other.whl", wheel(29800)))


if __name__ == "__main__":
    fill(Path(sys.argv[1]))
