"""Container images, as skopeo brings them from registries, and as a mirror answers for them.

An image lies below `v2/` under the paths by which a registry is asked, so that enroot and others
find it in the mirror as `MIRROR#REGISTRY/REPOSITORY` (image_reference.in_mirror). An image of
several architectures comes with those that the nodes have, under the digest that the registry has.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from playbooks.mirror.store import PARTS, MirrorError, Store
from playbooks.module_utils.image_reference import Reference, reference_of

# What the mirror itself answers for has this address in its manifest.
OWN: Final = "http://v2"
# As registries name architectures, which is how Go does.
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a registry has under a tag or a digest."""

    data: bytes

    @property
    def digest(self) -> str:
        return f"sha256:{hashlib.sha256(self.data).hexdigest()}"

    def document(self) -> dict[str, Any]:
        """Raises MirrorError."""
        try:
            return dict(json.loads(self.data))
        except (ValueError, TypeError) as error:
            raise MirrorError(f"a registry's answer is no manifest: {error}.") from None

    def of_architecture(self, architecture: str) -> str:
        """The digest of the image for it, in a list of images; "" where there is none."""
        for each in self.document()["manifests"]:
            platform = each.get("platform") or {}
            if (platform.get("os"), platform.get("architecture")) == ("linux", architecture):
                return str(each["digest"])
        return ""

    def blobs(self) -> list[str]:
        """The digests of the image's configuration and layers. Raises MirrorError."""
        document = self.document()
        try:
            return [str(part["digest"]) for part in (document["config"], *document["layers"])]
        except (KeyError, TypeError):
            raise MirrorError(
                "the registry's manifest names no configuration and layers."
            ) from None


def media_type(manifest: Path) -> str:
    """What a registry calls a manifest, which clients want to be told."""
    document = json.loads(manifest.read_text(encoding="utf-8"))
    of_oci = "index" if "manifests" in document else "manifest"
    return str(document.get("mediaType") or f"application/vnd.oci.image.{of_oci}.v1+json")


def collect(
    store: Store,
    machines: Iterable[str],
    wanted: Mapping[str, str],
    told: Callable[[str], None] = lambda _: None,
) -> None:
    """Brings images for `machines` (x86_64, aarch64); `wanted` has the declared digests, or "".

    Raises MirrorError.
    """
    architectures = sorted({ARCHITECTURES[machine] for machine in machines})
    for image, digest in sorted(wanted.items()):
        told(f"image {image}")
        try:
            _image(store, architectures, reference_of(image), digest)
        except MirrorError as error:
            raise MirrorError(f"{image}: {error}") from None
    if wanted:
        # Where a client asks whether this is a registry, and one without a login.
        store.put(f"{OWN}/index.html", b"")


def _image(store: Store, architectures: Sequence[str], reference: Reference, digest: str) -> None:
    source = _Source.of(reference, store)
    top = source.manifest(f":{reference.tag}")
    if digest and top.digest != digest:
        raise MirrorError(
            f"the registry has {top.digest}, and {digest} is declared; look at what changed, and "
            "declare the digest that you want, or none."
        )
    place = f"{OWN}/{reference.in_mirror}"
    if "manifests" in top.document():
        for architecture in architectures:
            of_one = top.of_architecture(architecture)
            if not of_one:
                raise MirrorError(f"the registry has none for {architecture}.")
            one = source.manifest(f"@{of_one}")
            _blobs(store, source, place, one)
            store.put(f"{place}/manifests/{one.digest}", one.data)
    else:
        _blobs(store, source, place, top)
    # Last, so that who finds the image finds all of it.
    store.put(f"{place}/manifests/{top.digest}", top.data)
    store.put(f"{place}/manifests/{reference.tag}", top.data)


def _blobs(store: Store, source: _Source, place: str, manifest: Manifest) -> None:
    urls = {digest: f"{place}/blobs/{digest}" for digest in manifest.blobs()}
    if all(store.keep(url, digest.removeprefix("sha256:")) for digest, url in urls.items()):
        return
    folder = store.folder / PARTS / manifest.digest.removeprefix("sha256:")
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was interrupted
    folder.mkdir(parents=True)
    source.copy(manifest.digest, folder)
    for digest, url in urls.items():
        name = digest.removeprefix("sha256:")
        if not store.keep(url, name):
            store.take(url, folder / name, name)
    shutil.rmtree(folder)


@dataclass(frozen=True, slots=True)
class _Source:
    """Where skopeo finds an image."""

    name: str  # docker://REGISTRY/REPOSITORY
    verified: bool  # by TLS

    @staticmethod
    def of(reference: Reference, store: Store) -> _Source:
        asked = store.asked_at(f"https://{reference.registry}/{reference.repository}")
        scheme, _, name = asked.partition("://")
        return _Source(f"docker://{name}", scheme == "https")

    def manifest(self, which: str) -> Manifest:
        options = [f"--tls-verify={str(self.verified).lower()}", f"--retry-times={_TRIES}"]
        return Manifest(_skopeo("inspect", "--raw", *options, f"{self.name}{which}"))

    def copy(self, digest: str, folder: Path) -> None:
        options = [f"--src-tls-verify={str(self.verified).lower()}", f"--retry-times={_TRIES}"]
        _skopeo("copy", "--quiet", *options, f"{self.name}@{digest}", f"dir:{folder}")


def _skopeo(*arguments: str) -> bytes:
    """Its standard output. Raises MirrorError with its last words."""
    try:
        done = subprocess.run(["skopeo", *arguments], capture_output=True, check=False)
    except FileNotFoundError:
        raise MirrorError(
            "skopeo, which brings container images, is not on this machine; install the package "
            "skopeo, or leave images out with --playbook playbooks/slurm-cluster.yml."
        ) from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
        words = said[-1].partition('msg="')[2].removesuffix('"') or said[-1]
        raise MirrorError(
            f"skopeo {arguments[0]} failed: {words.rstrip('.')}. If the registry wants a login, "
            "run `skopeo login` first."
        )
    return done.stdout
