"""The ports of the declared fabric count few errors.

What it checks   Of each port that is meant (see infiniband), how often its link went down or was
                 trained again since its card started, and its symbol errors for each hour since the
                 node started, are below the limits of common.yml. While the node is looked at, for
                 two seconds, the link does not go down and there are not ten symbol errors more.
Why it matters   A cable or a transceiver that is about to fail is up, at full rate, and repeats
                 what it lost: jobs are slower or end with a timeout, and the ports look well.
What to do       A link that goes down: clean or replace the cable or transceiver at this port, then
                 the card. Symbol errors: the same, and if many nodes count errors towards one
                 switch, look there. Reset the counters afterwards, or restart the node: they only
                 ever grow.
                 $ ssh {node} 'cd /sys/class/infiniband; grep . */ports/*/counters/*'
                 $ ssh {node} 'sudo perfquery -x; sudo mlxlink -d DEVICE -c -e'
"""

from collections.abc import Iterator, Mapping

from cluster.text import printable
from validation.checks import infiniband
from validation.checks.document import Document, Fields, Unusable, answer
from validation.model import Job, Metric, Reply, Result, Threshold, Tier, Verdict, When, worst
from validation.thresholds import Rules

NAME = "port_errors"
TIER = Tier.NODE
PAYLOAD = "host"

CAUSES = {
    "A link that goes down": When(r"the link (?:went down|trained again)"),
    "Symbol errors": When(r"symbol errors"),
}

_THRESHOLD = Threshold(
    "=", 0, "ports", "defined", "each port held against the limits of common.yml"
)
_SECONDS_PER_HOUR = 3600
_TIMES = (
    ("link_downed", "ib_link_downed", "the link went down {:,} times"),
    ("link_error_recovery", "ib_link_error_recovery", "the link trained again {:,} times"),
)
_NEW = (
    ("link_downed", "ib_new_link_downed", "the link went down {:,} times in {:.0f} s"),
    ("symbol_error", "ib_new_symbol_errors", "{:,} symbol errors in {:.0f} s"),
)
Found = tuple[Verdict, str]


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    node, limits = job.nodes[0], rules.common.limits
    hcas = dict(job.environment).get("NCCL_IB_HCA")

    def judge(document: Document) -> Result:
        answered = document.measured.inner("infiniband")
        # What is wrong with the ports themselves is the matter of infiniband.
        infiniband.judged(answered, node.fabric, hcas)
        ports = infiniband.meant(answered.items("ports"), node.fabric, hcas)
        if not ports:
            raise Unusable("there is no port to look at, see infiniband", Verdict.INCONCLUSIVE)
        uptime, seconds = answered.number("uptime_s"), answered.number("seconds")
        if uptime <= 0 or seconds <= 0:
            raise Unusable(f"counters of {seconds:g} s on a node that is up for {uptime:g} s")
        found = {
            name: [*_counted(item, uptime, limits), *_grown(item, seconds, limits)]
            for name, item in ports.items()
        }
        verdict = worst([Verdict.PASS, *(own for those in found.values() for own, _ in those)])
        if verdict is Verdict.FAIL and not infiniband.every_port_of(node.fabric, hcas):
            verdict = Verdict.WARN
        parts = [f"{name}: {text}" for name, those in found.items() for _, text in _worst(those)]
        return Result(
            NAME,
            TIER,
            job.subject,
            verdict,
            printable("; ".join(parts), 300),
            Metric("with errors", sum(map(bool, found.values())), "ports"),
            _THRESHOLD,
            (Metric("up for", round(uptime / _SECONDS_PER_HOUR, 1), "h"),),
            document.proof,
        )

    return answer(NAME, job, reply, judge)


def _worst(found: list[Found]) -> list[Found]:
    return sorted(found, key=lambda item: item[0] is not Verdict.FAIL)


def _counted(port: Fields, uptime_s: float, limits: Mapping[str, Threshold]) -> Iterator[Found]:
    """Since the card or the node started. Not every driver counts everything."""
    counters = port.inner("counters")
    for name, limit, words in _TIMES:
        if counters.has(name):
            count = counters.whole(name)
            yield from _over(limits[limit], count, words.format(count))
    if counters.has("symbol_error"):
        count = counters.whole("symbol_error")
        # In its first hour a node's links train: what they count then is not made more of.
        hourly = count / max(1.0, uptime_s / _SECONDS_PER_HOUR)
        text = f"{count:,} symbol errors, {hourly:,.0f} an hour"
        yield from _over(limits["ib_symbol_errors_per_hour"], hourly, text)


def _grown(port: Fields, seconds: float, limits: Mapping[str, Threshold]) -> Iterator[Found]:
    first, last = port.inner("counters"), port.inner("later")
    for name, limit, words in _NEW:
        if first.has(name) and last.has(name):
            grown = last.whole(name) - first.whole(name)
            # Somebody set them back meanwhile: nothing is known of these seconds.
            yield from _over(limits[limit], max(0, grown), words.format(grown, seconds))


def _over(limit: Threshold, count: float, text: str) -> Iterator[Found]:
    verdict = limit.judge(count)
    if verdict is not Verdict.PASS:
        yield verdict, text
