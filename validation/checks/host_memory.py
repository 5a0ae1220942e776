"""A node's memory keeps what is copied, on all cores at once.

What it checks   One process per core copies arrays that are together several times as large as the
                 last-level caches, for at least as long as the suite says. Every byte of the copy
                 is right. The bytes read and written per second are always reported. They are held
                 against what any server's memory does, and against a threshold of yours if there is
                 one.
Why it matters   Data loaders and copies to the GPUs depend on the host's memory bandwidth. A memory
                 module that is missing or in the wrong slot halves it without an error.
What to do       Wrong bytes: take the node out of service and replace the module that the firmware
                 names. Slow: compare the modules, their slots and speed, and the firmware's NUMA
                 settings with those of a fast node. No speed known: the node has too little free
                 memory beside its caches; free some, and repeat the run.
                 $ ssh {node} 'free -m; lscpu | grep -i numa'
                 $ ssh {node} dmidecode --type memory
"""

from validation.checks import host
from validation.checks.document import Document, Fields, Unusable, answer
from validation.model import Job, Metric, Reply, Result, Tier, When
from validation.payloads.host_memory import CACHES
from validation.thresholds import Rules

NAME = "host_memory"
TIER = Tier.NODE
PAYLOAD = host.PAYLOAD

CAUSES = {
    "Wrong bytes": When(r"bytes came back", ("ssh {node} dmidecode --type memory",)),
    "No speed known": When(r"too small for these caches", ("ssh {node} 'free -m; lscpu'",)),
    "Slow": When(r"are needed|any machine does"),
}

COPY = "memory copy"


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Result:
        memory = host.part(document, "memory")
        size, caches = memory.whole("array_bytes"), memory.whole("cache_bytes")
        cores = memory.items("cores")
        rates = _rates(memory, _asked_s(job))
        wrong = sum(core.whole("wrong") for core in cores)
        metrics = [
            Metric("memory copy of the slowest core", round(min(rates) / 1e9, 3), host.GBS),
            Metric("memory cores", len(cores), "cores"),
            Metric("memory array of a core", size // 2**20, "MiB"),
            Metric("memory caches", caches // 2**20, "MiB"),
        ]
        # Where there is too little memory the copies stay in the caches: that is another speed.
        unjudged = "the arrays are too small for these caches: the memory was not measured"
        return host.concluded(
            NAME,
            job,
            document,
            rules,
            wrong,
            [speed(memory)],
            metrics,
            unjudged if cached(memory) else "",
            {COPY: rules.common.limits["memory_copy_gbs"]},
        )

    return answer(NAME, job, reply, judge)


def speed(memory: Fields) -> Metric:
    """Of all cores together. Raises Unusable for cores that cannot have copied so."""
    return host.speed(COPY, round(sum(_rates(memory))), 1.0)


def cached(memory: Fields) -> bool:
    """Whether the copies stayed in the caches, because there was too little memory."""
    size, caches = memory.whole("array_bytes"), memory.whole("cache_bytes")
    return size * len(memory.items("cores")) < CACHES * caches


def _rates(memory: Fields, least_s: float = 0) -> list[float]:
    """Bytes that each core read and wrote in a second."""
    size, cores = memory.whole("array_bytes"), memory.items("cores")
    if len({core.whole("cpu") for core in cores}) != len(cores) or not cores or not size:
        raise Unusable("the cores that copied are not each named once, or copied nothing")
    rates = []
    for core in cores:
        copies, wrong, cpu = core.whole("copies"), core.whole("wrong"), core.whole("cpu")
        seconds = core.number("seconds")
        if copies == 0 or wrong > size or seconds < least_s or seconds == 0:
            raise Unusable(
                f"CPU {cpu}: {copies} copies in {seconds:g} s, {wrong} bytes of {size} wrong"
            )
        rates.append(2 * size * copies / seconds)
    return rates


def _asked_s(job: Job) -> float:
    """How long each core had to copy, as it was asked."""
    seconds = job.config["memory_s"]
    assert isinstance(seconds, int | float)  # the suite was read strictly
    return float(seconds)
