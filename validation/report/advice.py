"""What to do about a run: one step for each cause, however many checks or nodes tell of it.

A check's own advice fits a finding of that check: a value that was measured and is wrong. A job
that gave no answer says nothing of CPUs or links, so its advice follows from how it ended.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cluster.hostlist import compress
from cluster.slurm import drain_reasons
from cluster.text import printable
from validation import causes
from validation.causes import Cause
from validation.model import CheckInfo, JobReport, Key, Result, RunReport, Tier, Verdict
from validation.report import words

PORTS = (
    "Between compute nodes a cluster job needs TCP ports 20000-29999, on which its ranks meet, and "
    "the ephemeral ports (32768-60999), on which Gloo and NCCL then connect. Slurm needs 6817 on "
    "the controller, 6818 on every node, and SrunPortRange on the login node (any port if it is "
    "not set)."
)


@dataclass(frozen=True, slots=True)
class Advice:
    """`commands` may name {node}, {nodes}, {other}, {partition}, {out} and {err}."""

    text: str
    commands: tuple[str, ...] = ()


# Nothing that these say is about a node.
_NOBODYS = (Cause.CONTROLLER, Cause.REFUSED, Cause.ACCOUNT, Cause.LOST)

_WITHOUT_A_JOB = (Cause.NOT_RUN, Cause.UNPROVEN)

# Told check by check; any other cause is told once for all checks that it left without an answer.
_OF_A_CHECK = (Cause.FINDING, Cause.NO_THRESHOLD)

_COMMANDS = 2  # of a step, to find the fault or to mend it

_READ = "less {err}"
ADVICE: Mapping[Cause, Advice] = {
    Cause.NO_THRESHOLD: Advice(
        "It was measured, but there is no threshold for it. Compare it with the vendor's figure, "
        "then record it in a thresholds file of your own; --record-baseline DIR writes one "
        "(docs/reference/thresholds.md)."
    ),
    Cause.CONTROLLER: Advice(
        "No node is known to be at fault: Slurm's controller does not answer the login node. Check "
        "whether slurmctld runs, and whether a firewall blocks TCP 6817.",
        ("scontrol ping", "systemctl status slurmctld  # on the controller"),
    ),
    Cause.REFUSED: Advice(
        "No node is known to be at fault: Slurm does not accept or start the job as it was "
        "submitted. Check the partition, and the account, QOS and limits of the user who submits. "
        "If the message names a GRES, check Gres= in slurm.conf and node_gpus in the inventory.",
        (
            'sacctmgr show associations where user="$USER"',
            "scontrol show partition {partition}",
            _READ,
        ),
    ),
    Cause.ACCOUNT: Advice(
        "No node is known to be at fault: the user who submits has no account that may use this "
        "partition and QOS. Declare the user in slurm_users, or add an association by hand "
        "(docs/operate/accounting.md). Or name another account, with --account or, for every run, "
        "in validation_submission. Check AllowAccounts and AllowQos of the partition.",
        (
            'sacctmgr show associations where user="$USER" format=account,partition,qos,defaultqos',
            "scontrol show partition {partition}",
            _READ,
        ),
    ),
    Cause.LOST: Advice(
        "No node is known to be at fault: the login node or the program on it went away, and the "
        "state of the jobs is lost. Check whether jobs are left, then repeat the run.",
        ("squeue --me",),
    ),
    Cause.OUT_OF_SERVICE: Advice(
        "The node was in service when the run began and went out of service during the run. A star "
        "after its state means that it does not answer: check its power, its network, slurmd and "
        "munge. Down or drained without a star means that it was taken out of service; Slurm's "
        "reason says by whom.",
        (
            "scontrol show node {node}",
            "ssh {node} systemctl status slurmd munge",
            "ssh {node} journalctl --unit slurmd --lines 50",
        ),
    ),
    Cause.BUSY: Advice(
        "Other jobs use the nodes. Repeat the run when they are free, or inside a reservation.",
        ("squeue --nodelist={nodes}",),
    ),
    Cause.NOT_STARTED: Advice(
        "Slurm did not start the job in time although nobody else uses the nodes. The message "
        "above is its reason; `scontrol show node` may tell more.",
        ("squeue --start --me", "scontrol show node {node}"),
    ),
    Cause.NO_TASK: Advice(
        "Slurm gave the job its nodes, but no task started on them. Either slurmd does not start "
        "tasks, or a firewall blocks srun: slurmd listens on TCP 6818 and connects back to srun on "
        "the login node.",
        (
            "ssh {node} systemctl status slurmd",
            "ssh {node} journalctl --unit slurmd --lines 50",
            "nc -zvw 3 {node} 6818",
        ),
    ),
    Cause.HUNG: Advice(
        "The task started but did not end. Usually a driver or a filesystem does not answer.",
        (
            "ssh {node} 'ps -eo pid,stat,wchan:30,args | grep \" D\"'",
            "ssh {node} 'dmesg | tail -n 50'",
            _READ,
        ),
    ),
    Cause.NOT_CONNECTED: Advice(
        "The tasks started, but the ranks did not connect or lost their connection. Possible "
        "causes are a rank that hangs, a cut link, a firewall between the nodes or a wrong network "
        "interface. "
        + PORTS
        + " If a connection is refused, the port is reachable; without an answer, it is blocked.",
        (_READ, "ssh {node} nc -zvw 3 {other} 29999"),
    ),
    Cause.ENDED_BADLY: Advice(
        "A task ended with an error. The first message in the job's stderr is the cause; later "
        "messages of other ranks usually follow from it.",
        (_READ,),
    ),
    Cause.NO_ANSWER: Advice(
        "The job ended, but its answer is missing or belongs to another question. Read what it "
        "printed. Possible causes are another Python than declared, or an srun that starts "
        "something else.",
        ("less {out}", _READ),
    ),
    Cause.NOT_RUN: Advice("It was not judged. Repair what else did not pass, then repeat the run."),
    Cause.UNPROVEN: Advice(
        "This run had too few nodes of one kind for this check. Select more of them. A single node "
        "with one rank only shows that it computes correctly; its communication with other nodes "
        "stays unproven."
    ),
}


@dataclass(frozen=True, slots=True)
class Step:
    """What to do about one cause: what was found, why, and commands to type."""

    title: str
    advice: str
    commands: tuple[str, ...]


# A check that could not judge what another found broken says which: that one's advice is enough.
_TOLD_BY = re.compile(r", see (\w+)\b")


@dataclass(frozen=True, slots=True)
class _Finding:
    """A result that is not green, the job that it judges, and why."""

    result: Result
    job: JobReport | None
    cause: Cause

    @property
    def message(self) -> str:
        return self.result.message.removeprefix("not run: ")

    @property
    def unknown(self) -> bool:
        """Whether it is the fault of one of several nodes, and nobody knows of which."""
        several = self.result.tier is Tier.CLUSTER and len(self.result.subject.nodes) > 1
        return several and self.result.blamed is None and self.result.verdict is Verdict.FAIL


def next_steps(report: RunReport) -> list[Step]:
    """What is nobody's fault first, then nodes, what nodes did together, what was not proven."""
    findings = _findings(report)
    explained = {
        node
        for finding in findings
        if finding.cause not in _WITHOUT_A_JOB
        for node in finding.result.subject.nodes
    }
    keys = {finding.result.key for finding in findings}
    groups: dict[_Kind, dict[str, list[_Finding]]] = {}
    for finding in findings:
        told_by = _TOLD_BY.search(finding.message)
        if told_by and Key(told_by[1], finding.result.subject.name) in keys:
            continue
        follows = report.interrupted or explained.intersection(finding.result.subject.nodes)
        # An interruption needs no advice, nor does what follows from another failure.
        if finding.cause is Cause.INTERRUPTED or (finding.cause in _WITHOUT_A_JOB and follows):
            continue
        check = finding.result.check if finding.cause in _OF_A_CHECK else ""
        kind = (_scope(finding), finding.cause, check, words.kind_of(finding.message))
        groups.setdefault(kind, {}).setdefault(finding.message, []).append(finding)
    steps = []
    for _, by_message in sorted(groups.items(), key=lambda item: item[0][0]):
        if len(by_message) > words.FOLD:  # many nodes, each with its own numbers
            steps.append(_step(report, [f for same in by_message.values() for f in same]))
        else:
            steps += [_step(report, same) for same in by_message.values()]
    return steps


