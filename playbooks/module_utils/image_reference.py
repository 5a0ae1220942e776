"""Where a container image is: at its registry, and in a mirror (scripts/mirror).

Modules find it as ansible.module_utils.image_reference.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reference:
    """An image, with the names that registries have: Docker Hub's are filled in."""

    registry: str
    repository: str
    tag: str

    @property
    def in_mirror(self) -> str:
        """Its repository in a mirror, where enroot takes no colon: that begins a tag."""
        return f"{self.registry.replace(':', '_')}/{self.repository}"


def reference_of(image: str) -> Reference:
    """What REGISTRY#REPOSITORY:TAG means, as `--container-image` takes it.

    >>> reference_of("busybox:1.37")
    Reference(registry='docker.io', repository='library/busybox', tag='1.37')
    >>> reference_of("registry.example.org:5000#site/tool:1").in_mirror
    'registry.example.org_5000/site/tool'
    """
    registry, mark, rest = image.rpartition("#")
    repository, _, tag = rest.rpartition(":")
    if not mark:
        registry = "docker.io"
        repository = repository if "/" in repository else f"library/{repository}"
    return Reference(registry, repository, tag)


def in_mirror(image: str, mirror: str) -> str:
    """The image as enroot finds it in a mirror at http://HOST:PORT.

    >>> in_mirror("nvcr.io#nvidia/pytorch:25.06-py3", "http://192.0.2.1:8480")
    '192.0.2.1:8480#nvcr.io/nvidia/pytorch:25.06-py3'
    """
    reference = reference_of(image)
    host = mirror.partition("://")[2].rstrip("/")
    return f"{host}#{reference.in_mirror}:{reference.tag}"
