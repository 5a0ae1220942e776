"""Walks through a plan: Slurm's own view, then every node for itself, then all nodes together.

A node that fails a tier takes no part in the next. Where nodes fail together and their job does not
tell which of them it is, pairs of them tell (validation.pairing), and what had waited in vain for
the bad one is run without it. Whatever happens on the way, every check of the plan ends with a
result: what could not run says why, and is a failure.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from cluster.errors import EnvironmentProblem, PlumblineError
from cluster.hostlist import compress
from cluster.slurm import job_reasons, node_states
from cluster.slurm.job_reasons import Cause
from cluster.slurm.node_states import NodeState
from cluster.text import printable
from validation import allocations, causes, interrupts, pair_rounds, pairing
from validation.checks import accounting, pairs, slurm_state
from validation.checks.comparison import ComparedNode
from validation.checks.identity import Identities
from validation.checks.registry import CHECKS
from validation.kept import Earlier, NotTheSame
from validation.model import (
    INTERRUPTED,
    Contact,
    Job,
    JobReport,
    Key,
    Outcome,
    PlannedCheck,
    Reply,
    Result,
    Subject,
    Tier,
    Verdict,
)
from validation.pair_rounds import Rounds
from validation.plan import ALWAYS, AT_ONCE, Group, Plan, cluster_batches, shrink
from validation.slurm import job as jobs
from validation.slurm.client import Batch, Progress, SlurmClient, SlurmDown
from validation.thresholds import Rules

log = logging.getLogger(__name__)

_PATIENCE = 5  # polls that may fail in a row before the login node is given up
_SLACK_S = 120  # what a job may take beyond its limits


class Observer(Protocol):
    """Who wants to see a run while it goes on."""

    def stage(self, text: str) -> None: ...

    def boots(self, boots: Mapping[str, str]) -> None: ...

    def progress(self, progress: Progress) -> None: ...

    def job(self, report: JobReport) -> None: ...

    def result(self, result: Result) -> None: ...


@dataclass(frozen=True, slots=True)
class Walk:
    """What a walk through the tiers found out."""

    results: tuple[Result, ...]
    jobs: tuple[JobReport, ...]
    states: Mapping[str, str]
    slurm: str
    interrupted: bool
    notes: tuple[str, ...] = ()


class _Ledger:
    """Results and jobs so far; tells the observer of each."""

    def __init__(self, plan: Plan, observer: Observer, earlier: Earlier) -> None:
        self.plan = plan
        self.observer = observer
        self.earlier = earlier
        self.results: list[Result] = []
        self._known: set[Key] = set()  # of the results
        self.jobs: list[JobReport] = []
        self._jobs: dict[Key, JobReport] = {}
        self.states: dict[str, str] = {}
        self.contact = Contact()
        self.slurm = ""
        self.notes: list[str] = []
        self.paired: dict[str, pairing.Found] = {}  # by the group's name
        self._compared = False
        self._identities = Identities()
        self._planned = {check.key: check for check in plan.checks}

    def add(self, result: Result) -> None:
        if planned := self._planned.get(result.key):
            result = planned.allowed(result)
        job = self._jobs.get(result.key)
        result = replace(result, cause=causes.name(CHECKS[result.check].info, result, job))
        self.results.append(result)
        self._known.add(result.key)
        self.observer.result(result)

    def recall(
        self, lanes: Sequence[Sequence[Job]], judge: Callable[[Job, Reply], None]
    ) -> list[list[Job]]:
        """Judge what an earlier part of the run has an answer to; the jobs that are left."""
        left = []
        looked_at = {job.hosts[0] for job in self.plan.node_jobs if job.payload == "node"}
        for lane in lanes:
            asked = []
            for job in lane:
                reply = self.earlier.reply(job, self.contact.boots)
                # Only a new look at a node shows that its driver is the same.
                if reply and looked_at.issuperset(job.hosts):
                    judge(job, reply)
                else:
                    asked.append(job)
            left.append(asked)
        return [lane for lane in left if lane]

    def note(self, job: Job, reply: Reply) -> None:
        """How a job ended, without a judgement."""
        if job.payload == "node":
            self.earlier.held_against_look(job, reply)
        report = JobReport(job, reply)
        self.jobs.append(report)
        self._jobs |= dict.fromkeys((Key(name, job.subject.name) for name in job.checks), report)
        self.observer.job(report)

    def judge(self, job: Job, reply: Reply) -> None:
        self.note(job, reply)
        strangers = self._identities.strangers(job, reply)
        for name in job.checks:
            if CHECKS[name].compare is None:
                result = self.evaluated(name, job, reply, self.rules(job))
                if strangers and result.verdict.green:
                    result, strangers = _with_strangers(result, strangers), {}  # told once
                self.add(result)

    def compare(self) -> None:
        """Judge what needs the answers of all nodes, once no more of them will come."""
        if self._compared:
            return
        self._compared = True
        replies = {item.job.name: item.reply for item in self.jobs}
        by_check: dict[str, list[ComparedNode]] = {}
        for job in self.plan.node_jobs:
            node = ComparedNode(job, replies.get(job.name), self.rules(job))
            for name in job.checks:
                if CHECKS[name].compare is not None:
                    by_check.setdefault(name, []).append(node)
        for name, nodes in by_check.items():
            for result in self._compared_of(name, nodes):
                self.add(result)

    def evaluated(self, name: str, job: Job, reply: Reply, rules: Rules) -> Result:
        evaluate = CHECKS[name].evaluate
        assert evaluate is not None  # jobs are planned for checks that judge one
        try:
            return evaluate(job, reply, rules)
        except Exception as error:
            return _broke(name, job, error)

    def _compared_of(self, name: str, members: Sequence[ComparedNode]) -> Sequence[Result]:
        """The results of nodes that are compared. One that cannot be costs only its own verdict."""
        compare = CHECKS[name].compare
        assert compare is not None
        try:
            return compare(members)
        except Exception:
            log.info("%s: comparing the nodes one by one", name, exc_info=True)
        comparable: list[ComparedNode] = []
        results: list[Result] = []
        for node in members:
            try:
                compare([node])
            except Exception as error:
                log.error("%s: judging %s failed", name, node.job.name, exc_info=error)
                message = printable(f"the answer cannot be compared: {error!r}", 300)
                what = (name, node.job.tier, node.job.subject)
                results.append(Result(*what, Verdict.FAIL, message))
                comparable.append(replace(node, reply=None))  # it counts among those not heard
            else:
                comparable.append(node)
        try:
            return [*results, *compare(comparable)]
        except Exception as error:
            # Each answer by itself is sound, so that no node is at fault.
            judged = [node for node in comparable if node.reply is not None]
            broken = (replace(_broke(name, node.job, error), blamed=()) for node in judged)
            return [*results, *broken]

    def rules(self, job: Job) -> Rules:
        return self.plan.rules[job.nodes[0].hardware]

    def deserted(self, job: Job, survivors: set[str]) -> None:
        """A job that cannot run for want of nodes: the fault of those of them that failed."""
        wanted = job.candidates
        missing = [host for host in wanted if host not in survivors]
        message = f"only {len(wanted) - len(missing)} of {len(wanted)} nodes left"
        at_fault = self.failed()
        failed = tuple(host for host in missing if host in at_fault)
        verdict = Verdict.FAIL if failed else Verdict.INCONCLUSIVE
        if unjudged := [host for host in missing if host not in failed]:
            message += f"; {compress(unjudged)} could not be judged"
        for name in job.checks:
            self.add(Result(name, job.tier, job.subject, verdict, message, blamed=failed))

    def fail_rest(
        self,
        checks: Iterable[PlannedCheck],
        message: str,
        verdict: Verdict = Verdict.FAIL,
        blamed: tuple[str, ...] | None = (),
    ) -> None:
        """A result that is not green for each of these planned checks that has none yet."""
        for check in checks:
            if check.key in self._known:
                continue
            what = (check.check, check.tier, check.subject)
            if check.skip is not None:
                self.add(Result(*what, Verdict.SKIP, check.skip))
            elif check.unproven is not None:
                self.add(Result(*what, Verdict.INCONCLUSIVE, check.unproven, blamed=()))
            else:
                self.add(Result(*what, verdict, message, blamed=blamed))

    def complete(self) -> bool:
        """Whether everything was asked about and came to its own end."""
        cancelled = any(i.reply and i.reply.outcome is Outcome.CANCELLED for i in self.jobs)
        return not cancelled and all(check.key in self._known for check in self.plan.checks)

    def found_something(self) -> bool:
        """Whether a job answered, or something is known to be wrong with a node or with Slurm."""
        return any(item.reply and item.reply.stdout for item in self.jobs) or any(
            result.verdict is Verdict.FAIL and (result.value is not None or result.blamed != ())
            for result in self.results
        )

    def slowest_start_s(self) -> float | None:
        """How long the tasks of the jobs so far took to start at most."""
        replies = [item.reply for item in self.jobs if item.reply and item.reply.starts]
        return max((seconds for reply in replies if (seconds := reply.start_s)), default=None)

    def survivors(self) -> set[str]:
        """Nodes of which nothing in the node tier speaks against giving them more work."""
        results = [result for result in self.results if result.tier is Tier.NODE]
        seen = {result.subject.name for result in results}
        return seen - {result.subject.name for result in results if not _harmless(result)}

    def failed(self) -> set[str]:
        """Nodes with a failure that is their own, in what was asked of each by itself."""
        return {
            result.subject.name
            for result in self.results
            if result.subject.nodes == (result.subject.name,)
            and result.verdict is Verdict.FAIL
            and result.blamed != ()
        }

    def blamed(self, group: Group) -> set[str]:
        """Nodes of a group that are known to be at fault for what failed in it."""
        failures = self._failures(group)
        return self.failed() | {name for result in failures for name in result.blamed or ()}

    def unnamed(self, group: Group) -> list[Result]:
        """Failures of the whole group that are the fault of nobody knows which of its nodes."""
        return [result for result in self._failures(group) if result.blamed is None]

    def _failures(self, group: Group) -> list[Result]:
        return [
            result
            for result in self.results
            if result.verdict is Verdict.FAIL
            and result.subject.name == group.name
            and len(result.subject.nodes) > 1
        ]

    def amend(self, result: Result, better: Result) -> None:
        """Put what is known now in the place of a result."""
        self.results[self.results.index(result)] = better
        self.observer.result(better)


def _broke(name: str, job: Job, error: Exception) -> Result:
    """A fault of a check itself must not hide the other results, nor pass."""
    log.error("%s: judging %s failed", name, job.name, exc_info=error)
    message = printable(f"the check itself failed: {error!r}", 300)
    return Result(name, job.tier, job.subject, Verdict.FAIL, message)


def _with_strangers(result: Result, strangers: Mapping[str, str]) -> Result:
    """The failure of nodes that used a GPU which they did not list before."""
    host, uuid = next(iter(strangers.items()))
    message = f"{host} used {uuid}, which was none of its GPUs before"
    if len(strangers) > 1:
        message += f"; the same goes for {compress([*strangers][1:])}"
    message = printable(message, 300)
    return replace(result, verdict=Verdict.FAIL, message=message, blamed=tuple(strangers))


def _harmless(result: Result) -> bool:
    """Whether a node goes on: green, or measured and left without a verdict, or not its fault."""
    if result.verdict.green:
        return True
    measured = result.value is not None and CHECKS[result.check].payload is not None
    return measured and (result.verdict is Verdict.INCONCLUSIVE or result.blamed == ())


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
    ledger = _Ledger(plan, observer, earlier or Earlier())
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


def _tiers(ledger: _Ledger, client: SlurmClient, interval_s: float) -> None:
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


def _ask_slurm(ledger: _Ledger, client: SlurmClient) -> Mapping[str, NodeState]:
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
    ledger: _Ledger,
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
    ledger: _Ledger,
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
        free = _free(states) - set(ledger.contact.mute)
        _run(ledger, client, lanes, states, free, interval_s)
        _refused_for_all(ledger)
    beside = [lane for lane in ledger.plan.side_by_side if lane[0].hosts[0] in usable]
    if beside:
        ledger.observer.stage("node tier, jobs side by side on each node")
        _run(ledger, client, beside, states, _free(states) - set(ledger.contact.mute), interval_s)
    ledger.compare()


def _cluster_tier(
    ledger: _Ledger, client: SlurmClient, states: Mapping[str, NodeState], interval_s: float
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


def _left(ledger: _Ledger, jobs: Sequence[Job], survivors: set[str]) -> list[Job]:
    """The jobs on the nodes that are left, and a result for each that has too few."""
    lane = []
    for job in jobs:
        if smaller := shrink(job, survivors):
            lane.append(smaller)
        else:
            ledger.deserted(job, survivors)
    return lane


def _worth_trying(
    ledger: _Ledger, batch: Sequence[Sequence[Job]], skipped: Sequence[tuple[Job, Reply]]
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
    ledger: _Ledger,
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
    _run(ledger, client, lanes, states, _free(states), interval_s, judge)
    return skipped


def _pair_up(
    ledger: _Ledger,
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
    free = _free(states)
    asked = group in ledger.plan.paired
    referees = tuple(node.name for node in group.referees if node.name in free)
    wanted = tuple(node.name for node in group.nodes if node.name in names)
    # Two alone were asked already: the job that failed was theirs.
    fewest = pairs.FEWEST_NODES if asked else pairs.FEWEST_NODES + 1 - len(referees[:1])
    if group.pair is None or len(wanted) < fewest:
        return

    def run(stage: str, lanes: Sequence[Sequence[Job]], take: Callable[[Job, Reply], None]) -> None:
        ledger.observer.stage(stage)
        _run(ledger, client, lanes, states, free, interval_s, take)

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
    ledger: _Ledger,
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
            states = _states_now(client, states)
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


def _refused_for_all(ledger: _Ledger) -> None:
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


def _run(
    ledger: _Ledger,
    client: SlurmClient,
    lanes: Sequence[Sequence[Job]],
    states: Mapping[str, NodeState],
    free: frozenset[str],
    interval_s: float,
    judge: Callable[[Job, Reply], None] | None = None,
) -> None:
    """Run the lanes' jobs to their end and judge each as soon as it answers."""
    judge = judge or ledger.judge
    lanes = ledger.recall(lanes, judge)
    if not lanes:
        return
    waiting = {job.name: job for lane in lanes for job in lane}

    def take(progress: Progress) -> None:
        ledger.observer.progress(progress)
        replies = [reply for reply in progress.replies if reply.job in waiting]
        # A node may have gone down meanwhile: only Slurm can tell which.
        now = states
        if any(_ended_badly(reply) for reply in replies):
            now = _states_now(client, states)
        for reply in replies:
            job = waiting.pop(reply.job)
            seen = tuple(now[name] for name in job.hosts if name in now)
            busy = any(map(node_states.busy, seen)) and reply.outcome is Outcome.QUEUE_LIMIT
            judge(job, replace(reply, busy=busy, states=seen))

    shared = allocations.share(lanes, free, AT_ONCE)
    batch = client.prepare(lanes, AT_ONCE, shared, ledger.slowest_start_s())
    lost = "the login node no longer knows it"
    interrupted = False
    try:
        batch.start()
        lost = _follow(batch, take, _longest(lanes), interval_s) or lost
    except KeyboardInterrupt:
        interrupted = True
        lost = "the run was interrupted"
        raise
    except PlumblineError as error:
        lost = str(error)
        raise
    finally:
        # Once begun it is brought to its end, whatever is pressed meanwhile.
        with interrupts.held():
            if waiting:
                ledger.observer.stage("cancelling the jobs that are left")
                _quietly(lambda: take(batch.cancel()))
            outcome = Outcome.CANCELLED if interrupted else Outcome.LOST
            for job in tuple(waiting.values()):
                judge(job, Reply(job.name, outcome, reason=lost))
            _quietly(batch.close)