# Scope, cause, check where it matters, and the message without its numbers.
_Kind = tuple[int, Cause, str, str]


def _findings(report: RunReport) -> list[_Finding]:
    jobs = {(name, item.job.subject.name): item for item in report.jobs for name in item.job.checks}
    findings = []
    for result in report.results:
        if result.verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE):
            job = jobs.get((result.check, result.subject.name))
            findings.append(_Finding(result, job, causes.of(result, job)))
    return findings


def _scope(finding: _Finding) -> int:
    if finding.cause is Cause.UNPROVEN:
        return 3
    if finding.result.blamed == () or finding.cause in _NOBODYS:
        return 0
    return 1 if finding.result.tier is Tier.NODE else 2


def of_finding(info: CheckInfo, result: Result) -> Advice:
    """The advice of the case that a check has found; all of its advice where it is none of them."""
    found = causes.case(info, result)
    if found is None:
        return Advice(info.advice, info.commands)
    match = found.found(result.message)
    # What the message names, such as the number of an XID.
    word = match[1] or "" if match and match.re.groups else ""
    return Advice(found.advice, tuple(c.replace("{found}", word) for c in found.commands))


# --- steps -----------------------------------------------------------------------------------


def _step(report: RunReport, group: Sequence[_Finding]) -> Step:
    """One step for findings that have cause and message in common, or its kind."""
    first = group[0]
    checks = list(dict.fromkeys(finding.result.check for finding in group))
    nodes = [] if first.cause in _NOBODYS else _at_fault(group)
    info = report.checks[first.result.check]
    measured = first.cause is Cause.FINDING
    advice = of_finding(info, first.result) if measured else ADVICE[first.cause]
    # Where no node is at fault, none is to be looked at.
    fitting = [command for command in advice.commands if nodes or "{node}" not in command]
    if measured and first.result.tier is Tier.CLUSTER and first.job:
        fitting.insert(0, _READ)
    del fitting[_COMMANDS:]
    if report.local:
        fitting = list(map(_here, fitting))
    commands = [_filled(command, report, first.job, nodes) for command in fitting]
    if drained := _drainable(report, group):
        commands.append(_drain(drained, group))
    commands += _again(report, first, checks, nodes)
    told = [(finding.result.subject.name, finding.message) for finding in group]
    title = ": ".join([*_who(first, nodes, checks), words.for_all(told)])
    text = advice.text + (_how_to_tell_apart(nodes) if first.unknown else "")
    return Step(printable(title), text, tuple(map(printable, commands)))


