"""Results and jobs of a walk so far, and which nodes they speak against."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from cluster.hostlist import compress
from cluster.text import printable
from validation import causes
from validation.checks.comparison import ComparedNode
from validation.checks.identity import Identities
from validation.checks.registry import CHECKS
from validation.execution.journal import Earlier
from validation.model import (
    Contact,
    Job,
    JobReport,
    Key,
    Outcome,
    PlannedCheck,
    Reply,
    Result,
    Tier,
    Verdict,
)
from validation.pairing.results import Found
from validation.plan import Group, Plan
from validation.slurm.client import Progress
from validation.thresholds import Rules

log = logging.getLogger(__name__)


class Observer(Protocol):
    """Who wants to see a run while it goes on."""

    def stage(self, text: str) -> None: ...

    def boots(self, boots: Mapping[str, str]) -> None: ...

    def progress(self, progress: Progress) -> None: ...

    def job(self, report: JobReport) -> None: ...

    def result(self, result: Result) -> None: ...


class Ledger:
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
        self.paired: dict[str, Found] = {}  # by the group's name
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
