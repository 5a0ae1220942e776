"""What notebooks offer, out of the modules and images that a site declares."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def kernels_of_modules(modulefiles: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A kernel for each module that is a virtual environment of Python.

    >>> kernels_of_modules([{"name": "pytorch", "version": "2.13.0", "kind": "venv",
    ...                      "description": "PyTorch"}])[0]["modules"]
    ['pytorch/2.13.0']
    """
    return [
        {
            "name": re.sub(r"[^a-z0-9_.-]", "-", f"{each['name']}-{each['version']}".lower()),
            "description": f"{each['description']} ({each['name']}/{each['version']})",
            "modules": [f"{each['name']}/{each['version']}"],
        }
        for each in modulefiles
        if each.get("kind") == "venv"
    ]


def libraries_as_modules(published: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The libraries of the role user_libraries, as modules that are virtual environments.

    >>> libraries_as_modules([{"name": "pytorch", "version": "2026.11"}])
    [{'name': 'pytorch', 'version': '2026.11', 'kind': 'venv', 'description': 'Python'}]
    """
    return [
        {
            "name": str(each["name"]),
            "version": str(each["version"]),
            "kind": "venv",
            "description": str(each.get("description") or "Python"),
        }
        for each in published
        if each.get("state", "present") == "present"
    ]


def containers_of_images(images: Sequence[Mapping[str, Any]], root: str) -> list[dict[str, str]]:
    """The images of the role container_images, as the portal's form offers them.

    >>> containers_of_images([{"name": "pytorch", "image": "nvcr.io#nvidia/pytorch:25.06"}], "/s")
    [{'name': 'pytorch:25.06', 'image': '/s/pytorch/25.06.sqsh'}]
    """
    found = []
    for each in images:
        if each.get("state", "present") == "present" and root:
            last = re.split(r"[#/]", str(each["image"]))[-1].partition("@")[0]
            tag = last.partition(":")[2] or "latest"
            name = str(each["name"])
            found.append({"name": f"{name}:{tag}", "image": f"{root}/{name}/{tag}.sqsh"})
    return found


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "kernels_of_modules": kernels_of_modules,
            "libraries_as_modules": libraries_as_modules,
            "containers_of_images": containers_of_images,
        }
