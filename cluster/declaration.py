"""What the cluster must be, as its inventory declares it.

The document is written on every login node (`/etc/plumbline/cluster.json`) and, on the control
node, by `playbooks/declaration.yml`. It is read strictly: a declaration that is not understood
would let a node pass by something else than what was declared.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cluster import mig, strict
from cluster.errors import DataError, UsageError
from cluster.slurm.gres import gres

INSTALLED = Path("/etc/plumbline/cluster.json")

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.@-]{0,254}")
_GRES = re.compile(r"gpu(:[A-Za-z0-9_.-]+)?:[1-9][0-9]*")  # one of a list


VIRTUAL = "virtual"

# What Plumbline's roles install and another cluster may do without, and what a report says then.
WITHOUT = {"dcgm": "DCGM", "munge": "MUNGE"}

# Values that `python -m validation.declare` may have to read off a node, or to assume.
DOUBTFUL = ("model", "mig", "fabric")


@dataclass(frozen=True, slots=True)
class Gpus:
    """GPUs a node must have. `virtual` ones are device nodes without a GPU behind them.

    nvml   of virtual ones: a stand-in for the driver's library answers for them
    mig    profiles and how many instances of each every GPU is cut into; none for whole GPUs
    gres   as Slurm has all of them, such as "gpu:half:16", where that is not by model or profile
    """

    model: str
    count: int
    nvml: bool = False
    mig: tuple[tuple[str, int], ...] = ()
    gres: str = ""

    @property
    def real(self) -> bool:
        return self.count > 0 and self.model != VIRTUAL

    @property
    def answer(self) -> bool:
        """Whether NVML must know them, whoever answers in its place."""
        return self.real or (self.nvml and self.count > 0)

    @property
    def profiles(self) -> dict[str, int]:
        """Instances of each profile on the whole node; none where the GPUs are whole."""
        return {profile: self.count * each for profile, each in self.mig}

    @property
    def devices(self) -> int:
        """What CUDA can use one by one: GPUs, or the instances they are cut into."""
        return sum(self.profiles.values()) if self.mig else self.count

    @property
    def instance_bytes(self) -> int | None:
        """A quarter of the smallest instance's memory: what a buffer may take of any of them."""
        gigabytes = [int(profile.partition(".")[2].removesuffix("gb")) for profile, _ in self.mig]
        return min(gigabytes) * 10**9 // 4 if gigabytes else None

    @property
    def request(self) -> str:
        """How Slurm is asked for all of them: "gpu:h100_sxm:8"; empty for none."""
        if not self.count:
            return ""
        kinds = self.profiles or {self.model: self.count}
        return self.gres or ",".join(f"gpu:{kind}:{count}" for kind, count in kinds.items())


@dataclass(frozen=True, slots=True)
class Transports:
    """What NCCL must use on a node, where a site says so.

    nvlink   between the GPUs of the node
    nvls     NVLink SHARP: NVSwitches that add up
    mnnvl    NVLink between nodes
    gdrdma   GPUDirect RDMA: network cards that read and write the GPUs' memory
    rails    how many ports of network cards at least
    cards    these cards or ports of them, as NCCL names them: "mlx5_0", "mlx5_0:1"
    """

    nvlink: bool = False
    nvls: bool = False
    mnnvl: bool = False
    gdrdma: bool = False
    rails: int = 0
    cards: tuple[str, ...] = ()

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> "Transports":
        """What validation_transports says, which has no problem; `rails` is a number or names."""
        rails = said.get("rails") or 0
        return cls(
            nvlink=bool(said.get("nvlink")),
            nvls=bool(said.get("nvls")),
            mnnvl=bool(said.get("mnnvl")),
            gdrdma=bool(said.get("gdrdma")),
            rails=rails if isinstance(rails, int) else 0,
            cards=() if isinstance(rails, int) else tuple(str(card) for card in rails),
        )

    @property
    def said(self) -> dict[str, Any]:
        """The same as `of` takes it; nothing where nothing is declared."""
        rails: int | list[str] = list(self.cards) or self.rails
        flags = {name: True for name in TRANSPORTS if getattr(self, name)}
        return flags | ({"rails": rails} if rails else {})


