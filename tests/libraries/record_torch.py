"""What torch's build for CUDA answers on a machine without a GPU, asked of the real one.

    python -m tests.libraries.record_torch FOLDER --from WORDS [--write]

FOLDER is where `pip install --target` has put torch and NVIDIA's libraries; README.md tells how.
None of it is a test of a GPU: it is what torch, Triton and NCCL say where there is no driver, what
an import says where a library is missing, and what the validator's own readers make of it.
`--write` keeps it in torch.yml; without it the answers are printed.

A library is made to be missing by another name for a moment, so FOLDER is nobody else's meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import REPOSITORY
from tests.libraries import record
from tests.processes import run
from validation.payloads import nccl_debug

RECORDED = Path(__file__).with_name("torch.yml")
HEAD = """---
# yamllint disable rule:line-length
# Made by tests/libraries/record_torch.py. Errors and lines of logs are as long as they are.
"""

# Libraries of the wheels that torch loads when it is imported.
MISSING = ("libcublas.so", "libcublasLt.so", "libcudnn.so", "libnccl.so", "libnvrtc.so")

ANSWERS = """
import json, sys
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

def asked(what):
    try:
        return {"answer": what()}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}

@triton.jit
def twice(x, y, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(y + i, tl.load(x + i) * 2)

def compiled():
    source = ASTSource(
        fn=twice, signature={"x": "*fp32", "y": "*fp32", "n": "constexpr"}, constexprs={"n": 128}
    )
    return "cubin" in triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm

def group():
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("nccl", store=store, rank=0, world_size=1)

def missing_triton():
    raise torch._inductor.exc.TritonMissing(None)

import torch._inductor.exc
questions = {
    "is_available": torch.cuda.is_available,
    "device_count": torch.cuda.device_count,
    "nccl_version": torch.cuda.nccl.version,
    "init": torch.cuda.init,
    "tensor": lambda: torch.zeros(1, device="cuda"),
    "spin": lambda: torch.cuda._sleep(1000),
    "graph": torch.cuda.CUDAGraph,
    "nccl group": group,
    "triton compiles for sm_90": compiled,
    "triton launches": lambda: twice[(1,)](torch.zeros(128), torch.zeros(128), 128),
    "triton is missing": missing_triton,
}
versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "triton": triton.__version__}
answers = {name: asked(question) for name, question in questions.items()}
print(json.dumps({"versions": versions, "answers": answers}))
"""

# What the validator's own programs say with this torch.
READERS = """
import json
from cluster.errors import CannotRun
from validation.payloads import gpu_worker, group, node

said = []
start = json.dumps({"do": "start", "device": "cuda"})
gpu_worker.serve(gpu_worker.Worker(lambda: None), iter([start]), said.append)
try:
    group._distributed("nccl")
    rank = group._device("nccl", 0)
except CannotRun as error:
    rank = str(error)
print(json.dumps({"worker": said[0]["error"], "rank": rank, "node": node._torch()[1]}))
"""


def _asked(program: str, folder: Path) -> Any:
    """What a program prints with this torch, which has an environment of its own: the validator
    starts Python without what variables add to its path.
    """
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        venv.create(home / "venv")
        (packages,) = (home / "venv").glob("lib/python*/site-packages")
        (packages / "recorded.pth").write_text(f"{folder}\n{REPOSITORY}\n", encoding="utf-8")
        file = home / "program.py"  # Triton reads the source of what it compiles
        file.write_text(program, encoding="utf-8")
        environment = {"PATH": os.environ["PATH"], "TRITON_CACHE_DIR": place}
        answer = run(home / "venv" / "bin" / "python", "-I", file, cwd=place, env=environment)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout.splitlines()[-1])


@contextmanager
def _away(path: Path) -> Iterator[None]:
    hidden = path.with_name(f"{path.name}.away")
    path.rename(hidden)
    try:
        yield
    finally:
        hidden.rename(path)


def _library(folder: Path, name: str) -> Path:
    (found,) = folder.glob(f"nvidia/*/lib/{name}.[0-9]*")
    return found


def without(folder: Path) -> dict[str, Any]:
    """What the readers say for each library that is missing."""
    said = {}
    for name in MISSING:
        library = _library(folder, name)
        with _away(library):
            said[library.name] = _asked(READERS, folder)
    return said


def own_log(library: Path) -> str:
    """What NCCL writes into the file that a rank asks for, with a rank's own settings."""
    environment: dict[str, str] = {"PATH": os.environ["PATH"], "NCCL_SOCKET_IFNAME": "lo"}
    path = nccl_debug.request(environment, diagnosed=True)
    run(sys.executable, "-c", record.COMMUNICATOR, library, env=environment)
    text = path.read_text(encoding="utf-8")
    path.unlink()
    path.parent.rmdir()
    return record.same(text)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="record_torch",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="where torch and its libraries are")
    parser.add_argument("--from", dest="origin", required=True, help="the packages, in words")
    parser.add_argument("--write", action="store_true", help="keep it in torch.yml")
    options = parser.parse_args()
    folder = options.folder.resolve()
    library = _library(folder, "libnccl.so")
    document: Mapping[str, Any] = {
        "recorded": datetime.now(UTC).date().isoformat(),
        "machine": "no GPU and no driver",
        "from": options.origin,
        **_asked(ANSWERS, folder),
        "readers": _asked(READERS, folder),
        "without": without(folder),
        "nccl": {**record.nccl(library), "file": own_log(library)},
    }
    text = yaml.dump(document, Dumper=record.Dumper, sort_keys=False, width=1000)
    if options.write:
        RECORDED.write_text(f"{HEAD}{text}", encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
