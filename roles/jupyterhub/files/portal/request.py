"""What a user asks for in the form, and the options of sbatch that ask Slurm for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from roles.jupyterhub.files.portal.cluster_now import Cluster, Gpus, Partition


class Refused(Exception):
    """One sentence for the user: what cannot be had, and what to choose instead."""


@dataclass(frozen=True)
class Container:
    """An image that the form offers: its name there, and what --container-image gets."""

    name: str
    image: str


@dataclass(frozen=True)
class Site:
    """What the site allows notebooks, beside what Slurm does. Zero is no limit of the site's."""

    partitions: Sequence[str] = ()
    containers: Sequence[Container] = ()
    most_minutes: int = 0
    most_gpus: int = 0
    usual_minutes: int = 120
    usual_cpus: int = 2
    usual_memory_mib: int = 4096

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Site:
        """The site out of the document that the role writes."""
        known = dict(document)
        known["containers"] = tuple(Container(**each) for each in known.get("containers", ()))
        return cls(**known)

    def offered(self, cluster: Cluster) -> tuple[Partition, ...]:
        """The partitions that the form offers."""
        return tuple(
            each
            for each in cluster.partitions
            if not self.partitions or each.name in self.partitions
        )


@dataclass(frozen=True)
class Request:
    """A notebook as a user wants it."""

    partition: str
    gpu_type: str
    gpus: int
    cpus: int
    memory_mib: int
    minutes: int
    account: str = ""
    qos: str = ""
    container: str = ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The options of sbatch."""
        gpus = f"{self.gpu_type}:{self.gpus}" if self.gpu_type else str(self.gpus)
        return (
            f"--partition={self.partition}",
            "--nodes=1",
            "--ntasks=1",
            f"--cpus-per-task={self.cpus}",
            f"--mem={self.memory_mib}M",
            f"--time={self.minutes}",
            *([f"--gres=gpu:{gpus}"] if self.gpus else []),
            *([f"--account={self.account}"] if self.account else []),
            *([f"--qos={self.qos}"] if self.qos else []),
        )

    @property
    def options(self) -> dict[str, Any]:
        """As JupyterHub stores what a user chose."""
        return asdict(self)


def _number(fields: Mapping[str, str], name: str, what: str, usual: int) -> int:
    text = fields.get(name, "").strip()
    if not text:
        return usual
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise Refused(f"{what} is “{text[:40]}”; give a whole number.")
    return int(text)


def _duration(text: str, usual: int) -> int:
    """Minutes of `H:MM` or of a number of hours."""
    text = text.strip()
    if not text:
        return usual
    hours, colon, mins = text.partition(":")
    numbers = [hours, mins] if colon else [hours]
    if not all(part.isascii() and part.isdigit() and len(part) <= 4 for part in numbers):
        raise Refused(f"The time is “{text[:40]}”; give hours and minutes, such as 2:00.")
    return int(hours) * 60 + (int(mins) if colon else 0)


def _gpus(partition: Partition, kind: str, number: int) -> Gpus | None:
    if not number:
        return None
    names = ", ".join(each.type or "gpu" for each in partition.gpus)
    if not partition.gpus:
        raise Refused(
            f"The partition {partition.name} has no GPUs; choose 0 GPUs, or another partition."
        )
    found = next((each for each in partition.gpus if each.type == kind), None)
    if found is None and not kind and len(partition.gpus) == 1:
        found = partition.gpus[0]
    if found is None:
        raise Refused(
            f"The partition {partition.name} has no GPU of the type “{kind[:60]}”; it has: {names}."
        )
    if number > found.per_node:
        raise Refused(
            f"A notebook runs on one node, and no node of {partition.name} has more than "
            f"{found.per_node} GPUs of the type {found.type or 'gpu'}; you asked for {number}."
        )
    return found


def _limit(what: str, asked: int, limits: Sequence[tuple[int | None, str]], unit: str) -> None:
    for limit, whose in limits:
        if limit is not None and asked > limit:
            raise Refused(f"{whose} allows {limit} {unit}; you asked for {asked}. Choose {what}.")


def check(request: Request, cluster: Cluster, site: Site) -> Request:
    """The request, if the cluster as it is can ever grant it. Raises Refused with a sentence."""
    offered = {each.name: each for each in site.offered(cluster)}
    partition = offered.get(request.partition)
    if partition is None:
        names = ", ".join(offered) or "none"
        raise Refused(
            f"There is no partition “{request.partition[:60]}” for you; there are: {names}."
        )
    gpus = _gpus(partition, request.gpu_type, request.gpus)
    if cluster.associations and request.account not in ("", *cluster.accounts):
        names = ", ".join(cluster.accounts)
        raise Refused(f"You have no account “{request.account[:60]}”; you have: {names}.")
    account = request.account or cluster.default_account
    own = [
        each
        for each in cluster.associations
        if each.account == account and each.partition in ("", partition.name)
    ]
    allowed = {name for each in own for name in each.qos}
    if request.qos and request.qos not in allowed:
        raise Refused(
            f"The account {account} has no QOS “{request.qos[:60]}”; it has: "
            f"{', '.join(sorted(allowed)) or 'none'}."
        )
    qos = cluster.qos.get(request.qos or next((each.default_qos for each in own), ""))
    _limit(
        "a shorter time",
        request.minutes,
        [
            (partition.limit, f"The partition {partition.name}"),
            (site.most_minutes or None, "This site, for notebooks,"),
            *((each.limit, f"Your account {each.account}") for each in own),
            *([(qos.limit, f"The QOS {qos.name}")] if qos else []),
        ],
        "minutes",
    )
    _limit(
        "fewer GPUs",
        request.gpus,
        [
            (site.most_gpus or None, "This site, for notebooks,"),
            *((each.gpus, f"Your account {each.account}") for each in own),
            *([(qos.gpus, f"The QOS {qos.name}")] if qos else []),
        ],
        "GPUs",
    )
    _limit("fewer CPUs", request.cpus, [(partition.cpus_per_node, "The largest node")], "CPUs")
    _limit("less memory", request.memory_mib, [(partition.memory_mib, "The largest node")], "MiB")
    if not request.cpus or not request.minutes or not request.memory_mib:
        raise Refused("A notebook needs at least one CPU, some memory and one minute.")
    if request.container not in ("", *(each.name for each in site.containers)):
        raise Refused(f"There is no container image “{request.container[:60]}” in the list.")
    kind = gpus.type if gpus else ""
    return Request(**{**request.options, "gpu_type": kind})


def of_form(form: Mapping[str, Sequence[str]], cluster: Cluster, site: Site) -> Request:
    """The request out of the form's fields. Raises Refused with a sentence."""
    fields = {name: values[0].strip() for name, values in form.items() if values}
    offered = site.offered(cluster)
    if cluster.problems:
        raise Refused(" ".join(cluster.problems))
    name = fields.get("partition") or (offered[0].name if offered else "")
    gigabytes = fields.get("memory", "").strip()
    request = Request(
        partition=name,
        gpu_type=fields.get("gpu_type", ""),
        gpus=_number(fields, "gpus", "The number of GPUs", 0),
        cpus=_number(fields, "cpus", "The number of CPUs", site.usual_cpus),
        memory_mib=(
            _number(fields, "memory", "The memory in GiB", 0) * 1024
            if gigabytes
            else site.usual_memory_mib
        ),
        minutes=_duration(fields.get("time", ""), site.usual_minutes),
        account=fields.get("account", ""),
        qos=fields.get("qos", ""),
        container=fields.get("container", ""),
    )
    return check(request, cluster, site)