TRANSPORTS = ("nvlink", "nvls", "mnnvl", "gdrdma")
NO_TRANSPORTS = Transports()


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    cpus: int
    memory_mb: int
    gpus: Gpus
    fabric: str
    environment: tuple[tuple[str, str], ...] = ()  # of the payloads: name and value, by name
    shared_filesystems: tuple[str, ...] = ()  # absolute paths
    switch: str = ""  # the leaf switch it is at
    rack: str = ""
    without: tuple[str, ...] = ()  # software that it has not, of WITHOUT: its checks are skipped
    seen: tuple[str, ...] = ()  # what was read off a node and declared by nobody, of DOUBTFUL
    assumed: tuple[str, ...] = ()  # what was neither declared nor seen, of DOUBTFUL
    transports: Transports = NO_TRANSPORTS

    @property
    def hardware(self) -> str:
        """Which thresholds apply: the GPU's model, or `cpu` for a node without.

        Instances of MIG are hardware of their own: "h100_sxm-1g.10gb".
        """
        if not self.gpus.count:
            return "cpu"
        return "-".join((self.gpus.model, *(profile for profile, _ in self.gpus.mig)))


@dataclass(frozen=True, slots=True)
class Container:
    """What Slurm's plugin pyxis starts a payload in: an image, what is mounted, which Python."""

    image: str
    mounts: str | None
    python: str


@dataclass(frozen=True, slots=True)
class Partition:
    name: str
    nodes: tuple[str, ...]
    default: bool


@dataclass(frozen=True, slots=True)
class Submission:
    """How jobs are submitted at this site: what srun is told beside what a job needs."""

    account: str | None = None
    qos: str | None = None
    reservation: str | None = None
    constraint: str | None = None
    srun_options: tuple[str, ...] = ()
    container_image: str | None = None
    container_mounts: str | None = None
    container_python: str | None = None
    user: str | None = None  # of the login node; None is who comes there

    @property
    def container(self) -> Container | None:
        """What payloads run in. Raises UsageError for mounts or a Python of no image."""
        if self.container_image in (None, NO_CONTAINER):
            if self.container_image is None and (self.container_mounts or self.container_python):
                raise UsageError(
                    "container_mounts and container_python are of a container, and there is no "
                    "image: set container_image (--container-image) too"
                )
            return None
        python = self.container_python or "python3"
        return Container(str(self.container_image), self.container_mounts, python)

    @property
    def words(self) -> tuple[str, ...]:
        named = [
            f"--{name}={value}"
            for name in ("account", "qos", "reservation", "constraint")
            if (value := getattr(self, name)) is not None
        ]
        return (*named, *self.srun_options)

    def over(self, defaults: "Submission") -> "Submission":
        """These wishes, and the defaults where there is none."""
        return Submission(
            self.account or defaults.account,
            self.qos or defaults.qos,
            self.reservation or defaults.reservation,
            self.constraint or defaults.constraint,
            (*defaults.srun_options, *self.srun_options),
            self.container_image or defaults.container_image,
            self.container_mounts or defaults.container_mounts,
            self.container_python or defaults.container_python,
            self.user or defaults.user,
        )


NO_WISHES = Submission()
NO_CONTAINER = "none"  # on the command line, where the inventory names an image


def is_name(text: str) -> bool:
    """Whether a node, a partition or a cluster may be called so in a declaration."""
    return _NAME.fullmatch(text) is not None


