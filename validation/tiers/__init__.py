"""Walks through a plan: Slurm's own view, then every node for itself, then all nodes together.

A node that fails a tier takes no part in the next. Where nodes fail together and their job does not
tell which of them it is, pairs of them tell (validation.pairing), and what had waited in vain for
the bad one is run without it. Whatever happens on the way, every check of the plan ends with a
result: what could not run says why, and is a failure.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from cluster.errors import EnvironmentProblem, PlumblineError
from cluster.hostlist import compress
from cluster.slurm import job_reasons, node_states
from cluster.slurm.job_reasons import Cause
from cluster.slurm.node_states import NodeState
from validation.checks import accounting, pairs, slurm_state
from validation.execution.journal import Earlier, NotTheSame
from validation.model import (
    INTERRUPTED,
    Job,
    JobReport,
    Outcome,
    PlannedCheck,
    Reply,
    Result,
    Subject,
    Tier,
)
from validation.pairing import rounds as pair_rounds
from validation.pairing.rounds import Rounds
from validation.plan import ALWAYS, Group, Plan, cluster_batches, shrink
from validation.slurm import job as jobs
from validation.slurm.client import SlurmClient, SlurmDown
from validation.tiers.ledger import Ledger, Observer
from validation.tiers.running import free_of, run_lanes, states_now

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Walk:
    """What a walk through the tiers found out."""

    results: tuple[Result, ...]
    jobs: tuple[JobReport, ...]
    states: Mapping[str, str]
    slurm: str
    interrupted: bool
    notes: tuple[str, ...] = ()


def walk(
    plan: Plan,
    client: SlurmClient,
    observer: Observer,
    interval_s: float = 1.0,
    earlier: Earlier | None = None,
) -> Walk:
    """Run the plan. Returns after Ctrl-C too, with what was known by then.

    earlier   what parts of this run before it was interrupted knew
    Raises NotTheSame where that does not hold of the cluster any more.
    """
    ledger = Ledger(plan, observer, earlier or Earlier())
    interrupted = False
    try:
        _tiers(ledger, client, interval_s)
    except KeyboardInterrupt:
        interrupted = True
    except NotTheSame:
        raise
    except PlumblineError as error:
        if not ledger.found_something():
            raise  # no job answered: there is nothing that a report could tell
        log.error("%s", error)
        ledger.compare()
        ledger.fail_rest(ledger.plan.checks, f"not run: {error}")
    ledger.compare()
    # One that came while the last was tidied up changes nothing any more.
    interrupted = interrupted and not ledger.complete()
    ledger.fail_rest(
        ledger.plan.checks,
        INTERRUPTED if interrupted else "no result",
    )
    return Walk(
        tuple(ledger.results),
        tuple(ledger.jobs),
        ledger.states,
        ledger.slurm,
        interrupted,
        tuple(ledger.notes),
    )


def _tiers(ledger: Ledger, client: SlurmClient, interval_s: float) -> None:
    plan = ledger.plan
    if plan.submission.container is not None and not client.knows_containers():
        raise EnvironmentProblem(
            f"srun on {client.via} has no option --container-image: Slurm's plugin pyxis is not "
            "loaded there; install it on the login and compute nodes (plugstack.conf), or leave "
            "the image out (--container-image none)"
        )
    states: Mapping[str, NodeState] = {}
    usable = {node.name for node in plan.nodes}
    if any(check.check == ALWAYS for check in plan.checks):
        try:
            states = _ask_slurm(ledger, client)
        except SlurmDown as down:
            ledger.fail_rest(
                (check for check in ledger.plan.checks if check.check == ALWAYS), str(down)
            )
            ledger.fail_rest(ledger.plan.checks, f"not run: {down}")
            return
        usable = ledger.survivors()
    _node_tier(ledger, client, usable, states, interval_s)
    _cluster_tier(ledger, client, states, interval_s)


def _ask_slurm(ledger: Ledger, client: SlurmClient) -> Mapping[str, NodeState]:
    """Judge what Slurm says of its nodes and of its accounting. Raises SlurmDown."""
    plan = ledger.plan
    ledger.observer.stage("asking Slurm for its nodes")
    ledger.slurm, states = client.node_states()
    ledger.states |= {name: state.state for name, state in states.items()}
    if strangers := [name for name in states if name not in plan.declared]:
        ledger.notes.append(
            f"Slurm also has {compress(strangers)}, which the inventory does not declare"
        )
    reserved = plan.submission.reservation is not None
    results = [slurm_state.evaluate(node, states.get(node.name), reserved) for node in plan.nodes]
    of_node = _node_checks(plan)
    for result in _in_contact(ledger, client, results, states):
        ledger.add(result)
        if not result.verdict.green:
            ledger.fail_rest(
                of_node.get(result.subject.name, ()),
                f"not run: {result.message}",
                result.verdict,
                result.blamed,
            )
    for check in plan.checks:
        if check.check == accounting.NAME:
            ledger.add(accounting.evaluate(check.subject, client.accounting()))
    return states


def _in_contact(
    ledger: Ledger,
    client: SlurmClient,
    results: Sequence[Result],
    states: Mapping[str, NodeState],
) -> list[Result]:
    """The same, but for nodes that Slurm still takes for well and on which no slurmd listens."""
    names = [
        result.subject.name
        for result in results
        if result.verdict.green and not node_states.asleep(states[result.subject.name])
    ]
    if not names:
        return [*results]
    ledger.observer.stage("asking the nodes' slurmd")
    ledger.contact = client.contact(names)
    ledger.earlier.held_against(ledger.contact.boots)
    ledger.observer.boots(ledger.contact.boots)
    refused = ledger.contact.refused
    # All of several at once: what lies between them and the login node may as well be the cause.
    nobodys = len(names) > 1 and len(refused) == len(names)
    return [
        slurm_state.deaf(result, refused[result.subject.name], client.via, nobodys)
        if result.subject.name in refused
        else result
        for result in results
    ]


def _node_tier(
    ledger: Ledger,
    client: SlurmClient,
    usable: Collection[str],
    states: Mapping[str, NodeState],
    interval_s: float,
) -> None:
    """Every usable node for itself, all side by side."""
    lanes = [lane for lane in ledger.plan.node_lanes if lane[0].hosts[0] in usable]
    if lanes:
        ledger.observer.stage(f"node tier, {len(lanes)} nodes")
        # One from which nothing came back must not hold up the others.
        free = free_of(states) - set(ledger.contact.mute)
        run_lanes(ledger, client, lanes, states, free, interval_s)
        _refused_for_all(ledger)
    beside = [lane for lane in ledger.plan.side_by_side if lane[0].hosts[0] in usable]
    if beside:
        ledger.observer.stage("node tier, jobs side by side on each node")
        run_lanes(
            ledger, client, beside, states, free_of(states) - set(ledger.contact.mute), interval_s
        )
    ledger.compare()


def _cluster_tier(
    ledger: Ledger, client: SlurmClient, states: Mapping[str, NodeState], interval_s: float
) -> None:
    """All nodes that are left together; before that two by two, where the suite asks for it."""
    plan = ledger.plan
    survivors = ledger.survivors()
    for group in plan.paired:
        _pair_up(ledger, client, group, survivors, states, interval_s)
    survivors -= ledger.failed()
    for found in ledger.paired.values():
        survivors -= found.set_aside()
    lanes = [_left(ledger, group.jobs, survivors) for group in plan.groups]
    skipped: list[tuple[Job, Reply]] = []
    for planned in cluster_batches(lanes):
        batch, in_vain = _worth_trying(ledger, planned, skipped)
        skipped += in_vain
        if batch:
            skipped += _run_together(ledger, client, batch, states, interval_s)
    for group in plan.groups:
        own = {job.name for job in group.jobs}
        waiting = {job.name: (job, reply) for job, reply in skipped if job.name in own}
        again = _without_the_bad(ledger, client, group, waiting, states, interval_s)
        for name in again:
            del waiting[name]
        for job, reply in waiting.values():
            ledger.judge(job, reply)


def _left(ledger: Ledger, jobs: Sequence[Job], survivors: set[str]) -> list[Job]:
    """The jobs on the nodes that are left, and a result for each that has too few."""
    lane = []
    for job in jobs:
        if smaller := shrink(job, survivors):
            lane.append(smaller)
        else:
            ledger.deserted(job, survivors)
    return lane


def _worth_trying(
    ledger: Ledger, batch: Sequence[Sequence[Job]], skipped: Sequence[tuple[Job, Reply]]
) -> tuple[list[list[Job]], list[tuple[Job, Reply]]]:
    """The batch without the jobs that would wait for what others waited for on their nodes."""
    in_vain = {
        item.job.hosts: item.job.name
        for item in reversed(ledger.jobs)
        if item.reply and item.job.tier is Tier.CLUSTER and jobs.waited_in_vain(item.reply)
    } | {job.hosts: reply.reason for job, reply in skipped}
    left = [[job for job in lane if job.hosts not in in_vain] for lane in batch]
    more = [
        (job, Reply(job.name, Outcome.SKIPPED, reason=in_vain[job.hosts]))
        for lane in batch
        for job in lane
        if job.hosts in in_vain
    ]
    return [lane for lane in left if lane], more


def _run_together(
    ledger: Ledger,
    client: SlurmClient,
    lanes: Sequence[Sequence[Job]],
    states: Mapping[str, NodeState],
    interval_s: float,
) -> list[tuple[Job, Reply]]:
    """Run and judge jobs of all nodes; those that were skipped are yet to be judged."""
    skipped: list[tuple[Job, Reply]] = []

    def judge(job: Job, reply: Reply) -> None:
        if reply.outcome is Outcome.SKIPPED:
            skipped.append((job, reply))
        else:
            ledger.judge(job, reply)

    names = ", ".join(job.name for lane in lanes for job in lane)
    ledger.observer.stage(f"cluster tier, {names}")
    run_lanes(ledger, client, lanes, states, free_of(states), interval_s, judge)
    return skipped


def _pair_up(
    ledger: Ledger,
    client: SlurmClient,
    group: Group,
    names: Collection[str],
    states: Mapping[str, NodeState],
    interval_s: float,
) -> None:
    """Rounds of pairs of these nodes, until it is known which of them, or of their links, is bad.

    Two nodes that fail together cannot be told apart; idle ones of their kind, selected or not,
    are asked to tell.
    """
    free = free_of(states)
    asked = group in ledger.plan.paired
    referees = tuple(node.name for node in group.referees if node.name in free)
    wanted = tuple(node.name for node in group.nodes if node.name in names)
    # Two alone were asked already: the job that failed was theirs.
    fewest = pairs.FEWEST_NODES if asked else pairs.FEWEST_NODES + 1 - len(referees[:1])
    if group.pair is None or len(wanted) < fewest:
        return

    def run(stage: str, lanes: Sequence[Sequence[Job]], take: Callable[[Job, Reply], None]) -> None:
        ledger.observer.stage(stage)
        run_lanes(ledger, client, lanes, states, free, interval_s, take)

    def judge(job: Job, reply: Reply, rail: bool) -> Result:
        ledger.note(job, reply)
        rules = ledger.rules(job)
        # The model's thresholds are of all rails together.
        return ledger.evaluated(
            pairs.NAME, job, reply, replace(rules, model=None) if rail else rules
        )

    share = ledger.rules(group.pair).common.pairs[group.backend]
    rounds = Rounds(group, wanted, referees, ledger.plan.topology, share, run, judge)
    found, rails = pair_rounds.of_nodes(rounds, groups=asked)
    ledger.paired[group.name] = found
    for result in (*found.results, *found.of_groups()):
        # Where nobody asked for pairs, a node that they name is named by the job that failed.
        if asked or len(result.subject.nodes) > 1:
            ledger.add(result)
    if asked:
        good = tuple(name for name in wanted if name not in ledger.failed())
        for result in pair_rounds.of_rails(replace(rounds, names=good), rails):
            ledger.add(result)


def _without_the_bad(
    ledger: Ledger,
    client: SlurmClient,
    group: Group,
    waiting: Mapping[str, tuple[Job, Reply]],
    states: Mapping[str, NodeState],
    interval_s: float,
) -> set[str]:
    """Name what is bad in a group, and run what waited in vain on the others; what was run."""
    if unnamed := ledger.unnamed(group):
        several = max((result.subject.nodes for result in unnamed), key=len)
        if group.name not in ledger.paired:
            states = states_now(client, states)
            _pair_up(ledger, client, group, several, states, interval_s)
        if (found := ledger.paired.get(group.name)) is not None:
            for result in unnamed:
                ledger.amend(result, found.named(result))
    bad = ledger.blamed(group)
    again = {
        name: smaller
        for name, (job, _) in waiting.items()
        if bad.intersection(job.hosts) and (smaller := shrink(job, set(job.hosts) - bad))
    }
    if again:
        for job, reply in _run_together(ledger, client, [[*again.values()]], states, interval_s):
            ledger.judge(job, reply)
    return set(again)


def _refused_for_all(ledger: Ledger) -> None:
    """Raises EnvironmentProblem where Slurm took no job at all, of whatever node.

    That is the account's or the request's fault; nothing was judged.
    """
    refusals = {_refusal(item.reply) for item in ledger.jobs if item.reply}
    if len(refusals) == 1 and (sentence := refusals.pop()):
        hint = f"; {job_reasons.ACCOUNT_HINT}" if job_reasons.of_account(sentence) else ""
        raise EnvironmentProblem(f"Slurm accepts no job of this user: {sentence}{hint}")


def _refusal(reply: Reply) -> str:
    if reply.outcome is Outcome.NOT_SUBMITTED:
        return reply.reason
    if reply.outcome is not Outcome.EXITED or reply.exit_code == 0 or reply.starts:
        return ""
    refusal = job_reasons.refusal(reply.stderr)
    if refusal is None or any(map(node_states.out_of_service, reply.states)):
        return ""
    return refusal[0] if refusal[1] is not Cause.CLUSTER else ""


def _node_checks(plan: Plan) -> Mapping[str, Sequence[PlannedCheck]]:
    """The checks of the node tier, by the node that they are about."""
    checks: dict[str, list[PlannedCheck]] = {node.name: [] for node in plan.nodes}
    for check in plan.checks:
        if check.tier is Tier.NODE and check.subject == Subject.node(check.subject.name):
            checks[check.subject.name].append(check)
    return checks
