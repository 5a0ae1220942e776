"""A Slurm client that answers as told, and the walk through the tiers with it."""

from cluster.slurm.node_states import NodeState
from validation import tiers
from validation.model import (
    Accounting,
    Contact,
    MungeReply,
    Outcome,
    Reply,
    Verdict,
    node_reports,
    overall,
    settle,
)
from validation.slurm.client import JobProgress, Progress
from validation.tests import standin


class FakeBatch:
    def __init__(self, slurm, lanes):
        self.slurm = slurm
        self.jobs = [job for lane in lanes for job in lane]
        self.polls = 0

    def start(self):
        self.slurm.log.append(("start", [job.name for job in self.jobs]))
        if self.slurm.start_error:
            raise self.slurm.start_error

    def poll(self):
        self.polls += 1
        if self.slurm.interrupt_on in [job.name for job in self.jobs]:
            raise KeyboardInterrupt
        if self.slurm.poll_errors:
            raise self.slurm.poll_errors.pop()
        replies = tuple(reply for job in self.jobs if (reply := self.slurm.reply(job)))
        done = tuple(JobProgress(job.name, "done", "1", 1.0, "") for job in self.jobs)
        return Progress(not self.slurm.lost, done, replies, self.slurm.lost)

    def cancel(self):
        self.slurm.log.append(("cancel", [job.name for job in self.jobs]))
        return Progress(True, (), ())

    def close(self):
        self.slurm.log.append(("close", [job.name for job in self.jobs]))


class FakeSlurm:
    """replies: by job, a Reply, None for silence, or what to change in a healthy answer."""

    via = "test"
    notes = ()

    def __init__(self, plan, states=None, replies=None):
        self.plan = plan
        self.states = states or {}
        self.replies = replies or {}
        self.log = []
        self.polls = 0
        self.prepared = []
        self.shared = []
        self.start_error = None
        self.poll_errors = []
        self.lost = ""
        self.interrupt_on = None
        self.down = None
        self.accounting_error = ""
        self.pyxis = True
        self.contacts = Contact()
        self.looked = []
        self.slowest = []
        self.later = {}  # what Slurm says of nodes when it is asked again
        self.change = lambda job, reply: reply  # what becomes of a job's reply

    def node_states(self):
        if self.down:
            raise self.down
        states = {
            node.name: NodeState(node.name, "idle", 2, 2000, node.gpus.request)
            for node in self.plan.nodes
        }
        later = self.later if self.polls else {}
        self.polls += 1
        return "24.11.5", {**states, **self.states, **later}

    def contact(self, names):
        self.looked.append(list(names))
        return self.contacts

    def knows_containers(self):
        return self.pyxis

    def accounting(self):
        return Accounting("accounting_storage/slurmdbd", error=self.accounting_error)

    def prepare(self, lanes, at_once, shared=(), slowest_start_s=None):
        self.slowest.append(slowest_start_s)
        self.prepared.append(lanes)
        self.shared.append(shared)
        return FakeBatch(self, lanes)

    def reply(self, job):
        reply = self._reply(job)
        return reply and self.change(job, reply)

    def _reply(self, job):
        change = self.replies.get(job.name, {})
        if change is None or isinstance(change, Reply):
            return change
        if job.payload == "node":
            config = {**job.config, "munge_credential": "x"}
            document = standin.node(job.hosts[0], config, **change)
        elif job.payload == "cuda":
            document = standin.cuda(job.hosts[0], job.config, **change)
        else:
            fabric = job.nodes[0].fabric
            document = getattr(standin, job.payload)(
                job.hosts, job.config, job.ranks_per_node, fabric=fabric, **change
            )
        text = standin.line(document)
        now = document["measured"].get("time_ns", 1)
        munge = MungeReply(None, 0, "Success (0)")
        return Reply(job.name, Outcome.EXITED, 0, "7", text, document_ns=now, munge=munge)

    @property
    def started(self):
        return [names for what, names in self.log if what == "start"]


class Silent:
    def __init__(self):
        self.results = []

    def stage(self, text):
        pass

    def progress(self, progress):
        pass

    def job(self, report):
        pass

    def result(self, result):
        self.results.append(result)


def walk(slurm):
    observer = Silent()
    outcome = tiers.walk(slurm.plan, slurm, observer, interval_s=0)
    assert list(outcome.results) == observer.results
    # Whatever happened: every planned check has exactly one result.
    assert sorted((r.check, r.subject.name) for r in outcome.results) == sorted(
        (c.check, c.subject.name) for c in slurm.plan.checks
    )
    return outcome


class Walked:
    """What a walk through the tiers came to: verdicts and messages by check and subject."""

    def __init__(self, plan, walk):
        self.walk, self.jobs, self.results = walk, walk.jobs, walk.results
        self.verdict = overall(plan.checks, walk.results)
        settled = settle(plan.checks, walk.results)
        self.verdicts = {(r.check, r.subject.name): r.verdict for r in settled}
        self.messages = {(r.check, r.subject.name): r.message for r in settled}
        self.nodes = node_reports(plan.nodes, walk.states, settled, plan.suite_checks, plan.checks)
        self.standings = {report.node.name: report.standing for report in self.nodes}
        self.passed = self._messages(Verdict.PASS)
        self.failed = self._messages(Verdict.FAIL)
        self.unknown = self._messages(Verdict.INCONCLUSIVE)

    def _messages(self, verdict):
        return {(r.check, r.subject.name): r.message for r in self.results if r.verdict is verdict}


def walked(slurm):
    return Walked(slurm.plan, walk(slurm))
