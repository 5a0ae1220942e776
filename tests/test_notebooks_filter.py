"""Kernels out of declared modules are kernels that the role notebook_runtime takes."""

from __future__ import annotations

from playbooks.filter_plugins.notebooks import (
    containers_of_images,
    kernels_of_modules,
    libraries_as_modules,
)
from roles.notebook_runtime.filter_plugins.notebook_runtime import kernel_problems

MODULES = [
    {"name": "PyTorch", "version": "2.13.0", "kind": "venv", "description": "PyTorch with CUDA"},
    {"name": "tools/jax", "version": "0.8+cu13", "kind": "venv", "description": "JAX"},
    {"name": "openmpi", "version": "5.0.7", "kind": "folder", "description": "Open MPI"},
]


def test_each_virtual_environment_is_a_kernel() -> None:
    found = kernels_of_modules(MODULES)
    assert [each["name"] for each in found] == ["pytorch-2.13.0", "tools-jax-0.8-cu13"]
    assert found[0] == {
        "name": "pytorch-2.13.0",
        "description": "PyTorch with CUDA (PyTorch/2.13.0)",
        "modules": ["PyTorch/2.13.0"],
    }
    assert kernel_problems(found) == []


def test_a_library_is_a_kernel_too_until_it_is_removed() -> None:
    published = [
        {"name": "pytorch", "version": "2026.11", "description": "PyTorch and Lightning"},
        {"name": "pytorch", "version": "2025.02", "state": "absent"},
    ]
    (kernel,) = kernels_of_modules(libraries_as_modules(published))
    assert kernel["description"] == "PyTorch and Lightning (pytorch/2026.11)"
    assert kernel_problems([kernel]) == []


def test_each_image_that_is_published_is_offered() -> None:
    images = [
        {"name": "pytorch", "image": "nvcr.io#nvidia/pytorch:25.06-py3"},
        {"name": "debian", "image": "localhost:5000#debian"},
        {"name": "old", "image": "old:1", "state": "absent"},
    ]
    assert containers_of_images(images, "/shared/images") == [
        {"name": "pytorch:25.06-py3", "image": "/shared/images/pytorch/25.06-py3.sqsh"},
        {"name": "debian:latest", "image": "/shared/images/debian/latest.sqsh"},
    ]
    assert containers_of_images(images, "") == []
