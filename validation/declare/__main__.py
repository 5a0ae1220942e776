"""Writes a declaration of a Slurm cluster that Plumbline did not build, to be read and corrected.

    python -m validation.declare --from-slurm            what Slurm says
    python -m validation.declare --from-slurm --look     and one short job on each kind of node

Start it on a login node. Nothing is changed there; without --look nothing is submitted. Exit code
0, or 2 where there is no Slurm, or no node that can be declared.
"""

import argparse
import logging
import secrets
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster import declaration, version
from cluster.declaration import Node, Submission
from cluster.errors import EnvironmentProblem, PlumblineError, UsageError
from cluster.files import write_whole
from cluster.hostlist import compress
from cluster.slurm import scontrol
from cluster.slurm.scontrol import SlurmConfig, SlurmNode, SlurmPartition
from cluster.text import printable
from validation import interrupts, terminal
from validation.checks.document import Unusable, read
from validation.declare import whole
from validation.declare.guess import UNSAID_FABRIC, request_of
from validation.declare.kinds import Kind, Look, Undeclarable, kinds, look_of
from validation.declare.text import render
from validation.errors import TransportError
from validation.model import EXIT_USAGE, Job, Reply, Subject, Tier
from validation.plan import AT_ONCE
from validation.slurm.client import PREPARE, CommandLineClient, last_line
from validation.transport import Transport
from validation.transport.here import Here

log = logging.getLogger(__name__)

OUTPUT = Path("declaration.yml")
PYTHON = "/usr/bin/python3"
_QUEUE_LIMIT_S = 120
_RUN_LIMIT_S = 180  # torch from a cold disk, NVML without persistence mode
_WISHES = ("account", "qos", "reservation", "constraint")


def main(arguments: Sequence[str] | None = None) -> int:
    terminal.prepare()
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="declare: %(message)s")
    with interrupts.caught():
        try:
            return _declare(options, Here())
        except Undeclarable as problem:
            terminal.say(f"declare: {problem}\n", sys.stderr)
        except PlumblineError as error:
            terminal.say(f"declare: {error}\n", sys.stderr)
        except KeyboardInterrupt:
            terminal.say("declare: interrupted, nothing was written\n", sys.stderr)
            return 1
    return EXIT_USAGE


def _declare(options: argparse.Namespace, transport: Transport) -> int:
    if not options.from_slurm:
        raise UsageError("give --from-slurm: there is no other source")
    to_stdout = str(options.output) == "-"
    if not to_stdout and options.output.exists():
        raise UsageError(f"{options.output} exists: remove it, or name another with --output")
    config, nodes, partitions = ask(transport)
    submission = Submission(**{name: getattr(options, name) for name in _WISHES})
    looks: Mapping[str, Look | str] = {}
    if options.look:
        usable, _ = whole.housed(nodes, partitions)
        looks = look(transport, kinds(usable), partitions, options, submission)
    login = socket.gethostname().partition(".")[0]
    result = whole.declare(config, nodes, partitions, looks, login, options.python, submission)
    # What cannot be read again would be found by the next run only.
    declaration.parse(declaration.plain(result.declaration), "the declaration")
    text = render(result, config.version, str(options.output))
    if to_stdout:
        terminal.say(text)
        return 0
    try:
        write_whole(options.output, text.encode())
    except OSError as error:
        raise EnvironmentProblem(f"{options.output} cannot be written: {error.strerror}") from error
    _tell(result, looks, options.output)
    return 0


def _tell(result: whole.Result, looks: Mapping[str, Look | str], file: Path) -> None:
    count = len(result.declaration.nodes)
    lines = [f"{file}: {count} nodes of {len(result.kinds)} kinds"]
    lines += [f"  left out: {sentence}" for sentence in result.left_out]
    lines += [
        f"  {node}: not looked at: {why}" for node, why in looks.items() if isinstance(why, str)
    ]
    lines += [f"  {note}" for note in whole.doubts(result.declaration.nodes.values())]
    lines += [
        "read it and correct it, then:",
        f"  python -m validation.run --here --declaration {file} --dry-run",
        f"  python -m validation.run --here --declaration {file}",
    ]
    terminal.say("".join(f"{printable(line) if line[0] != ' ' else line}\n" for line in lines))


# --- Slurm -----------------------------------------------------------------------------------


def ask(
    transport: Transport,
) -> tuple[SlurmConfig, list[SlurmNode], list[SlurmPartition]]:
    """What Slurm says. Raises EnvironmentProblem where it says nothing that can be read."""
    try:
        config = scontrol.config(_scontrol(transport, "show config"))
        partitions = scontrol.partitions(_scontrol(transport, "-a -o show partitions"))
        return config, _nodes(transport), partitions
    except ValueError as error:
        raise EnvironmentProblem(f"scontrol's answer is not understood: {error}") from error


