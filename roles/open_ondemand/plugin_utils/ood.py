"""What Open OnDemand needs to know of a cluster: its cluster file, and an app with JupyterLab.

The format is that of Open OnDemand 3 and 4 (osc.github.io/ood-documentation, "Cluster Config Schema
v2" and "Interactive Apps"). Names in it are data of YAML; in scripts there are none of a user's.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from cluster.partitions import expanded
from cluster.slurm import gres

CLUSTERS = "etc/ood/config/clusters.d"
APP = "var/www/ood/apps/sys/plumbline_jupyter"
NO_GPU = "none"
HEAD = "Managed by Ansible; changes made here are lost."


def files(site: Mapping[str, Any]) -> dict[str, str]:
    """The files' texts by path from the root. `site` has the role's variables without its name.

    Raises cluster.partitions.PartitionError for a partition that names no node.
    """
    return {
        f"{CLUSTERS}/{site['cluster']}.yml": _yaml(_cluster(site)),
        f"{APP}/manifest.yml": _yaml(_manifest(site)),
        f"{APP}/form.yml": _yaml(_form(site)),
        f"{APP}/submit.yml.erb": SUBMIT,
        f"{APP}/template/before.sh.erb": BEFORE,
        f"{APP}/template/script.sh.erb": SCRIPT.replace("@PREFIX@", str(site["notebook_prefix"])),
        f"{APP}/view.html.erb": VIEW,
    }


def _yaml(document: object) -> str:
    plain = json.loads(json.dumps(document))  # Ansible's texts are no plain ones to PyYAML
    text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=1000)
    return f"# {HEAD}\n---\n{text}"


def _cluster(site: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {"title": site["title"]} | ({"url": site["url"]} if site["url"] else {})
    return {
        "v2": {
            "metadata": metadata,
            "login": {"host": site["login_host"]},
            "job": {
                "adapter": "slurm",
                "cluster": site["cluster"],
                "bin": "/usr/bin",
                "conf": site["conf"],
            },
            "batch_connect": {"basic": {"script_wrapper": "%s", "set_host": "host=$(hostname)"}},
        }
    }


def _manifest(site: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": "JupyterLab",
        "category": "Interactive Apps",
        "subcategory": "Servers",
        "role": "batch_connect",
        "description": f"JupyterLab in a job on {site['title']}, with the GPUs that you choose.\n",
    }


def _form(site: Mapping[str, Any]) -> dict[str, Any]:
    nodes = {node["name"]: node for node in site["nodes"]}
    partitions = expanded(site["partitions"], site["nodes"], site["groups"])
    partitions.sort(key=lambda each: (not each.get("default"), each["name"]))
    gpus = {each["name"]: _gpus(each, nodes) for each in partitions}
    most = max((number for of in gpus.values() for number in of.values()), default=0)
    cpus = max(_cpus(node) for node in site["nodes"])
    memory = max(int(node["memory_mb"]) for node in site["nodes"]) // 1024
    attributes = {
        "bc_queue": {
            "label": "Partition",
            "widget": "select",
            "options": [[each["name"], each["name"]] for each in partitions],
        },
        "gpu_type": {"label": "Type of GPU", "widget": "select", "options": list(_types(gpus))},
        "gpus": _field("GPUs", 0, most, min(1, most), "All of them on one node."),
        "cpus": _field("CPUs", 1, cpus, min(2, cpus)),
        "memory": _field("Memory in GiB", 1, memory, min(4, memory)),
        "bc_num_hours": _field("Hours", 1, 24 * 7, 2, "A shorter time starts sooner."),
        "bc_account": {"label": "Account", "help": "Leave it empty for your default account."},
    }
    return {
        "cluster": site["cluster"],
        "title": "JupyterLab",
        "description": "JupyterLab in a job of yours. It ends with the job.\n",
        "form": list(attributes),
        "attributes": attributes,
    }


def _gpus(partition: Mapping[str, Any], nodes: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """The most GPUs of each type that one node of the partition has."""
    most: Counter[str] = Counter()
    for name in partition["nodes"]:
        most |= Counter(gres.kinds(nodes[name]))  # the larger of both; a zero goes
    return dict(sorted(most.items()))


def _cpus(node: Mapping[str, Any]) -> int:
    cpus = node["cpus"]
    return int(cpus["sockets"] * cpus["cores_per_socket"] * cpus.get("threads_per_core", 1))


def _field(label: str, least: int, most: int, value: int, text: str = "") -> dict[str, Any]:
    known = {"label": label, "widget": "number_field", "min": least, "max": most, "value": value}
    return known | ({"help": text} if text else {})


def _types(gpus: Mapping[str, Mapping[str, int]]) -> Iterator[list[Any]]:
    """Choices of GPU types; one that a partition lacks is hidden there, and limits the number."""
    yield ["no GPU", NO_GPU, {"data-max-gpus": 0}]
    for kind in sorted({kind for of in gpus.values() for kind in of}):
        most = max(of.get(kind, 0) for of in gpus.values())
        lacking = [name for name in gpus if kind not in gpus[name]]
        hidden = {f"data-option-for-bc-queue-{name}": False for name in lacking}
        yield [f"{kind} (up to {most})", kind, {"data-max-gpus": most} | hidden]


SUBMIT = f"""\
<%# {HEAD} -%>
<%-
  number = Integer(gpus, 10) rescue 0
  kind = gpu_type.to_s[/\\A[A-Za-z0-9_.-]+\\z/]
-%>
---
batch_connect:
  template: "basic"
script:
  native:
    - "--nodes=1"
    - "--ntasks=1"
    - "--cpus-per-task=<%= cpus.to_i %>"
    - "--mem=<%= memory.to_i %>G"
  <%- if number > 0 && kind && kind != "{NO_GPU}" -%>
    - "--gres=gpu:<%= kind %>:<%= number %>"
  <%- end -%>
"""

BEFORE = f"""\
# {HEAD}
# Run in the job, before the server; the page gets host, port and password.
port=$(find_port)
password=$(create_passwd 32)
export port
umask 077
config=$PWD/jupyter_server_config.py
export config
cat >"$config" <<END
from jupyter_server.auth import passwd
c = get_config()
c.ServerApp.ip = "0.0.0.0"
c.ServerApp.port = $port
c.ServerApp.port_retries = 0
c.PasswordIdentityProvider.hashed_password = passwd("$password")
c.ServerApp.base_url = "/node/$host/$port/"
c.ServerApp.open_browser = False
END
"""

SCRIPT = f"""\
#!/usr/bin/env bash
# {HEAD}
prefix=@PREFIX@
export JUPYTER_PATH="$prefix/share/jupyter"
export JUPYTER_CONFIG_PATH="$prefix/etc"
cd "$HOME" || exit 1
exec "$prefix/env/bin/python" -m jupyterlab --config="$config"
"""

VIEW = f"""\
<%# {HEAD} -%>
<form action="/node/<%= host %>/<%= port %>/login" method="post" target="_blank">
  <input type="hidden" name="password" value="<%= password %>">
  <button class="btn btn-primary" type="submit">Connect to JupyterLab</button>
</form>
"""


def problems(site: Mapping[str, Any]) -> list[str]:
    """A sentence for each value that cannot work."""
    found = []
    if not site["login_host"]:
        found.append("open_ondemand_login_host is empty; set it to a login node's name.")
    name = str(site["cluster"])
    if not name.replace("-", "").replace("_", "").isalnum():
        found.append(f"open_ondemand_cluster is {name!r}; set it to letters, digits, - and _.")
    return found
