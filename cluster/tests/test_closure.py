"""What is packed is what is imported, neither less nor more."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cluster import closure
from playbooks.action_plugins import infiniband, nvml
from playbooks.plugin_utils import packed
from roles.gpu_exporter.plugin_utils import archive as gpu_exporter
from roles.job_report.plugin_utils import archive as job_report
from roles.node_health.plugin_utils import archive as node_health
from roles.slurm_exporter.plugin_utils import archive as slurm_exporter
from roles.user_examples.plugin_utils import archive as user_examples
from validation.slurm import job

# Programs, and what else their archives have.
ARCHIVES = {
    "node_health": ((node_health.MAIN,), node_health.PACKAGES),
    "gpu_exporter": ((gpu_exporter.MAIN,), gpu_exporter.PACKAGES),
    "slurm_exporter": ((slurm_exporter.MAIN,), slurm_exporter.PACKAGES),
    "job_report": ((job_report.MAIN,), ()),
    "user_examples": ((user_examples.MAIN,), ()),
    "nvml": ((nvml.MAIN,), ("nvidia-ml-py",)),
    "infiniband": ((infiniband.MAIN,), ()),
    "payloads": (job.PROGRAMS, ()),
}
# Where payloads find torch; what lies beside it without its .pth files, so the checkout does not.
LIBRARIES = {"payloads": (str(Path(pytest.__file__).parents[1]),)}
IMPORTS = re.compile(rf"\b(?:from|import) (?:{'|'.join(closure.OWN)})\.?\b[^\n;]*")

# Runs what the programs import, then what waits in functions of what came with that, and says which
# of the checkout's modules are there.
RUN = """\
import ast, importlib, json, sys
own = tuple(json.loads(sys.argv[2]))
sys.path.insert(0, sys.argv[1])
sys.path += sys.argv[4:]
for line in json.loads(sys.argv[3]):
    exec(line)
done = set()
def ours():
    return {name for name in sys.modules if name.split(".")[0] in own}
while ours() - done:
    for name in sorted(ours() - done):
        done.add(name)
        source = sys.modules[name].__loader__.get_source(name)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef):
                for part in ast.walk(node):
                    if isinstance(part, ast.ImportFrom) and part.module.split(".")[0] in own:
                        exec(ast.unparse(part))
print(json.dumps({name: sys.modules[name].__spec__.origin for name in ours()}))
"""


@pytest.mark.heavy("imports torch")
@pytest.mark.parametrize("name", ARCHIVES)
def test_what_is_packed_is_what_a_bare_python_imports(name: str, tmp_path: Path) -> None:
    """Isolated, as on a node: nothing of the checkout but the archive."""
    programs, packages = ARCHIVES[name]
    files = packed.own(*programs)
    file = tmp_path / "program.pyz"
    file.write_bytes(packed.pack("", files, packed.installed(packages)))
    lines = [line for text in programs for line in IMPORTS.findall(text)]
    assert lines
    done = subprocess.run(
        [
            *(sys.executable, "-I", "-S", "-c", RUN, file),
            *(json.dumps(closure.OWN), json.dumps(lines), *LIBRARIES.get(name, ())),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    origins = json.loads(done.stdout)
    assert all(str(origin).startswith(str(file)) for origin in origins.values())
    modules = {place.removesuffix(".py").removesuffix("/__init__") for place in files}
    assert {name.replace(".", "/") for name in origins} == modules


def tree(root: Path, files: dict[str, str]) -> Path:
    for place, text in files.items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_text(text)
    return root


def test_all_that_is_imported_comes_along(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "cluster/__init__.py": "",
            "cluster/a.py": "import json\nfrom cluster import b\nfrom cluster.c import NAME\n",
            "cluster/b.py": "def late():\n    import cluster.d\n",
            "cluster/c.py": (
                "from typing import TYPE_CHECKING\nNAME = 1\n"
                "if TYPE_CHECKING:\n    from cluster import types_only\n"
                "else:\n    from cluster import e\n"
            ),
            "cluster/d.py": "import yaml\n",
            "cluster/e.py": "",
            "cluster/types_only.py": "",
            "cluster/nobodys.py": "",
            "roles/some/files/some/main.py": "from cluster import e\n",
        },
    )
    sources = closure.files_of("from cluster.a import b", root=root)
    assert list(sources) == ["cluster/__init__.py", *(f"cluster/{name}.py" for name in "abcde")]
    assert sources["cluster/d.py"] == b"import yaml\n"
    sources = closure.files_of("import roles.some.files.some.main", root=root)
    folders = ("", "some/", "some/files/", "some/files/some/")
    assert list(sources) == sorted(
        [
            "cluster/__init__.py",
            "cluster/e.py",
            "roles/some/files/some/main.py",
            *(f"roles/{folder}__init__.py" for folder in folders),
        ]
    )
    with zipfile.ZipFile(io.BytesIO(packed.pack("", sources))) as archive:
        assert archive.read("roles/__init__.py") == b""


def test_what_is_missing_is_an_error(tmp_path: Path) -> None:
    root = tree(tmp_path, {"cluster/__init__.py": "", "cluster/a.py": "import cluster.gone\n"})
    for program in (
        "import cluster.a",
        "from cluster.gone import name",
        "from cluster import gone",
    ):
        with pytest.raises(ModuleNotFoundError, match=r"no module cluster\.gone"):
            closure.files_of(program, root=root)


def test_a_relative_import_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SyntaxError, match="line 1: imports of the checkout are absolute"):
        closure.files_of("from . import a", root=tmp_path)
