"""No node's disk, memory or cores are far slower than those of alike nodes.

What it checks   The speed of the local disk, of copies in memory and of the median core is compared
                 with its median over all nodes with the same GPUs and CPUs; there must be at least
                 three such nodes. Disks of one kind are compared with each other, as far as their
                 speed was measured. Less than a tenth of the median is a failure, less than a third
                 a warning. Slow nodes show while they are fewer than half of those alike: one of
                 three or four, two of five.
Why it matters   No number that Plumbline ships says how fast your disks and processors are. A disk
                 at a hundredth of its speed, or a processor at its lowest clock, makes every job
                 wait for this node.
What to do       Compare the named node with a fast one. A slow disk: look at the drive and its
                 wear, and at what else writes to it. Slow memory or cores: look at the memory
                 modules and their slots, and at the processor's power profile in the firmware. Too
                 few nodes alike: no node is at fault; select more of them, or declare what is alike
                 as alike.
                 $ ssh {node} 'lsblk -o NAME,MODEL,ROTA,SIZE; findmnt -T /tmp'
                 $ ssh {node} 'cpupower frequency-info; dmidecode --type memory | grep -i speed'
"""

import re
import statistics
from collections.abc import Iterable, Iterator, Sequence

from cluster.text import printable
from validation.checks import cores, disk, host, host_memory
from validation.checks.comparison import ComparedNode, Kind, alike_host, of_each_kind
from validation.checks.document import Document, Fields, Unusable
from validation.model import Job, Metric, Result, Threshold, Tier, Verdict, When, worst

NAME = "host_stragglers"
TIER = Tier.NODE
PAYLOAD = host.PAYLOAD

# A median stands while fewer than half of its values are wrong: of three one, wherever it lies
# (Donoho and Huber, The Notion of Breakdown Point, 1983). Shares of it that are given need no
# spread of the values, which three would not tell.
FEWEST_ALIKE = 3

CAUSES = {
    "A slow disk": When(
        r"disk (?:write|read)", ("ssh {node} 'lsblk -o NAME,MODEL,ROTA,SIZE; findmnt -T /tmp'",)
    ),
    "Slow memory or cores": When(
        r"memory copy|hashing of a core",
        ("ssh {node} 'cpupower frequency-info; dmidecode --type memory | grep -i speed'",),
    ),
    "Too few nodes alike": When(r"too few to find|could be compared", ("sinfo --Node --long",)),
}

Figures = dict[str, Metric]  # by what they can be compared with


def compare(members: Sequence[ComparedNode]) -> list[Result]:
    limits = {member.job.name: member.rules.common.limits for member in members}

    def judge(kind: Kind, answers: Sequence[tuple[Job, Document, Figures]]) -> Iterable[Result]:
        values: dict[str, list[float]] = {}
        for _, _, figures in answers:
            for what, figure in figures.items():
                values.setdefault(what, []).append(float(figure.value))
        medians = {
            what: statistics.median(numbers)
            for what, numbers in values.items()
            if len(numbers) >= FEWEST_ALIKE
        }
        for job, document, figures in answers:
            limit = limits[job.name]["alike_host_share"]
            yield _result(kind, job, document, figures, medians, limit)

    return of_each_kind(NAME, members, _figures, judge, alike_host)


def _figures(job: Job, document: Document) -> Figures:
    """The speeds of an answer. Raises Unusable where it has none."""
    figures = dict(_of(document))
    if not figures:
        raise Unusable("nothing was measured that alike nodes could be compared by")
    return figures


def _of(document: Document) -> Iterator[tuple[str, Metric]]:
    """A disk behind a cache, and memory too small for the measurement, have no speed."""
    found = _found(document, disk.NAME, "disk")
    if (error := found.maybe_text("error")) is not None:
        raise Unusable(f"the disk was not measured: {printable(error, 200)}", Verdict.INCONCLUSIVE)
    if disk.direct(found):
        size, kind = found.whole("bytes"), disk_kind(found.text("source"))
        for what, name in ((disk.WRITE, "write_s"), (disk.READ, "read_s")):
            yield f"{what}, {kind}", host.speed(what, size, found.number(name))
    memory = _found(document, host_memory.NAME, "memory")
    copied = host_memory.speed(memory)
    if not host_memory.cached(memory):
        yield host_memory.COPY, copied
    all_cores, _ = cores.read(_found(document, cores.NAME, "cores"))
    median = statistics.median(core.together for core in all_cores)
    yield cores.SPEED, Metric(cores.SPEED, float(f"{median:.4g}"), host.GBS)


def _found(document: Document, check: str, name: str) -> Fields:
    """What was found of a part. One that could not be tried is the matter of its own check."""
    try:
        return host.part(document, name)
    except Unusable as problem:
        text = f"not measured, see {check}: {problem}"
        raise Unusable(printable(text, 200), Verdict.INCONCLUSIVE) from problem


def disk_kind(source: str) -> str:
    """What kind of disk a filesystem lies on, by the kernel's name of it.

    >>> [disk_kind(source) for source in ("/dev/nvme0n1p2", "/dev/sda1", "overlay")]
    ['nvme', 'sd', 'overlay']
    """
    match = re.match(r"/dev/(nvme|sd|vd|xvd|md|mapper|dm)", source)
    return match[1] if match else source.rpartition("/")[2]


def _result(
    kind: Kind,
    job: Job,
    document: Document,
    figures: Figures,
    medians: dict[str, float],
    limit: Threshold,
) -> Result:
    shares = {
        what: float(figure.value) / medians[what]
        for what, figure in figures.items()
        if what in medians
    }
    verdicts = {what: limit.judge(share) for what, share in shares.items()}
    verdict, message = worst(verdicts.values()), ""
    if not shares:
        verdict = Verdict.INCONCLUSIVE
        message = (
            f"figures of fewer than {FEWEST_ALIKE} alike nodes are too few to find a slow one"
            f"{kind.missing}"
        )
    elif verdict is not Verdict.PASS:
        message = "; ".join(
            f"{figures[what].name} {figures[what].value} {host.GBS}, "
            f"the median of alike nodes is {medians[what]:.3g}"
            for what, own in verdicts.items()
            if own is verdict
        )
    elif lacking := [what for what in figures if what not in shares]:
        message = f"too few alike nodes have the same to compare: {', '.join(lacking)}"
    lowest = min(shares, key=lambda what: shares[what], default=None)
    value = (
        None
        if lowest is None
        else Metric(f"{figures[lowest].name}, of the median", float(f"{shares[lowest]:.3g}"))
    )
    return Result(
        NAME,
        TIER,
        job.subject,
        verdict,
        printable(message, 300),
        value,
        None if lowest is None else limit,
        tuple(figures.values()),
        document.proof,
    )