def _nodes(transport: Transport) -> list[SlurmNode]:
    """From JSON where this Slurm has it: words of people cannot be taken for fields there."""
    done = transport.run(f"{PREPARE}exec scontrol -a show nodes --json\n", timeout_s=120)
    if done.status == 0:
        try:
            return scontrol.nodes_of_json(done.stdout)
        except ValueError as error:
            log.warning("%s; its text is read instead", error)
    return scontrol.nodes(_scontrol(transport, "-a -o show nodes"))


def _scontrol(transport: Transport, words: str) -> str:
    done = transport.run(f"{PREPARE}exec scontrol {words}\n", timeout_s=120)
    if done.status == 127:
        raise EnvironmentProblem("there is no scontrol here: start it on a login node")
    if done.status != 0:
        why = last_line(done.stderr) or f"exit status {done.status}"
        raise EnvironmentProblem(f"scontrol {words}: {why}")
    return done.stdout


# --- a look at nodes -------------------------------------------------------------------------


def look(
    transport: Transport,
    of_nodes: Sequence[Kind],
    partitions: Sequence[SlurmPartition],
    options: argparse.Namespace,
    submission: Submission,
) -> dict[str, Look | str]:
    """One job on one node of each kind; by the node's name what it showed, or why nothing."""
    run_id = f"declare-{secrets.token_hex(4)}"
    looks: dict[str, Look | str] = {}
    jobs = []
    for kind in of_nodes:
        node = kind.to_look_at
        if node is None:
            looks[kind.nodes[0].name] = f"none of {kind.names} is in service"
            continue
        home = _home(node, partitions, options.partition)
        if home is None:
            looks[node.name] = "it is not in the partition of --partition"
            continue
        jobs.append(_job(kind, node, home, run_id))
    names = compress(job.hosts[0] for job in jobs)
    if jobs:
        terminal.say(f"looking at {names}\n", sys.stderr)
        client = CommandLineClient(transport, run_id, options.python, submission.words)
        replies = _run(client, jobs)
        looks |= {job.hosts[0]: _look(job, replies.get(job.name)) for job in jobs}
    return looks


def _home(node: SlurmNode, partitions: Sequence[SlurmPartition], wanted: str | None) -> str | None:
    holding = [item for item in partitions if item.up and node.name in item.nodes]
    if wanted is not None:
        return next((item.name for item in holding if item.name == wanted), None)
    holding.sort(key=lambda item: (not item.open_, not item.default))
    return holding[0].name if holding else None


def _job(kind: Kind, node: SlurmNode, partition: str, run_id: str) -> Job:
    request = request_of(kind.gres)
    gpus = declaration.Gpus("unknown", kind.gres.total(), gres=request)
    return Job(
        name=f"look-{node.name}",
        payload="look",
        tier=Tier.NODE,
        subject=Subject.node(node.name),
        nodes=(Node(node.name, node.cpus, node.memory_mb, gpus, UNSAID_FABRIC),),
        ranks_per_node=1,
        backend=None,
        partition=partition,
        config={"nonce": f"{run_id}-{secrets.token_hex(8)}-{node.name}"},
        queue_limit_s=_QUEUE_LIMIT_S,
        run_limit_s=_RUN_LIMIT_S,
        checks=(),
    )


def _run(client: CommandLineClient, jobs: Sequence[Job]) -> dict[str, Reply]:
    batch = client.prepare([[job] for job in jobs], AT_ONCE)
    replies: dict[str, Reply] = {}
    try:
        batch.start()
        while True:
            progress = batch.poll()
            replies |= {reply.job: reply for reply in progress.replies}
            if progress.done or progress.lost:
                return replies
            time.sleep(0.5)
    except KeyboardInterrupt:
        batch.cancel()
        raise
    except TransportError as error:
        log.warning("%s", error)
        return replies
    finally:
        batch.close()


def _look(job: Job, reply: Reply | None) -> Look | str:
    if reply is None:
        return "nothing is known of its job"
    try:
        return look_of(job.hosts[0], read(job, reply))
    except Unusable as why:
        return printable(str(why), 200)


def _parser() -> argparse.ArgumentParser:
    summary, _, rest = str(__doc__).partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m validation.declare",
        description=f"{summary}\n\n{rest}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--from-slurm", action="store_true", help="ask scontrol on this machine")
    parser.add_argument("--look", action="store_true", help="look at a node of each kind, by srun")
    parser.add_argument(
        "--output",
        type=Path,
        default=OUTPUT,
        metavar="FILE",
        help=f"default: {OUTPUT}; - prints it",
    )
    parser.add_argument(
        "--python",
        default=PYTHON,
        metavar="PATH",
        help=f"the Python of the nodes that has torch (default: {PYTHON})",
    )
    parser.add_argument("--partition", metavar="P", help="the partition of the jobs of --look")
    for name in _WISHES:
        parser.add_argument(f"--{name}", metavar=name.upper(), help="as srun has it, for all jobs")
    version.add_option(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
