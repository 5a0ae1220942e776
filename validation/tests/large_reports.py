"""Reports of large clusters, and what they cost.

    python -m validation.tests.large_reports --nodes 1024
    python -m validation.tests.large_reports --nodes 1024 --failing

A few nodes with eight GPUs walk through the tiers of the suite `gpu`, and many are made after them.
Each of the many has numbers of its own, drawn from a seed, so that nothing folds or is left out
that would not be on a real cluster. With --failing each node fails in four checks, in its own
numbers.
"""

import argparse
import random
import re
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from validation.execution.folder import RunFolder
from validation.model import (
    Job,
    JobReport,
    Metric,
    MungeReply,
    Outcome,
    Reply,
    Result,
    RunReport,
    Subject,
    Tier,
    node_reports,
    worst,
)
from validation.report import console
from validation.tests import (
    standin,
    standin_compute,
    standin_health,
    standin_host,
    standin_isolation,
)
from validation.tests.conftest import declare, plan_of
from validation.tests.fake_slurm import FakeSlurm
from validation.tests.sample_reports import report_of

MODEL, COUNT, FABRIC = "h100_sxm", 8, "ib_ndr400"
SHARED = ["/home", "/scratch"]
TEMPLATES = 4
NOISE = 0.01  # what alike nodes differ by, as a part of the number
MUNGE = MungeReply(None, 0, "Success (0)")

_DECIMAL = re.compile(r"\d+\.\d+|\b\d{3,}\b")


class GpuSlurm(FakeSlurm):
    """A Slurm whose nodes answer each job of the suite `gpu`.

    failing  products are slow on some GPUs, memory on others, and CPUs are missing
    """

    failing = False

    def _reply(self, job: Job) -> Any:
        host, count = job.hosts[0], job.nodes[0].gpus.count
        measured: dict[str, Any]
        match job.payload:
            case "node":
                config = {**job.config, "munge_credential": "x"}
                answer = standin.node(host, config, gpus=count, names=(standin.GPU,) * count)
                answer["measured"]["cpus"] -= self.failing
                return self._ended(job, answer)
            case "host":
                measured = standin_host.host(job.config, job.nodes[0].fabric)
            case "host_speed":
                measured = standin_host.host_speed(job.config)
            case "health":
                measured = standin_health.measured(count)
                for gpu in measured["gpus"]:
                    gpu["values"]["uuid"] = f"GPU-{host}-{gpu['index']}"
            case "isolation":
                measured = standin_isolation.measured(job.config, count)
            case "compute":
                measured = self._compute(job, host)
            case _:
                return super()._reply(job)
        return self._ended(job, standin.of_node(job.payload, host, measured, job.config))

    def _compute(self, job: Job, host: str) -> dict[str, Any]:
        measured: dict[str, Any] = standin_compute.document(job)["measured"]
        number = int(host.removeprefix("gpu"))
        for gpu in measured["gpus"]:
            index = gpu["index"]
            for row in (gpu["start"], gpu_link(measured, index, "before")):
                row["uuid"] = f"GPU-{host}-{index}"
            gpu_link(measured, index, "after")["uuid"] = f"GPU-{host}-{index}"
            if self.failing and index % (number + 1) == 0:
                for slow in (gpu["gemm"][0], gpu["memory"][0]):
                    slower(slow)
        return measured

    def _ended(self, job: Job, document: Mapping[str, Any]) -> Reply:
        now = document["measured"].get("time_ns", 10**18)
        text = standin.line(document)
        times = {"submitted_ns": now - 10**9, "started_ns": now, "ended_ns": now + 60 * 10**9}
        return Reply(
            job.name, Outcome.EXITED, 0, "4711", text, document_ns=now, munge=MUNGE, **times
        )


def gpu_link(measured: Mapping[str, Any], index: int, when: str) -> dict[str, Any]:
    values: dict[str, Any] = measured["links"]["gpus"][index][when]["values"]
    return values


def slower(row: dict[str, Any], factor: float = 2.0) -> None:
    """The same work in more time, consistently."""
    for name in [name for name in row if name.startswith("time_s") or name == "wall_s"]:
        row[name] *= factor
    for name in [name for name in ("tflops", "gbs") if name in row]:
        row[name] /= factor


