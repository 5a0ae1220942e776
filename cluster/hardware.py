"""What an inventory says of a node's hardware, and what is wrong with it.

Pure functions; a problem is told without the host's name, because many hosts share it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster import mig as boards
from cluster.contract import Contract
from cluster.declaration import TRANSPORTS, VIRTUAL, rails_problem

TOPOLOGY = ("sockets", "cores_per_socket", "threads_per_core")
NO_GPU = "none"
UNSAID_FABRIC = "ethernet"
# Ethernet in other words; it is declared without a rate.
ETHERNET = re.compile(r"^(eth|tcp|lan)|[0-9]\s*g(b?e|bit)?$", re.IGNORECASE)
SERIES = {"rtx"}  # a word that many models begin with
# Modules with NVSwitch or NVLink to a CPU: their systems have an HCA for each GPU.
JOINED = re.compile(r"\w+_sxm|b[23]00|gb[23]00|gh200")
# The model becomes a word of slurm.conf and gres.conf.
MODEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
CPUS_EXAMPLE = "{sockets: 2, cores_per_socket: 32, threads_per_core: 2}"
GPUS_EXAMPLE = "{model: h100_sxm, count: 8} ({model: none, count: 0} declares a node without GPUs)"


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with one value: a sentence without its subject, and the kind of refusal."""

    sentence: str
    kind: str = ""


def _count(where: str, value: object, least: int) -> Iterator[Problem]:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        yield Problem(f"{where} is {value!r}; set it to a whole number of {least} or more.")


def _keys(
    where: str, value: object, keys: Sequence[str], example: str, may: Sequence[str] = ()
) -> Iterator[Problem]:
    if value is None:
        yield Problem(f"{where} is not set; set it for the node's group, as {example}.")
    elif not isinstance(value, Mapping):
        yield Problem(
            f"{where} is {value!r}; it must have the keys {', '.join(keys)}, as {example}."
        )
    else:
        written = [str(key) for key in value]
        unknown = [key for key in written if key not in (*keys, *may)]
        missing = [key for key in keys if key not in written]
        if unknown:
            near = difflib.get_close_matches(unknown[0], (*keys, *may), n=1)
            hint = f"did you mean {near[0]}?" if near else f"write it as {example}."
            many = "s" if len(unknown) > 1 else ""
            yield Problem(f"{where} has the unknown key{many} {', '.join(unknown)}; {hint}")
        elif missing:
            yield Problem(f"{where} has no {', '.join(missing)}; write it as {example}.")


def cpus_problems(value: Any, _contract: Contract) -> Iterator[Problem]:
    problems = list(_keys("node_cpus", value, TOPOLOGY, CPUS_EXAMPLE))
    yield from problems
    if not problems:
        for key in TOPOLOGY:
            yield from _count(f"node_cpus.{key}", value[key], 1)


def memory_problems(value: Any, _contract: Contract) -> Iterator[Problem]:
    if value is None:
        yield Problem("node_memory_mb is not set; set it for the node's group, in MiB.")
    else:
        yield from _count("node_memory_mb", value, 1)


def gpus_problems(value: Any, contract: Contract) -> Iterator[Problem]:
    may = ("mig", "nvml")
    problems = list(_keys("node_gpus", value, ("model", "count"), GPUS_EXAMPLE, may))
    yield from problems
    if problems:
        return
    if "nvml" in value and value["model"] != VIRTUAL:
        yield Problem(
            f"node_gpus.nvml is set for the model {value['model']}; leave it out: only virtual "
            "GPUs can have a stand-in for NVML."
        )
    elif not isinstance(value.get("nvml", False), bool):
        yield Problem(f"node_gpus.nvml is {value['nvml']!r}; set it to true, or leave it out.")
    counted = list(_count("node_gpus.count", value["count"], 0))
    yield from counted
    model = value["model"]
    if not isinstance(model, str) or not MODEL.fullmatch(model):
        shown = "is empty" if model in (None, "") else f"is {model!r}"
        quotes = ", in quotes" if isinstance(model, (int, float)) else ""
        yield Problem(
            f"node_gpus.model {shown}; set it to a name of letters, digits, dots, dashes and "
            f"underscores{quotes}, such as h100_sxm, or to none."
        )
    elif model == NO_GPU and not counted and value["count"] > 0:
        yield Problem(
            f"node_gpus has the model none and a count of {value['count']}; name the model, or set "
            "the count to 0."
        )
    elif known := models_meant(model, contract.gpu_models):
        yield Problem(
            f"node_gpus.model is {model!r}, of which no speed is known; did you mean "
            f"{' or '.join(known)}?",
            "model-case",
        )

    yield from _mig_problems(value)