# What the plan decides: a wish must not change what is asked about.
_OURS = (
    *(
        "job-name",
        "partition",
        "nodelist",
        "nodes",
        "ntasks",
        "ntasks-per-node",
        "gres",
        "exclusive",
    ),
    *("cpus-per-task", "mem", "cpu-bind", "time", "mpi", "input", "kill-on-bad-exit", "wait"),
    *("chdir", "output", "error", "label", "overlap", "jobid", "pty", "exclude", "multi-prog"),
)


# Of pyxis: what would change where payloads run, or what is left behind.
_OF_CONTAINERS = ("container-image", "container-mounts", "container-name", "container-save")


def option_problem(option: str) -> str:
    """Why srun may not be given this option; empty when it may."""
    name = option.removeprefix("--").partition("=")[0]
    if not option.startswith("--") or not name or not option.isprintable():
        return f"{option!r} is no option of the form --name or --name=value"
    if any(ours.startswith(name) for ours in _OURS):  # srun takes abbreviations
        return f"--{name} is decided by the plan"
    if any(of_them.startswith(name) for of_them in _OF_CONTAINERS):
        return f"--{name} is no option for all jobs: see container_image (--container-image)"
    return ""


def container_problem(name: str, value: str) -> str:
    """Why a word about the container cannot be meant so; empty when it can.

    `name` is image, mounts or python.
    """
    if not value or not value.isprintable() or any(c.isspace() for c in value):
        return f"expected a word without blanks, found {value!r}"
    if name == "image" and value.endswith((".sqsh", ".squashfs")) and not value.startswith("/"):
        return f"{value!r} is taken for an image of a registry: give the file's absolute path"
    if name == "mounts" and not all(map(_MOUNT.fullmatch, value.split(","))):
        return f"expected SOURCE:TARGET[:FLAGS],… with absolute paths, found {value!r}"
    return ""


_MOUNT = re.compile(r"/[^:]*(:/[^:]*(:[a-z+]+)?)?")


@dataclass(frozen=True, slots=True)
class Declaration:
    cluster: str
    login: tuple[str, ...]
    controller: tuple[str, ...]
    python: str
    partitions: tuple[Partition, ...]
    nodes: Mapping[str, Node]
    submission: Submission = NO_WISHES
    # Each switch that others are below, and these; the lowest are where nodes are.
    switches: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def submit_hosts(self) -> tuple[str, ...]:
        """Where jobs can be submitted from, the best place first."""
        return tuple(dict.fromkeys((*self.login, *self.controller)))


# --- writing it ----------------------------------------------------------------------------------


