"""A site's inventory for tests: written to a folder, and read as `ansible-playbook` reads it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any, ClassVar

import yaml
from ansible import context
from ansible._internal._templating._jinja_bits import AnsibleEnvironment
from ansible.inventory.manager import InventoryManager
from ansible.module_utils.common.collections import ImmutableDict
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager

from cluster import contract
from playbooks.plugin_utils.cluster import WORKED_OUT, work_out
from playbooks.plugin_utils.judge import Judgement, judge
from playbooks.plugin_utils.site import Site, read_site
from playbooks.plugin_utils.variables import read_specs

REPOSITORY = Path(__file__).resolve().parents[2]

# Our roles, playbooks, and group_vars beside these.
OURS = (f"{REPOSITORY}/roles/", f"{REPOSITORY}/playbooks/")

# How an environment's templates are written: what `jinja2.lexer.get_lexer` asks for.
SYNTAX = (
    *("block_start_string", "block_end_string", "variable_start_string", "variable_end_string"),
    *("comment_start_string", "comment_end_string", "line_statement_prefix"),
    *("line_comment_prefix", "trim_blocks", "lstrip_blocks", "newline_sequence"),
    "keep_trailing_newline",
)

HARDWARE: dict[str, Any] = {
    "node_cpus": {"sockets": 1, "cores_per_socket": 8, "threads_per_core": 2},
    "node_memory_mb": 64000,
    "node_gpus": {"model": "h100_sxm", "count": 8},
    "fabric": "ib_ndr400",
    "nvidia_driver_branch": 580,
}


def hosts(**addresses: str) -> dict[str, Any]:
    """A group of hosts, by their addresses."""
    return {"hosts": {name: {"ansible_host": address} for name, address in addresses.items()}}


# Two GPU nodes, one login node, one host for the rest.
GOOD: dict[str, Any] = {
    "slurm_controller": hosts(ctl1="10.0.0.1"),
    "slurm_database": {"hosts": {"ctl1": {}}},
    "slurm_login": hosts(login1="10.0.0.2"),
    "slurm_compute": {
        "children": {"gpu_h100": hosts(gpu1="10.0.0.11", gpu2="10.0.0.12") | {"vars": HARDWARE}}
    },
}


def good() -> dict[str, Any]:
    """The children of slurm_cluster of an inventory that is refused nothing, to change."""
    return copy.deepcopy(GOOD)


def write(
    folder: Path,
    cluster: Mapping[str, Any],
    files: Mapping[str, Any] | None = None,
    **rest: Any,
) -> Path:
    """An inventory folder: the children of slurm_cluster, further files, further keys of `all`."""
    rest.setdefault("children", {})
    document = {
        "all": {**rest, "children": {"slurm_cluster": {"children": cluster}} | rest["children"]}
    }
    for name, content in {"hosts.yml": document, **(files or {})}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False)
        path.write_text(text)
    return folder


@cache
def ready() -> None:
    """Ansible's plugins can be found; asking twice is an error."""
    init_plugin_loader()
    _compile_once()


def _compile_once() -> None:
    """What a template compiles to is kept for all sites; values are given to it later.

    It depends on the text and on how the templates of an environment are written.
    """
    compile_ = AnsibleEnvironment.compile
    kept: dict[Any, CodeType] = {}

    def compiled(environment: AnsibleEnvironment, source: Any, **options: Any) -> Any:
        if not isinstance(source, str):
            return compile_(environment, source, **options)
        syntax = tuple(getattr(environment, name) for name in SYNTAX)
        key = (str(source), syntax, *sorted(options.items()))
        if key not in kept:
            kept[key] = compile_(environment, source, **options)
        return kept[key]

    setattr(AnsibleEnvironment, "compile", compiled)  # noqa: B010 - mypy refuses another method


class OursOnce(DataLoader):
    """Ansible's reader of files; ours, which no test changes, are read once for all sites."""

    _ours: ClassVar[dict[tuple[str, bool], Any]] = {}

    def load_from_file(
        self,
        file_name: str,
        cache: str = "all",
        unsafe: bool = False,
        json_only: bool = False,
        trusted_as_template: bool = False,
    ) -> Any:
        if not (unsafe and file_name.startswith(OURS)):
            return super().load_from_file(file_name, cache, unsafe, json_only, trusted_as_template)
        key = (file_name, trusted_as_template)
        if key not in self._ours:
            self._ours[key] = super().load_from_file(
                file_name, cache, unsafe, json_only, trusted_as_template
            )
        return self._ours[key]


@cache
def our_specs() -> dict[str, dict[str, Any]]:
    return read_specs(REPOSITORY / "roles")


def site(*sources: Path, extra: Mapping[str, Any] | None = None) -> Site:
    """What preflight reads of some inventory sources, without a process of its own."""
    ready()
    paths = [str(source) for source in sources]
    arguments = [f"{name}={value}" for name, value in (extra or {}).items()]
    context.CLIARGS = ImmutableDict(inventory=paths, extra_vars=tuple(arguments))
    loader = OursOnce()
    loader.set_basedir(str(REPOSITORY / "playbooks"))
    inventory = InventoryManager(loader=loader, sources=paths)
    variables = VariableManager(loader=loader, inventory=inventory)
    return read_site(HostVars(inventory, variables, loader))


def worked_out(*sources: Path) -> tuple[Site, Any]:
    """A site as preflight leaves it to the roles, and the cluster that it declares."""
    inventory = site(*sources)
    cluster, refusals = work_out(inventory, contract.load())
    assert refusals == []
    plain = {"cluster": cluster.plain()}
    for raw in inventory.values.hosts.values():
        raw[WORKED_OUT] = plain
    return inventory, cluster


def judged(*sources: Path, roles: Path | None = None, playbook: Path | None = None) -> Judgement:
    """Preflight's judgement of some inventory sources, with the roles that we ship."""
    folder = roles or REPOSITORY / "roles"
    return judge(
        site(*sources),
        contract.load(),
        read_specs(roles) if roles else our_specs(),
        folder=folder,
        playbook=playbook or REPOSITORY / "playbooks" / "slurm-cluster.yml",
    )
