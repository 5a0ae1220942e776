"""plumbline-nccl-inspector: what NCCL tells of the jobs on this node, for Prometheus.

    plumbline-nccl-inspector           the daemon: one file, anew every interval
    plumbline-nccl-inspector --once    one round on standard output, for a look

Exit status: 0 it was ended, or every collector went well; 1 one of them failed; 2 it has no
configuration that can be used.
"""

from __future__ import annotations

from collections.abc import Sequence

from cluster.exporter import Collector, Exporter, Failed, Once, command, say
from roles.nccl_inspector.files.nccl_inspector import folders, sightings
from roles.nccl_inspector.files.nccl_inspector.actions import Action
from roles.nccl_inspector.files.nccl_inspector.config import FILE, InspectorSettings, read
from roles.nccl_inspector.files.nccl_inspector.folders import JobFolder
from roles.nccl_inspector.files.nccl_inspector.totals import Totals
from roles.nccl_inspector.files.nccl_inspector.watcher import Watcher

NAME = "nccl"


def exporter(config: InspectorSettings, looks: bool = False) -> Exporter:
    """`looks`: beside the daemon, from which nothing is taken away."""
    totals = Totals(config.series, keeps=looks)
    # plumbline_watch.py writes three times in a round; twice a round is late.
    sources: tuple[sightings.Source, ...] = (
        sightings.Ras(),
        sightings.Kept(2 * config.interval_s),
    )
    action = "observe" if looks else config.action
    watcher = Watcher(sources, config.polls, Action(action, config.mail_program), say)

    def jobs() -> Sequence[JobFolder]:
        try:
            return folders.of_jobs(config.folder)
        except OSError as error:
            raise Failed(f"{config.folder}: {error.strerror}") from None

    def collectors() -> list[Collector]:
        here = Once(jobs)
        found = [Collector("inspector", lambda: totals.families(here()))]
        if config.polls:
            found.append(Collector("watcher", lambda: watcher.families(here())))
        return found

    return Exporter(NAME, config.file, collectors)


def main(arguments: Sequence[str]) -> int:
    return command(arguments, "plumbline-nccl-inspector", str(__doc__), read, exporter, FILE)