def document(
    nodes: Sequence[Mapping[str, Any]],
    *,
    cluster: str,
    controller: Sequence[str],
    login: Sequence[str],
    partitions: Sequence[Mapping[str, Any]],
    python: str,
    for_validation: Mapping[str, Mapping[str, Any]],
    switches: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """The document that `python -m validation.run` reads, of nodes as the inventory has them.

    Slurm counts logical CPUs, so does the document. `switches` are those above leaf switches.
    """
    return plain(
        Declaration(
            cluster,
            tuple(login),
            tuple(controller),
            python,
            tuple(
                Partition(
                    str(partition["name"]),
                    tuple(partition["nodes"]),
                    bool(partition.get("default")),
                )
                for partition in partitions
            ),
            {node["name"]: _node(node, for_validation.get(node["name"], {})) for node in nodes},
            switches={name: tuple(below) for name, below in (switches or {}).items()},
        )
    )


def _node(node: Mapping[str, Any], settings: Mapping[str, Any]) -> Node:
    """`settings` is what the inventory says of it for the validation: environment and so on."""
    gpus, cpus = node["gpus"], node["cpus"]
    return Node(
        node["name"],
        cpus["sockets"] * cpus["cores_per_socket"] * cpus["threads_per_core"],
        node["memory_mb"],
        Gpus(
            gpus["model"],
            gpus["count"],
            bool(gpus.get("nvml")),
            tuple((gpus.get("mig") or {}).items()),
            _site_gres(node),
        ),
        node["fabric"],
        tuple((str(name), str(text)) for name, text in settings.get("environment", {}).items()),
        tuple(str(path) for path in settings.get("shared_filesystems", [])),
        str(node.get("switch") or "").strip(),
        str(node.get("rack") or "").strip(),
        transports=Transports.of(settings.get("transports") or {}),
    )


def _site_gres(node: Mapping[str, Any]) -> str:
    """Its GPUs as Slurm has them, where a site says that itself (slurm_node_gres)."""
    words = gres(node).split(",") if node.get("gres") else []
    return ",".join(word for word in words if re.match(r"gpu(:|$)", word))


def plain(declaration: Declaration) -> dict[str, Any]:
    """A declaration as JSON has it; `parse` reads it."""
    wishes = {name: value for name, value in asdict(declaration.submission).items() if value}
    return {
        "schema": 1,
        "cluster": declaration.cluster,
        "controller": list(declaration.controller),
        "login": list(declaration.login),
        "python": declaration.python,
        "partitions": [
            {"name": partition.name, "nodes": list(partition.nodes), "default": partition.default}
            for partition in declaration.partitions
        ],
        "nodes": [_plain_node(node) for node in declaration.nodes.values()],
        **({"submission": wishes} if wishes else {}),
        **(
            {"switches": {name: list(below) for name, below in declaration.switches.items()}}
            if declaration.switches
            else {}
        ),
    }


def _plain_node(node: Node) -> dict[str, Any]:
    """What is not set is left out."""
    gpus = node.gpus
    return {
        "name": node.name,
        "cpus": node.cpus,
        "memory_mb": node.memory_mb,
        "gpus": {
            "model": gpus.model,
            "count": gpus.count,
            **({"nvml": True} if gpus.nvml else {}),
            **({"mig": dict(gpus.mig)} if gpus.mig else {}),
            **({"gres": gpus.gres} if gpus.gres else {}),
        },
        "fabric": node.fabric,
        **({"environment": dict(node.environment)} if node.environment else {}),
        **(
            {"shared_filesystems": list(node.shared_filesystems)} if node.shared_filesystems else {}
        ),
        **({"switch": node.switch} if node.switch else {}),
        **({"rack": node.rack} if node.rack else {}),
        **({"transports": said} if (said := node.transports.said) else {}),
        **{
            name: list(words)
            for name in ("without", "seen", "assumed")
            if (words := getattr(node, name))
        },
    }


# --- reading it ----------------------------------------------------------------------------------


def _name(value: Any, where: str, problems: strict.Problems) -> str | None:
    # Names go into command lines, files and Slurm's host lists: nothing that means more there.
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    problems.append(f"{where}: expected a name of letters, digits, '-', '_', '.', found {value!r}")
    return None


def _absolute(value: Any, where: str, problems: strict.Problems) -> str | None:
    if isinstance(value, str) and value.startswith("/") and value.isprintable():
        return value
    problems.append(f"{where}: expected an absolute path, found {value!r}")
    return None


def _user(value: Any, where: str, problems: strict.Problems) -> str | None:
    if isinstance(value, str) and _USER.fullmatch(value):
        return value
    problems.append(f"{where}: expected the name of an account, found {value!r}")
    return None


def _option(value: Any, where: str, problems: strict.Problems) -> str | None:
    problem = option_problem(value) if isinstance(value, str) else f"{value!r} is no text"
    if problem:
        problems.append(f"{where}: {problem}")
        return None
    return str(value)


def _of_container(name: str) -> strict.Reader:
    def read(value: Any, where: str, problems: strict.Problems) -> str | None:
        problem = (
            container_problem(name, value) if isinstance(value, str) else f"{value!r} is no text"
        )
        if problem:
            problems.append(f"{where}: {problem}")
            return None
        return str(value)

    return read


def rails_problem(value: Any) -> str:
    """Why these can be no rails; empty when they can: a number of ports, or cards by name."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return ""
    if isinstance(value, (list, tuple)) and value and all(map(_is_card, value)):
        return ""
    return f"expected a number above 0 or a list of cards such as [mlx5_0], found {value!r}"


def _is_card(value: Any) -> bool:
    return isinstance(value, str) and _CARD.fullmatch(value) is not None


_CARD = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*(:[1-9][0-9]?)?")


def _rails(value: Any, where: str, problems: strict.Problems) -> int | tuple[str, ...] | None:
    if problem := rails_problem(value):
        problems.append(f"{where}: {problem}")
        return None
    return value if isinstance(value, int) else tuple(value)


def _gres(value: Any, where: str, problems: strict.Problems) -> str | None:
    if isinstance(value, str) and all(map(_GRES.fullmatch, value.split(","))):
        return value
    problems.append(f"{where}: expected GRES such as gpu:h100_sxm:8, found {value!r}")
    return None


_SUBMISSION = strict.table(
    {},
    {
        "account": strict.text,
        "qos": strict.text,
        "reservation": strict.text,
        "constraint": strict.text,
        "user": _user,
        "srun_options": strict.list_of(_option),
        **{f"container_{name}": _of_container(name) for name in ("image", "mounts", "python")},
    },
)

_TRANSPORTS = strict.table(
    {},
    {
        **dict.fromkeys(TRANSPORTS, strict.flag),
        "rails": _rails,
    },
)

_READ = strict.table(
    {
        "schema": strict.one_of(1),
        "cluster": _name,
        "login": strict.list_of(_name),
        "controller": strict.list_of(_name),
        "python": _absolute,
        "partitions": strict.list_of(
            strict.table(
                {
                    "name": _name,
                    "nodes": strict.list_of(_name),
                    "default": strict.flag,
                }
            ),
            empty=False,
        ),
        "nodes": strict.list_of(
            strict.table(
                {
                    "name": _name,
                    "cpus": strict.whole(1),
                    "memory_mb": strict.whole(1),
                    "gpus": strict.table(
                        {"count": strict.whole(0)},
                        {
                            "model": strict.either(_name, None),
                            "nvml": strict.flag,
                            "mig": strict.map_of(strict.whole(1)),
                            "gres": _gres,
                        },
                    ),
                    "fabric": _name,
                },
                {
                    "environment": strict.map_of(strict.text),
                    "shared_filesystems": strict.list_of(_absolute),
                    "switch": strict.text,
                    "rack": strict.text,
                    "transports": _TRANSPORTS,
                    "without": strict.list_of(strict.one_of(*WITHOUT)),
                    "seen": strict.list_of(strict.one_of(*DOUBTFUL)),
                    "assumed": strict.list_of(strict.one_of(*DOUBTFUL)),
                },
            ),
            empty=False,
        ),
    },
    {
        "submission": _SUBMISSION,
        "switches": strict.map_of(strict.list_of(strict.text, empty=False)),
    },
)


def parse(value: Any, source: str) -> Declaration:
    """The declaration in a decoded JSON document. Raises DataError with every problem."""
    problems: strict.Problems = []
    read = _READ(value, "", problems)
    if problems:
        raise DataError(source, problems)
    names = [node["name"] for node in read["nodes"]]
    problems += [f"nodes: {name} is declared twice" for name in _twice(names)]
    partitions = tuple(
        Partition(item["name"], tuple(dict.fromkeys(item["nodes"])), item["default"])
        for item in read["partitions"]
    )
    problems += [
        f"partitions: {name} is declared twice" for name in _twice([p.name for p in partitions])
    ]
    if sum(partition.default for partition in partitions) > 1:
        problems.append("partitions: more than one is the default")
    for partition in partitions:
        problems += [
            f"partitions.{partition.name}: the node {name} is not declared"
            for name in partition.nodes
            if name not in names
        ]
    housed = {name for partition in partitions for name in partition.nodes}
    problems += [f"nodes: {name} is in no partition" for name in names if name not in housed]
    problems += [
        f"nodes.{node['name']}.gpus: {node['gpus']['count']} GPUs without a model"
        for node in read["nodes"]
        if node["gpus"]["count"] and not node["gpus"]["model"]
    ]
    problems += [
        f"nodes.{node['name']}.gpus.nvml: only virtual GPUs can have a stand-in for NVML"
        for node in read["nodes"]
        if node["gpus"]["nvml"] is not None and node["gpus"]["model"] != VIRTUAL
    ]
    problems += [
        f"nodes.{node['name']}.gpus.mig: {problem}"
        for node in read["nodes"]
        for problem in _mig_problems(node["gpus"])
    ]
    switches = read["switches"] or {}
    problems += _switch_problems(switches, read["nodes"])
    if not read["login"] and not read["controller"]:
        problems.append("login: neither a login nor a controller node is declared")
    if problems:
        raise DataError(source, problems)
    nodes = {
        item["name"]: Node(
            item["name"],
            item["cpus"],
            item["memory_mb"],
            Gpus(
                item["gpus"]["model"] or "none",
                item["gpus"]["count"],
                bool(item["gpus"]["nvml"]),
                tuple(sorted((item["gpus"]["mig"] or {}).items())),
                item["gpus"]["gres"] or "",
            ),
            item["fabric"],
            tuple(sorted((item["environment"] or {}).items())),
            tuple(dict.fromkeys(item["shared_filesystems"] or ())),
            item["switch"] or "",
            item["rack"] or "",
            without=tuple(dict.fromkeys(item["without"] or ())),
            seen=tuple(dict.fromkeys(item["seen"] or ())),
            assumed=tuple(dict.fromkeys(item["assumed"] or ())),
            transports=Transports.of(item["transports"] or {}),
        )
        for item in read["nodes"]
    }
    wishes = read["submission"] or {}
    submission = Submission(**{name: value for name, value in wishes.items() if value is not None})
    return Declaration(
        read["cluster"],
        read["login"],
        read["controller"],
        read["python"],
        partitions,
        nodes,
        submission,
        switches,
    )


def _mig_problems(gpus: Mapping[str, Any]) -> list[str]:
    if gpus["mig"] is None:
        return []
    if not gpus["count"] or gpus["model"] == VIRTUAL:
        return ["only real GPUs can be cut into instances"]
    wrong = [name for name in gpus["mig"] if not mig.PROFILE.fullmatch(name)]
    if wrong or not gpus["mig"]:
        return [f"expected profiles such as 1g.10gb, found {wrong or 'none'}"]
    return []


def _switch_problems(
    switches: Mapping[str, tuple[str, ...]], nodes: Sequence[Mapping[str, Any]]
) -> list[str]:
    leaves = {node[kind] for node in nodes for kind in ("switch", "rack")} - {None}
    below = [child for children in switches.values() for child in children]
    problems = [
        f"switches.{name}: nodes are at {name}; a switch has nodes or switches below it, not both"
        for name in switches
        if name in leaves
    ]
    problems += [f"switches: {name} is below two" for name in _twice(below)]
    problems += [
        f"switches.{name}: {child} is no other switch, and no node is there"
        for name, children in switches.items()
        for child in children
        if child not in switches and child not in leaves
    ]
    # Each is below one other at most: who is not below the top is in a circle.
    reached = [name for name in switches if name not in below]
    for name in reached:
        reached += [child for child in switches[name] if child in switches and not problems]
    problems += [
        f"switches.{name}: is below itself"
        for name in switches
        if name not in reached and not problems
    ]
    return problems


def load(path: Path) -> Declaration:
    """A declaration in a file: YAML where its name says so, else JSON."""
    yaml = path.suffix in (".yml", ".yaml")
    return parse(strict.load_yaml(path) if yaml else strict.load_json(path), str(path))


def _twice(names: list[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})
