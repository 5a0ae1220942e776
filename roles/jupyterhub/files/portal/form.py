"""The form that starts a notebook."""

from __future__ import annotations

import json
from importlib import resources

from jinja2 import Environment

from roles.jupyterhub.files.portal.cluster_now import Cluster
from roles.jupyterhub.files.portal.request import Site


def data(cluster: Cluster, site: Site) -> dict[str, object]:
    """What the form's script needs to offer only what there is."""
    return {
        "partitions": [
            {
                "name": each.name,
                "nodes": len(each.nodes),
                "idle": each.idle_nodes,
                "cpus": each.cpus_per_node,
                "freeCpus": each.free_cpus,
                "memory": each.memory_mib // 1024,
                "limit": each.limit,
                "gpus": [
                    {
                        "type": gpus.type,
                        "perNode": min(gpus.per_node, site.most_gpus or gpus.per_node),
                        "free": gpus.free,
                        "total": gpus.total,
                        "freeOnOne": gpus.free_on_one,
                    }
                    for gpus in each.gpus
                ],
            }
            for each in site.offered(cluster)
        ],
        "accounts": {
            account: sorted(
                {
                    name
                    for each in cluster.associations
                    if each.account == account
                    for name in each.qos
                }
            )
            for account in cluster.accounts
        },
        "mostMinutes": site.most_minutes,
    }


def clock(minutes: int) -> str:
    """Minutes as hours and minutes.

    >>> clock(150)
    '2:30'
    """
    return f"{minutes // 60}:{minutes % 60:02d}"


def render(cluster: Cluster, site: Site, last: str = "") -> str:
    """The form as HTML. `last` is a sentence about the notebook before, if it did not end well.

    Names from Slurm and from the inventory are text here, whatever characters they have.
    """
    source = resources.files(__package__).joinpath("form.html.j2").read_text(encoding="utf-8")
    template = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(
        source
    )
    # `<` as \u003c: a name cannot end the script that it stands in.
    text = json.dumps(data(cluster, site)).replace("<", "\\u003c")
    return template.render(
        cluster=cluster,
        site=site,
        partitions=site.offered(cluster),
        data=text,
        last=last,
        clock=clock,
    )
