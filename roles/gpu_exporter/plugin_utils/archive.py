"""Our own exporter as one file: what of the checkout it needs, and nothing else."""

from __future__ import annotations

from pathlib import Path

from playbooks.plugin_utils import packed

MAIN = """\
import sys

from validation.exporters.gpu.main import main

sys.exit(main(sys.argv[1:]))
"""

# XIDs are judged by the validator's rules, and only those of its checks come along.
CHECKS = '"""The rules that the exporter shares with the validator."""\n'
LIST = "validation/checks/__init__.py"

MODULES = (
    "__init__.py",
    "errors.py",
    "model.py",
    "node_states.py",
    "nodelist.py",
    "reasons.py",
    "strict.py",
    "xids.yml",
    "checks/document.py",
    "checks/health.py",
    "checks/xid.py",
    "checks/xids.py",
    "exporters/__init__.py",
    "exporters/xid.py",
    "payloads/__init__.py",
    "payloads/errors.py",
    "payloads/kernel_log.py",
    "payloads/nvml.py",
    "payloads/rendezvous.py",
)
FOLDERS = ("exporters/gpu", "thresholds")
PACKAGES = ("PyYAML", "nvidia-ml-py")


def wanted(place: Path) -> bool:
    inside = place.relative_to("validation")
    return inside.as_posix() in MODULES or (
        inside.suffix == ".py" and inside.parent.as_posix() in FOLDERS
    )


def content() -> bytes:
    """The archive; the same checkout gives the same bytes. Raises packed.NotPackable."""
    own = {**packed.own("validation", wanted), LIST: CHECKS.encode()}
    return packed.pack(MAIN, own, packed.installed(PACKAGES))
