"""What the exporter costs Slurm and what a scrape costs, with 300 nodes and 5,000 jobs.

The figures are written to .cache/test/slurm-exporter-scale.md.
"""

import json
import os
import re
import shlex
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.web_listener import password

FOLDER = "/var/lib/prometheus/node-exporter"
FILE, CALLS = f"{FOLDER}/slurm.prom", f"{FOLDER}/calls"
UNIT = "plumbline-slurm-exporter"
LAST_RUN = 'plumbline_exporter_last_run_timestamp_seconds{exporter="slurm"}'
NODES, JOBS, ROUNDS = 300, 5000, 3
TABLE = Path(__file__).resolve().parents[5] / ".cache/test/slurm-exporter-scale.md"

# Each of Slurm's commands, where the exporter finds it first: it writes down that it was called.
# The folder is the one that the exporter's unit may write to.
COUNTED = f"""
for command in sacct sacctmgr scontrol sdiag sinfo sprio squeue sshare sstat; do
    printf '#!/bin/sh\\necho "%s $*" >> {CALLS}\\nexec /usr/bin/%s "$@"\\n' "$command" "$command" \
        > "/usr/local/bin/$command"
    chmod +x "/usr/local/bin/$command"
done
"""

# A new connection each, as a scrape that begins anew, compressed, as Prometheus asks for it.
SCRAPE = """
import base64, gzip, json, ssl, sys, time, urllib.request
given = json.load(sys.stdin)
tls = ssl.create_default_context(cafile="/etc/plumbline/tls/ca.crt")
word = base64.b64encode(f"prometheus:{given['password']}".encode()).decode()
head = {"Authorization": f"Basic {word}", "Accept-Encoding": "gzip"}
request = urllib.request.Request("https://node:9100/metrics", headers=head)
handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls)
open_ = urllib.request.build_opener(*handlers).open
seconds, lines = [], 0
for _ in range(given["scrapes"]):
    begin = time.monotonic()
    with open_(request, timeout=30) as answer:
        text = answer.read()
    seconds.append(time.monotonic() - begin)
    lines = gzip.decompress(text).count(b"\\nslurm_")
print(json.dumps({"seconds": seconds, "series": lines}))
"""

# Reasons that need no limits of an account; 100 jobs run. An array has 1,000 tasks at most.
SUBMIT = f"""
set -e
batch="runuser -u ops -- sbatch --chdir=/tmp --parsable --output=/dev/null --mem=1" # root may not
job() {{ $batch "$@" --wrap='exec sleep 100000'; }}
job --array=1-100 --gres=gpu:1
held=$(job --array=1-1000 --hold)
job --array=1-1000 --begin=now+7days
job --array=1-1000 --dependency="afterok:$held"
job --array=1-1000 --nodes={NODES}
job --array=1-501%1
for _ in $(seq 500); do job --nodes={NODES - 20} --gres=gpu:2; done > /dev/null
"""


@pytest.fixture(autouse=True)
def as_root(host):
    with host.sudo():
        yield


def series(host):
    samples = {}
    for line in host.run(f"cat {FILE}").stdout.splitlines():
        if line and not line.startswith("#"):
            key, _, value = line.rpartition(" ")
            samples[key] = float(value)
    return samples


def until(host, holds, seconds=300):
    limit = time.monotonic() + seconds
    while not holds(samples := series(host)):
        assert time.monotonic() < limit, {
            key: value for key, value in samples.items() if "{node=" not in key
        }
        time.sleep(0.5)
    return samples


def next_round(host):
    """Waits for its end. The next one begins seconds later."""
    before = series(host).get(LAST_RUN, 0)
    until(host, lambda samples: samples.get(LAST_RUN, 0) > before)


def scrape(host, scrapes):
    request = json.dumps({"password": password("prometheus"), "scrapes": scrapes})
    output = host.check_output(f"echo {shlex.quote(request)} | python3 -c {shlex.quote(SCRAPE)}")
    return json.loads(output)


def questions(host):
    """Questions that slurmctld has answered, by kind; this one comes with each look."""
    counts = re.findall(
        r"^\t(REQUEST_\w*INFO\w*) .*count:(\d+)", host.check_output("/usr/bin/sdiag"), re.M
    )
    assert counts, "sdiag counts nothing"
    return Counter({name: int(count) for name, count in counts})