def _at_fault(group: Iterable[_Finding]) -> list[str]:
    results = [finding.result for finding in group]
    named = (r.subject.nodes if r.blamed is None else r.blamed for r in results)
    return list(dict.fromkeys(node for nodes in named for node in nodes))


def _who(finding: _Finding, nodes: Sequence[str], checks: Sequence[str]) -> list[str]:
    """Whose fault it is, and in which checks, as far as that is known and matters."""
    of_a_check = finding.cause in _OF_A_CHECK or (nodes and finding.result.tier is Tier.CLUSTER)
    listed = words.named(nodes)
    names = [f"one of {listed}" if finding.unknown else listed] if nodes else []
    return [*names, words.listed(checks, 3)] if of_a_check else names


def _how_to_tell_apart(nodes: Sequence[str]) -> str:
    if len(nodes) == 2:
        return " To find out which of the two nodes is at fault, run each with a third one."
    return " Run halves of the nodes to find the fault." if len(nodes) >= 4 else ""


def _drainable(report: RunReport, group: Sequence[_Finding]) -> list[str]:
    """Nodes in service with a measured failure of their own: no others are to be drained."""
    if report.local:
        return []
    if group[0].cause is not Cause.FINDING or group[0].result.check == "slurm_state":
        return []
    keys = {finding.result.key for finding in group}
    return [
        item.node.name
        for item in report.nodes
        if any(
            own.key in keys and (own.value is not None or item.node.name in (own.blamed or ()))
            for own in item.own_failures
        )
    ]


def _drain(nodes: Sequence[str], group: Sequence[_Finding]) -> str:
    first = group[0]
    alike = all(finding.message == first.message for finding in group)
    message = first.message if alike else words.kind_of(first.message)
    reason = quoted(drain_reasons.of_validation([first.result.check], message))
    return f"scontrol update nodename={shlex.quote(compress(nodes))} state=drain reason={reason}"


def quoted(text: str) -> str:
    """Words for a shell, readable whatever apostrophes are in them, and harmless."""
    plain = printable(re.sub(r"[^ -~]|[\"$`\\!]", " ", text), 120).replace("…", "...")
    return f'"{plain}"' if "'" in plain else f"'{plain}'"


def _again(
    report: RunReport, finding: _Finding, checks: Sequence[str], nodes: Sequence[str]
) -> list[str]:
    """The command lines that show whether it is mended, or where it is."""
    if not nodes:
        return [report.repeat]
    alone = [name for name in checks if report.checks[name].fewest_nodes == 1]
    again = f"{report.repeat} --only {','.join(alone or checks)}"
    if report.local or not alone:
        return [again]
    if finding.result.tier is Tier.NODE:
        return [f"{again} --nodes {shlex.quote(compress(nodes))}"]
    if len(nodes) >= 4 and finding.unknown:
        half = len(nodes) // 2
        parts = (nodes[:half], nodes[half:])
        return [f"{again} --nodes {shlex.quote(compress(part))}" for part in parts]
    return [again]


def _here(command: str) -> str:
    """The command without the way to the node: ssh puts its words together with spaces.

    >>> _here("ssh {node} 'dmesg | tail'")
    'dmesg | tail'
    """
    return " ".join(shlex.split(command)[2:]) if command.startswith("ssh {node} ") else command


def _filled(command: str, report: RunReport, job: JobReport | None, nodes: Sequence[str]) -> str:
    """A command with the names of this run. {node} is where to look first."""
    hosts = list(job.job.hosts) if job else list(nodes)
    if job and job.reply and (silent := causes.silent(job, job.reply)):
        hosts = [host for host in silent if host in nodes] or silent
    elif nodes:
        hosts = [*nodes, *(host for host in hosts if host not in nodes)]
    stem = f"{report.output}/jobs/{job.job.name}" if job else f"{report.output}/jobs"
    others = [host for host in (job.job.hosts if job else ()) if host != hosts[0]]
    names = {
        "node": hosts[0] if hosts else "NODE",
        "other": others[0] if others else "OTHER",
        "nodes": shlex.quote(compress(nodes or hosts)),
        "partition": job.job.partition if job else "",
        "out": shlex.quote(f"{stem}.stdout"),
        "err": shlex.quote(f"{stem}.stderr"),
    }
    return command.format(**names)
