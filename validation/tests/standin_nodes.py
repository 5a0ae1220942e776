"""What a healthy node answers to each job of the suite `gpu`, for simulated runs."""

from typing import Any

from validation.model import Job
from validation.tests import (
    standin,
    standin_compute,
    standin_health,
    standin_host,
    standin_isolation,
)


def document(job: Job) -> dict[str, Any]:
    """Of one job; the GPUs are named as if the node were gpu1."""
    node = job.nodes[0]
    if job.payload == "host":
        measured: dict[str, Any] = standin_host.host(job.config, node.fabric)
    elif job.payload == "host_speed":
        measured = standin_host.host_speed(job.config)
    elif job.payload == "health":
        measured = standin_health.measured(node.gpus.count)
    elif job.payload == "isolation":
        measured = standin_isolation.measured(job.config, node.gpus.count)
    else:
        measured = standin_compute.document(job)["measured"]
    answer: dict[str, Any] = standin.of_node(job.payload, node.name, measured, job.config)
    return answer