@dataclass(frozen=True)
class Cost:
    """Of ROUNDS rounds: commands by name, slurmctld's answers by kind. memory in MiB."""

    commands: Counter
    answers: Counter
    memory: float
    round_s: float
    scrapes: list
    series: int


def cost(host, scrapes):
    next_round(host)
    host.run_expect([0], f": > {CALLS}")
    before = questions(host)
    scraped = scrape(host, scrapes)
    for _ in range(ROUNDS):
        next_round(host)
    samples = series(host)
    commands = Counter(line.split()[0] for line in host.check_output(f"cat {CALLS}").splitlines())
    answers = questions(host) - before - Counter(REQUEST_STATS_INFO=1)
    process = host.check_output(f"systemctl show --property=MainPID --value {UNIT}")
    peak = re.search(r"VmHWM:\s+(\d+) kB", host.check_output(f"cat /proc/{process}/status"))
    taken = [value for key, value in samples.items() if "_duration_seconds{" in key]
    success = [value for key, value in samples.items() if "_collector_success{" in key]
    assert success == [1] * len(success)
    return Cost(
        commands, answers, int(peak[1]) / 1024, sum(taken), scraped["seconds"], scraped["series"]
    )


@pytest.fixture(scope="module")
def costs(host):
    """By case; in this order, because each builds on the one before."""
    with host.sudo():
        host.run_expect([0], COUNTED)
        host.run_expect([0], "scancel --user=ops")  # those of an earlier run
        names = "slurm_jobs_pending", "slurm_jobs_running"
        until(host, lambda samples: [samples.get(name) for name in names] == [0, 0])
        nodes = "/etc/slurm/nodes.conf"
        host.run_expect([0], f"cp {nodes} /root && grep -m 3 ^NodeName= /root/nodes.conf > {nodes}")
        host.run_expect([0], f"systemctl restart slurmctld {UNIT}")
        until(host, lambda samples: samples.get("slurm_nodes") == 3)
        cases = {"small": cost(host, 1)}
        host.run_expect([0], f"cp /root/nodes.conf {nodes} && systemctl restart slurmctld {UNIT}")
        host.run_expect([0], SUBMIT)
        until(
            host,
            lambda samples: (
                samples.get("slurm_nodes", 0) - samples.get("slurm_nodes_down", 0) == NODES
                and samples["slurm_jobs_pending"] >= JOBS
                and samples["slurm_jobs_running"] > 100
            ),
        )
        cases |= {"large": cost(host, 1), "often": cost(host, 20), "last": cost(host, 10)}
        reasons = {key for key in series(host) if key.startswith("slurm_jobs_pending_reason")}
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        f"| {name} | {len(case.scrapes)} | {dict(case.commands)} | {dict(case.answers)} "
        f"| {case.memory:.0f} MiB | {case.round_s:.2f} s | {max(case.scrapes):.3f} s "
        f"| {case.series} |\n"
        for name, case in cases.items()
    ]
    system = os.environ.get("PLUMBLINE_OS", "debian13")
    TABLE.write_text(f"{system}, {ROUNDS} rounds each; {len(reasons)} reasons\n\n" + "".join(rows))
    return cases


def test_a_round_is_one_of_each_command_whatever_there_is_and_whoever_reads(costs):
    once = dict.fromkeys(("scontrol", "squeue", "sshare", "sdiag"), ROUNDS)
    assert {name: dict(case.commands) for name, case in costs.items()} == dict.fromkeys(costs, once)


def test_slurmctld_answers_the_same_questions_whatever_there_is_and_whoever_reads(costs):
    small = dict(costs["small"].answers)
    assert small["REQUEST_NODE_INFO"] == ROUNDS
    assert {name: dict(case.answers) for name, case in costs.items()} == dict.fromkeys(costs, small)


def test_a_scrape_takes_less_than_half_a_second(costs):
    assert costs["large"].series > NODES * 10
    assert len(costs["last"].scrapes) == 10
    assert max(costs["last"].scrapes) < 0.5


def test_the_exporter_stays_small(costs):
    assert costs["last"].memory < 128


def test_the_jobs_wait_for_many_reasons(costs, host):
    reasons = {key.split('"')[1] for key in series(host) if "pending_reason{" in key}
    assert reasons >= {"JobHeldUser", "BeginTime", "Dependency", "JobArrayTaskLimit", "Priority"}
