"""The job of a notebook: tells the portal where it listens, and becomes JupyterLab.

Keys and certificates come in the job's environment, because a cluster may have no shared
filesystem. They are written to a folder of the user's own on the node, and leave the environment.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import sys
import tempfile
import urllib.request
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

PREFIX = "PLUMBLINE_NOTEBOOK_"
# What JupyterHub's own code reads, by what the portal sends.
CERTIFICATES = {
    "KEYFILE": "JUPYTERHUB_SSL_KEYFILE",
    "CERTFILE": "JUPYTERHUB_SSL_CERTFILE",
    "CAFILE": "JUPYTERHUB_SSL_CLIENT_CA",
}
SECONDS = 30


def private_folder(environment: Mapping[str, str]) -> Path:
    """A folder on this node that only the user can read."""
    return Path(tempfile.mkdtemp(prefix="plumbline-notebook-", dir=environment.get("TMPDIR")))


def unpack(environment: MutableMapping[str, str], folder: Path) -> None:
    """Writes keys and certificates into the folder, and takes them out of the environment."""
    for name, variable in CERTIFICATES.items():
        text = environment.pop(PREFIX + name, "")
        if text:
            path = folder / name.lower()
            path.touch(mode=0o600)
            path.write_text(text, encoding="ascii")
            environment[variable] = str(path)


def free_port() -> int:
    """A port of this node that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def listening_at(url: str, port: int) -> str:
    """The address of the server, with this port.

    >>> listening_at("https://0.0.0.0:0/user/ada/", 4711)
    'https://0.0.0.0:4711/user/ada/'
    """
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{parts.hostname}:{port}"))


def tell(environment: Mapping[str, str], document: Mapping[str, object]) -> None:
    """Tells the hub. Raises OSError where it cannot be reached, or refuses."""
    request = urllib.request.Request(
        environment["JUPYTERHUB_API_URL"].rstrip("/") + "/plumbline-notebook",
        json.dumps(document).encode(),
        {
            "Authorization": f"token {environment['JUPYTERHUB_API_TOKEN']}",
            "Content-Type": "application/json",
        },
    )
    context = None
    if environment.get("JUPYTERHUB_SSL_CERTFILE"):
        context = ssl.create_default_context(cafile=environment["JUPYTERHUB_SSL_CLIENT_CA"])
        context.load_cert_chain(
            environment["JUPYTERHUB_SSL_CERTFILE"], environment["JUPYTERHUB_SSL_KEYFILE"]
        )
    # The hub is inside the cluster: no proxy of the site is in between.
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    opener.open(request, timeout=SECONDS).close()


def home_problem(home: str) -> str:
    """Why JupyterLab could not keep its settings here; empty if it can."""
    try:
        with tempfile.NamedTemporaryFile(dir=home, prefix=".plumbline-notebook-") as probe:
            probe.write(b"\0" * 65536)
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as problem:
        return (
            f"Nothing can be written to your home {home} on {socket.gethostname()} "
            f"({problem.strerror}). Remove files that you no longer need, or ask your operator."
        )
    return ""


def container_kernel(folder: Path, image: str, mounts: list[str]) -> None:
    """Describes a kernel that runs in the image which the form named."""
    place = folder / "share/jupyter/kernels/container"
    place.mkdir(parents=True)
    argv = [
        "srun",
        "--overlap",
        "--ntasks=1",
        "--quiet",
        f"--container-image={image}",
        f"--container-mounts={','.join(f'{path}:{path}' for path in mounts)}",
        "--no-container-entrypoint",
        "python",
        "-m",
        "ipykernel_launcher",
        "-f",
        "{connection_file}",
    ]
    spec = {
        "argv": argv,
        "display_name": "Python in the container",
        "language": "python",
        "interrupt_mode": "message",  # a signal would reach srun, which takes it for itself
    }
    (place / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")


def main() -> int:
    """Becomes JupyterLab; returns only if it cannot."""
    os.umask(0o077)
    environment = os.environ
    folder = private_folder(environment)
    try:
        unpack(environment, folder)
        if problem := home_problem(environment["HOME"]):
            tell(environment, {"problem": problem})
            raise SystemExit(f"plumbline-notebook: {problem}")
        image = environment.pop(f"{PREFIX}CONTAINER", "")
        if image:
            container_kernel(folder, image, [environment["HOME"], str(folder)])
            known = environment.get("JUPYTER_PATH", "")
            environment["JUPYTER_PATH"] = f"{folder / 'share/jupyter'}{':' if known else ''}{known}"
        port = free_port()
        environment["JUPYTERHUB_SERVICE_URL"] = listening_at(
            environment["JUPYTERHUB_SERVICE_URL"], port
        )
        # Connection files have the keys of kernels: they stay on this node.
        environment["JUPYTER_RUNTIME_DIR"] = str(folder / "runtime")
        environment["PLUMBLINE_NOTEBOOK_FOLDER"] = str(folder)
        tell(environment, {"port": port})
    except OSError as problem:
        shutil.rmtree(folder, ignore_errors=True)
        print(
            f"plumbline-notebook: the portal does not take what it is told: {problem}",
            file=sys.stderr,
        )
        return 1
    except SystemExit:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    os.execv(sys.executable, [sys.executable, "-m", "jupyterhub.singleuser"])


if __name__ == "__main__":
    sys.exit(main())
