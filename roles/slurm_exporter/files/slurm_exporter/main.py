"""plumbline-slurm-exporter: what Slurm's controller knows, and what jobs use, for Prometheus.

    plumbline-slurm-exporter           the daemon: one file, anew every interval
    plumbline-slurm-exporter --once    one round on standard output, for a look

Exit status: 0 it was ended, or every collector went well; 1 one of them failed; 2 it has no
configuration that can be used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from cluster.exporter import Collector, Exporter, Failed, Once, command
from roles.slurm_exporter.files.slurm_exporter import (
    cgroups,
    commands,
    diagnostics,
    jobs,
    nodes,
    series,
    shares,
    turn,
    usage,
)
from roles.slurm_exporter.files.slurm_exporter.config import FILE, ExporterSettings, read
from roles.slurm_exporter.files.slurm_exporter.history import command as history_command
from roles.slurm_exporter.files.slurm_exporter.history.collect import History
from roles.slurm_exporter.files.slurm_exporter.history.xids import Xids
from roles.slurm_exporter.files.slurm_exporter.outcomes import Outcomes

# Of the series about itself. Rules take slurm for the one that tells of the cluster.
NAME, OF_JOBS = "slurm", "jobs"
HISTORY = "history"  # before the words of node-history
# scontrol and sdiag of 22.05 have no JSON; until 24.11 it was another document in each version.
_JSON = (24, 11)
_NATIVE_GPUS = (26, 5)

Run = Callable[[Sequence[str]], str]
Version = Callable[[], tuple[int, int]]


def collectors(
    config: ExporterSettings,
    run: Run,
    version: Version,
    history: History,
    ended: Outcomes,
    used: usage.Jobs,
    xids: Xids,
) -> list[Collector]:
    """Those of one round. What two of them need is asked once: nodes, statistics."""

    def asked_nodes() -> Sequence[nodes.SlurmNode]:
        if version() >= _JSON:
            return nodes.from_json(run(nodes.JSON))
        return nodes.from_text(run(nodes.TEXT))

    def asked_statistics() -> diagnostics.Diagnostics:
        if version() >= _JSON:
            return diagnostics.from_json(run(diagnostics.JSON))
        return diagnostics.from_text(run(diagnostics.TEXT))

    def native() -> series.Native:
        return series.Native(config.openmetrics, config.openmetrics and version() >= _NATIVE_GPUS)

    node_list, statistics = Once(asked_nodes), Once(asked_statistics)
    known = {
        "nodes": lambda: series.nodes(node_list(), native()),
        "partitions": lambda: series.partitions(node_list(), native()),
        "jobs": lambda: series.jobs(jobs.parse(run(jobs.COMMAND)), native(), config.per_job),
        "fairshare": lambda: series.fairshare(shares.parse(run(shares.COMMAND))),
        "scheduler": lambda: series.scheduler(statistics()),
        "rpcs": lambda: series.rpcs(statistics()),
        "history": lambda: history.round(node_list()),
        "outcomes": ended.collect,
        "usage": used.collect,
        "xids": xids.collect,
    }
    # The scheduler's names are all Slurm's own.
    left_out = {"scheduler"} if config.openmetrics else set()
    return [Collector(name, known[name]) for name in config.collectors if name not in left_out]


def exporter(config: ExporterSettings) -> Exporter:
    """Slurm's version is asked until it is known, then never again."""
    known: list[tuple[int, int]] = []

    def version() -> tuple[int, int]:
        if not known:
            known.append(commands.version(config.limit_s))
        return known[0]

    run = partial(commands.run, limit_s=config.limit_s)
    history = History(config.ledger, config.accounting, run)
    ended = Outcomes(run)
    used = usage.Jobs(cgroups.Host(), config.per_job)
    xids = Xids(config.ledger, config.prometheus)

    def due() -> list[Collector]:
        every = collectors(config, run, version, history, ended, used, xids)
        if not config.controller:
            return every
        # Jobs of this host are told by it, whoever is active.
        here = [collector for collector in every if collector.name == "usage"]
        try:
            mine = turn.active(run(turn.COMMAND), config.controller)
        except Failed as error:
            return [turn.collector(error), *here]
        return [turn.collector(mine), *(every if mine else here)]

    name = OF_JOBS if set(config.collectors) == {"usage"} else NAME
    return Exporter(name, config.file, due)


def main(arguments: Sequence[str]) -> int:
    if list(arguments[:1]) == [HISTORY]:
        return history_command.main(arguments[1:])
    return command(
        arguments,
        "plumbline-slurm-exporter",
        str(__doc__),
        read,
        lambda config, _: exporter(config),
        FILE,
    )