def _mig_problems(gpus: Mapping[str, Any]) -> Iterator[Problem]:
    if "mig" not in gpus:
        return
    mig, example = gpus["mig"], "as {1g.10gb: 7}: profiles, and instances of each in every GPU"
    if not isinstance(mig, Mapping) or not mig:
        yield Problem(f"node_gpus.mig is {mig!r}; write it {example}, or leave it out.")
        return
    if not gpus["count"] or gpus["model"] in (NO_GPU, VIRTUAL):
        yield Problem("node_gpus.mig is set, and only real GPUs have instances; leave it out.")
        return
    strange = [name for name in mig if not boards.PROFILE.fullmatch(str(name))]
    for name in strange:
        yield Problem(f"node_gpus.mig has the profile {name!r}; write it {example}.")
    wrong = [problem for name in mig for problem in _count(f"node_gpus.mig.{name}", mig[name], 1)]
    yield from wrong
    if strange or wrong:
        return
    for sentence in boards.problems(str(gpus["model"]), mig):
        yield Problem(sentence)


def models_meant(model: str, known: Sequence[str]) -> list[str]:
    """The known models that a word stands for as a vendor or a person writes it.

    >>> models_meant("H100-SXM5-80GB", ["h100_pcie", "h100_sxm"])
    ['h100_sxm']
    >>> models_meant("h100", ["h100_pcie", "h100_sxm"])
    ['h100_pcie', 'h100_sxm']
    """
    if model in known:
        return []
    plain = re.sub(r"[^a-z0-9]", "", model.lower())
    words = set(re.split(r"[^a-z0-9]+", model.lower()))
    words |= {word.rstrip("0123456789") for word in words}  # SXM4, SXM5
    parts = {name: name.split("_") for name in known}
    return (
        [name for name in known if name.replace("_", "") == plain]
        or [name for name in known if words.issuperset(parts[name])]
        or [name for name in known if parts[name][0] in words and parts[name][0] not in SERIES]
    )


def needs_fabric(gpus: Mapping[str, Any]) -> bool:
    """Whether such nodes are built to be joined by more than the ethernet that is taken unsaid."""
    return bool(JOINED.fullmatch(str(gpus.get("model"))))


def fabric_problems(value: Any, contract: Contract) -> Iterator[Problem]:
    if value in (None, *contract.fabrics):
        return
    near = difflib.get_close_matches(str(value), contract.fabrics, n=1)
    if ETHERNET.search(str(value)):
        near = [UNSAID_FABRIC]
    hint = f"did you mean {near[0]}? " if near else ""
    yield Problem(
        f"fabric is {value!r}, which is none that we know; {hint}Known are "
        f"{', '.join(contract.fabrics)}.",
        "fabric-unknown",
    )


# What Slurm and the ranks' rendezvous set themselves.
_THEIRS = re.compile(
    r"SLURM\w*|MASTER_(ADDR|PORT)|(LOCAL_)?RANK|WORLD_SIZE|CUDA_VISIBLE_DEVICES|PATH"
)


def environment_problems(value: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with validation_environment, the variables of a node's payloads, a mapping."""
    for name, text in value.items():
        where = f"validation_environment.{name}"
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", str(name)):
            yield Problem(f"{where} is no name of an environment variable.")
        elif _THEIRS.fullmatch(str(name)):
            yield Problem(f"{where} is set by Slurm or by the payloads themselves; leave it out.")
        if isinstance(text, bool) or not isinstance(text, (str, int)) or "\n" in str(text):
            yield Problem(f"{where} is {text!r}; set it to a text of one line, in quotes.")


def shared_problems(value: Sequence[Any]) -> Iterator[Problem]:
    """What is wrong with validation_shared_filesystems, a list of texts."""
    for path in value:
        below = isinstance(path, str) and path.startswith("/") and path.strip("/")
        if isinstance(path, str) and not (below and path.isprintable()):
            yield Problem(
                f"validation_shared_filesystems has {path!r}; set it to absolute paths below the "
                "root, such as [/home]."
            )


def transports_problems(value: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with validation_transports, what NCCL must use on a node, a mapping."""
    for name, said in value.items():
        where = f"validation_transports.{name}"
        if name == "rails":
            if problem := rails_problem(said):
                yield Problem(f"{where}: {problem}.")
        elif name not in TRANSPORTS:
            yield Problem(f"{where} is no transport; known are {', '.join(TRANSPORTS)} and rails.")
        elif not isinstance(said, bool):
            yield Problem(f"{where} is {said!r}; set it to true or leave it out.")


JUDGES: Mapping[str, Callable[[Any, Contract], Iterator[Problem]]] = {
    "node_cpus": cpus_problems,
    "node_memory_mb": memory_problems,
    "node_gpus": gpus_problems,
    "fabric": fabric_problems,
}


def declared_node(name: str, address: str, hardware: Mapping[str, Any]) -> dict[str, Any]:
    """One compute node; its hardware has no problem."""
    return {
        "name": name,
        "address": address,
        "cpus": {key: int(hardware["node_cpus"][key]) for key in TOPOLOGY},
        "memory_mb": int(hardware["node_memory_mb"]),
        "gpus": {
            "model": str(hardware["node_gpus"]["model"]),
            "count": int(hardware["node_gpus"]["count"]),
            **({"nvml": True} if hardware["node_gpus"].get("nvml") else {}),
            **_mig(hardware["node_gpus"]),
        },
        "fabric": str(hardware.get("fabric") or UNSAID_FABRIC),
    }


def _mig(gpus: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    return {"mig": dict(gpus["mig"])} if gpus.get("mig") else {}