def _free(states: Mapping[str, NodeState]) -> frozenset[str]:
    return frozenset(name for name, state in states.items() if node_states.free(state))


def _ended_badly(reply: Reply) -> bool:
    return reply.outcome in (Outcome.QUEUE_LIMIT, Outcome.RUN_LIMIT) or (
        reply.outcome is Outcome.EXITED and reply.exit_code != 0
    )


def _states_now(client: SlurmClient, before: Mapping[str, NodeState]) -> Mapping[str, NodeState]:
    try:
        return client.node_states()[1]
    except (PlumblineError, SlurmDown) as error:
        log.warning("Slurm could not be asked again: %s", error)
        return before


def _follow(
    batch: Batch, take: Callable[[Progress], None], limit_s: float, interval_s: float
) -> str:
    """Poll until the batch is done; why it was given up, if it was.

    limit_s is how long nothing may end: as long as jobs end, the launcher does its work.
    """
    deadline = time.monotonic() + limit_s
    failures = 0
    while True:
        try:
            progress = batch.poll()
        except PlumblineError as error:
            failures += 1
            log.warning("%s", error)
            if failures >= _PATIENCE:
                return f"lost contact: {error}"
        else:
            failures = 0
            take(progress)
            if progress.replies:
                deadline = time.monotonic() + limit_s
            if progress.done or progress.lost:
                return progress.lost
        if time.monotonic() > deadline:
            return f"no job ended for {limit_s:.0f} s"
        time.sleep(interval_s)


def _longest(lanes: Sequence[Sequence[Job]]) -> float:
    return max(job.longest_s for lane in lanes for job in lane) + _SLACK_S


def _quietly(action: Callable[[], Any]) -> None:
    """Tidying up must not hide the results."""
    try:
        action()
    except PlumblineError as error:
        log.warning("%s", error)