def large(nodes: int, failing: bool = False, seed: int = 0) -> tuple[Any, RunReport]:
    """The plan of such a cluster, and a report of a run of it."""
    draw = random.Random(seed)
    few = _report(TEMPLATES, failing)
    plan = _plan(nodes)
    by_node: dict[str, list[Result]] = {}
    for result in few.results:
        by_node.setdefault(result.subject.name, []).append(result)
    jobs_of: dict[str, list[JobReport]] = {}
    for item in few.jobs:
        jobs_of.setdefault(item.job.subject.name, []).append(item)
    results: list[Result] = []
    jobs: list[JobReport] = []
    for number, node in enumerate(plan.nodes):
        template = few.nodes[number % TEMPLATES].node.name
        results += [_like(result, node.name, draw) for result in by_node[template]]
        for item in jobs_of[template]:
            name = item.job.name.replace(template, node.name)
            job = replace(item.job, name=name, subject=Subject.node(node.name), nodes=(node,))
            reply = item.reply and replace(item.reply, job=name, job_id=str(draw.randrange(10**6)))
            jobs.append(JobReport(job, reply))
    names = tuple(node.name for node in plan.nodes)
    for result in few.results:
        if result.tier is Tier.CLUSTER:
            subject = replace(result.subject, nodes=names if result.subject.nodes else ())
            results.append(replace(result, subject=subject))
    found = tuple(results)
    states = {node.name: "idle" for node in plan.nodes}
    report = replace(
        few,
        results=found,
        jobs=tuple(jobs),
        nodes=node_reports_of(plan, states, found),
        verdict=worst(result.verdict for result in found),
    )
    return plan, report


def node_reports_of(plan: Any, states: Mapping[str, str], results: tuple[Result, ...]) -> Any:
    """node_reports, node by node: each looks at all results that it is given."""
    mine: dict[str, list[Result]] = {}
    for result in results:
        for name in result.subject.nodes:
            mine.setdefault(name, []).append(result)
    return tuple(
        report
        for node in plan.nodes
        for report in node_reports([node], states, mine[node.name], plan.suite_checks)
    )


def _plan(nodes: int) -> Any:
    document = declare(*((f"gpu{number}", MODEL, COUNT, FABRIC) for number in range(1, nodes + 1)))
    for node in document["nodes"]:
        node["shared_filesystems"] = SHARED
    return plan_of(document, suite="gpu")


def _report(nodes: int, failing: bool) -> RunReport:
    slurm = GpuSlurm(_plan(nodes))
    slurm.failing = failing
    report: RunReport = report_of(slurm, suite="gpu")
    return report


def _like(result: Result, node: str, draw: random.Random) -> Result:
    """The result of another node, with numbers of its own."""
    proof = result.proof and replace(result.proof, hosts=(node,), job_id=str(draw.randrange(10**6)))
    return replace(
        result,
        subject=Subject.node(node),
        message=_DECIMAL.sub(lambda match: _apart(match[0], draw), result.message),
        value=result.value and _near(result.value, draw),
        metrics=tuple(_near(metric, draw) for metric in result.metrics),
        proof=proof,
        blamed=result.blamed and (node,),
    )


def _near(metric: Metric, draw: random.Random) -> Metric:
    if isinstance(metric.value, float):
        return replace(metric, value=metric.value * draw.gauss(1, NOISE))
    return metric


def _apart(number: str, draw: random.Random) -> str:
    return f"{float(number) * draw.gauss(1, NOISE):.4g}"


# --- what it costs ---------------------------------------------------------------------------


def measured(nodes: int, failing: bool) -> Iterator[str]:
    """Bytes of each file, lines of the terminal, seconds and memory, one line each."""
    plan, report = large(nodes, failing)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.process_time()
    with tempfile.TemporaryDirectory() as scratch:
        folder = RunFolder(Path(scratch) / "run")
        folder.prepare(plan)
        for result in report.results:
            folder.result(result)
        folder.finish(report)
        spent = time.process_time() - begin
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for path in sorted(folder.path.iterdir()):
            if path.is_file():
                yield f"{path.stat().st_size:12,} bytes  {path.name}"
    for width in (80, 120):
        lines = console.render(report, width=width).splitlines()
        yield f"{len(lines):12,} lines in a terminal of {width} columns"
    yield f"{spent:12.1f} CPU s to write all files"
    yield f"{(peak - before) / 1024:12.0f} MiB more memory at the peak, {peak / 1024:.0f} in all"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=1024, metavar="N")
    parser.add_argument("--failing", action="store_true", help="each node, in its own numbers")
    options = parser.parse_args()
    print("\n".join(measured(options.nodes, options.failing)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
