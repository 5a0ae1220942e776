"""The killed training goes on in other processes on other nodes, as if nothing had happened.

What it checks   The other half of the group's nodes looks at every file that `checkpoint` wrote. A
                 file that is torn, stale (of the save before), swapped with another rank's, missing
                 or spoiled fails, with the file's name and the rank that wrote it. Two nodes look
                 at each file; one that only one node sees wrong is that node's fault. Then these
                 nodes load the checkpoint for their own number of ranks, and train on. All that was
                 loaded, and the losses and parameters after it, equal those of a training that was
                 never interrupted: bit by bit where the ranks compute alike, within the tolerances
                 of ddp elsewhere.
Why it matters   A checkpoint that cannot be loaded, or an old one that can, costs days of work.
What to do       Stale or torn: the file server, or the client of the node that wrote the file,
                 acknowledged writes that it did not keep; check its log, its mount options (NFS:
                 hard, not async on the server) and its caches. Seen by one node only: that node's
                 mount is at fault. Nothing to load: the checkpoint is not where these nodes look
                 for it; compare their mounts with those of the nodes that wrote. What was loaded:
                 the files are right, so these nodes' memory or their version of torch is not;
                 compare it with that of the nodes that wrote.
                 $ ssh {node} 'findmnt; dmesg | grep -i -e nfs -e lustre -e error'
"""

from collections.abc import Sequence

from cluster.text import printable
from validation.checks import commands, restart, transport
from validation.checks.checkpoint import Item
from validation.checks.document import Document, Fields, Unusable
from validation.checks.together import Judged, answer
from validation.model import Job, Metric, Reply, Result, Threshold, Tier, Verdict, When
from validation.thresholds import Rules

NAME = "resume"
TIER = Tier.CLUSTER
PAYLOAD = "resume"

CAUSES = {
    "Stale or torn": When(r"of rank \d+ on \S+ (?!.*sees it so)"),
    "Seen by one node only": When(r"of rank \d+ on \S+ (?=.*sees it so)"),
    "Nothing to load": When(r"nothing to resume", ("ssh {node} 'findmnt; df -h'",)),
    "What was loaded": When(r"what was loaded of them", (commands.KERNEL, commands.TORCH)),
}
SHARED = (restart, transport)

_SOUND = Threshold("=", 0, "files", "defined", "sha256 of what each rank wrote")
_LOADED = Threshold("=", 0, "tensors", "defined", "sha256 of each tensor when it was written")
_SHOWN = 3
_MIB = 1 << 20


def part(nodes: Sequence[Item]) -> Sequence[Item]:
    """Which of a group's nodes resume: the last half, two at least where there are three.

    None of them has written where there are four or more. Of three, one has; of two, the second
    resumes alone; a node alone resumes what it wrote.

    >>> [part("abcde"[:count]) for count in (1, 2, 3, 4, 5)]
    ['a', 'b', 'bc', 'cd', 'de']
    """
    return nodes[-max(2, len(nodes) // 2) :] if len(nodes) > 2 else nodes[-1:]


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Judged:
        measured = document.measured
        if nothing := _nothing(job, document):
            return nothing
        if wrong := _wrong_files(job, document):
            return wrong
        kept, steps = job.config["kept"], job.config["steps"]
        assert isinstance(kept, int)
        assert isinstance(steps, int)
        if measured.whole("step") != kept:
            raise Unusable(f"the checkpoint is of step {measured.whole('step')}, not {kept}")
        part = restart.read(job, document, kept, steps)
        if names := measured.values.get("wrong_state"):
            return _wrong_state(names)
        if names != []:
            raise Unusable("the answer does not say what was loaded")
        files, seconds = measured.whole("files_checked"), measured.number("load_s")
        if files < 2 or measured.whole("written_by") == 0 or seconds <= 0:
            raise Unusable("no checkpoint was loaded")
        more = (
            Metric("read", round(measured.whole("bytes") / _MIB, 3), "MiB"),
            Metric("files", files),
            Metric("written by", measured.whole("written_by"), "ranks"),
            Metric("time to load", round(seconds, 3), "s"),
        )
        return restart.judge(job, part, rules, more)

    return answer(NAME, job, reply, judge)


def _nothing(job: Job, document: Document) -> Judged | None:
    """The failure where there is no checkpoint: of those nodes that alone do not see it."""
    missing = document.measured.items("missing")
    if not missing:
        return None
    hosts = [host for host in job.hosts if host in {item.text("host") for item in missing}]
    blamed = tuple(hosts) if hosts and set(hosts) < set(document.proof.hosts) else ()
    message = printable(f"nothing to resume: {missing[0].text('sentence')}", 250)
    if blamed:
        message += f", on {', '.join(blamed[:8])} alone"
    value = Metric("ranks without a checkpoint", len(missing), "ranks")
    threshold = Threshold("=", 0, "ranks", "defined", "the check checkpoint wrote one")
    return Judged(Verdict.FAIL, message, value, threshold, blamed)


def _wrong_files(job: Job, document: Document) -> Judged | None:
    """The failure of files that are not what was written."""
    measured = document.measured
    count = measured.whole("problems_in_all")
    problems = [item for item in measured.items("problems") if item.values]
    if not count and not problems:
        return None
    if not problems:
        raise Unusable(f"{count} files are wrong, and none is named")
    hosts = set(document.proof.hosts)
    seers = [set(_seen_by(item)) for item in problems]
    message = "; ".join(map(_sentence, problems[:_SHOWN]))
    if count > _SHOWN:
        message += f"; and {count - _SHOWN} more files"
    # What all nodes read alike lies so on the server: none of these nodes did it.
    only = set().union(*seers)
    blamed = tuple(host for host in job.hosts if host in only) if only < hosts else ()
    if blamed:
        message += f"; only {', '.join(blamed[:8])} sees it so"
    value = Metric("wrong files", count, "files")
    return Judged(Verdict.FAIL, message, value, _SOUND, blamed)


def _sentence(item: Fields) -> str:
    who = f"rank {item.whole('rank')} on {item.text('host')}"
    return f"{item.text('file')} of {who} {item.text('problem')}"


def _seen_by(item: Fields) -> list[str]:
    hosts = item.values.get("seen_by")
    if not isinstance(hosts, list) or not all(isinstance(host, str) for host in hosts):
        raise Unusable("the answer does not say who sees a wrong file")
    return hosts


def _wrong_state(names: object) -> Judged:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Unusable(f"wrong_state is no list of names: {names!r}")
    shown = ", ".join(names[:4]) + (" …" if len(names) > 4 else "")
    message = f"the files are right, but what was loaded of them is not what was written: {shown}"
    value = Metric("wrong tensors", len(names), "tensors")
    return Judged(Verdict.FAIL, message, value, _LOADED)
