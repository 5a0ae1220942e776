"""`scripts/bench fleet`: a real Prometheus with the shipped rules scrapes simulated exporters.

All of the role's files are used: its configuration, its jobs and their relabelling, its rules. Only
TLS and passwords are left out, since all exporters are one process on this machine. Every query of
every board is asked as Grafana asks it, over the time for which there are samples.

    series, samples/s    what Prometheus has in its head, and takes at the interval
    memory               resident, when the last round was taken, and at most
    disk                 the write-ahead log and blocks
    rules                the evaluation of each group, as Prometheus measured it
    queries              of each board: all of its queries, one after the other, and the slowest
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from cluster import version
from playbooks.plugin_utils.documents import to_yaml
from roles.grafana.page import boards
from roles.prometheus.filter_plugins.prometheus import OWN_RULES
from roles.prometheus.plugin_utils import config
from tests.fleet.exporters import OF_THREADS, Fleet, serve

PORT, EXPORTERS = 19590, 19591
FEWER = frozenset(OF_THREADS)
DROPPED = {
    "source_labels": ["__name__", "mode"],
    "regex": "node_cpu_seconds_total;(irq|nice|softirq|steal|user)",
    "action": "drop",
}
Ask = Mapping[str, Any]


def write_config(folder: Path, fleet: Fleet, interval_s: int, fewer: bool) -> None:
    hosts = [{"name": "ctl1", "labels": {"group": "controller"}}] + [
        {"name": name, "labels": {"group": "compute", "partition_group": "gpu"}}
        for name in fleet.names
    ]
    speaks = [{"metrics": "(slurm|plumbline)_node_.+", "hosts": ["ctl1"]}]
    jobs: list[dict[str, Any]] = [
        {"name": "node", "port": 9100, "speaks_of_nodes": speaks},
        {"name": "dcgm", "port": 9400, "hosts": fleet.names},
    ]
    document = config.prometheus_yml(
        jobs=jobs,
        scraping={"scheme": "http"},
        serving={"scheme": "http"},
        alertmanagers=[],
        scrape_interval=f"{interval_s}s",
        external_labels={"cluster": "bench"},
        scrape_configs=[],
        remote_write=[],
    )
    # One process serves everybody: what a real exporter does in a moment waits here for its turn.
    document["global"]["scrape_timeout"] = f"{interval_s}s"
    for entry in document["scrape_configs"]:
        if fewer and entry["job_name"] == "node":
            entry["metric_relabel_configs"].append(DROPPED)
    files = config.files(jobs, hosts, config.rule_files(OWN_RULES, []))
    files["prometheus.yml"] = to_yaml(document)
    for job in jobs:
        path = f"targets/{job['name']}.json"
        files[path] = json.dumps(
            [
                {
                    "targets": [f"127.0.0.1:{EXPORTERS}"],
                    "labels": {
                        **entry["labels"],
                        "instance": entry["targets"][0],
                        "__metrics_path__": f"/{entry['labels']['node']}/{job['name']}",
                    },
                }
                for entry in json.loads(files[path])
            ]
        )
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")


def ask(path: str, **form: str) -> Any:
    url = f"http://127.0.0.1:{PORT}{path}"
    data = urllib.parse.urlencode(form).encode() if form else None
    with urllib.request.urlopen(url, data, timeout=300) as answer:
        return answer.read().decode()


def own_metrics() -> dict[str, float]:
    """Sums over labels."""
    total: dict[str, float] = {}
    rows = re.findall(r"^(\w+)(?:\{[^}]*\})? (\S+)$", ask("/metrics"), re.MULTILINE)
    for name, value in rows:
        total[name] = total.get(name, 0.0) + float(value)
    return total


def now(expr: str) -> float:
    result = json.loads(ask("/api/v1/query", query=expr))["data"]["result"]
    return float(result[0]["value"][1]) if result else 0.0


def memory_mib(pid: int, key: str) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"^{key}:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def disk_mib(folder: Path) -> float:
    return sum(path.stat().st_blocks for path in folder.rglob("*") if path.is_file()) / 2048


def queries(interval_s: int, range_s: int) -> Iterator[tuple[str, str, float, int, str]]:
    """Board, panel, seconds, series of the answer, and what Prometheus said against it."""
    end = time.time()
    for board in boards.own():
        for panel in board.asking:
            step = max(panel.interval_s, interval_s)
            values = {"__rate_interval": f"{4 * interval_s}s", **board.variables}
            for target in panel.targets:
                expr = boards.expanded(target.expr, values, range_s, step)
                form = {"query": expr, "time": f"{end:.0f}"}
                path = "/api/v1/query"
                if not target.instant:
                    path = "/api/v1/query_range"
                    span = {"start": f"{end - range_s:.0f}", "end": f"{end:.0f}"}
                    form = {"query": expr, **span, "step": str(step)}
                begin, wrong, found = time.monotonic(), "", 0
                try:
                    found = len(json.loads(ask(path, **form))["data"]["result"])
                except urllib.error.HTTPError as error:
                    wrong = error.read().decode()[:200]
                except OSError as error:
                    wrong = str(error)
                yield (
                    board.title,
                    f"{panel.title}/{target.ref}",
                    time.monotonic() - begin,
                    found,
                    wrong,
                )


def report(fleet: Fleet, daemon: subprocess.Popen[bytes], data: Path, interval_s: int,
           range_s: int) -> Iterator[str]:  # fmt: skip
    own = own_metrics()
    samples = now("sum(scrape_samples_post_metric_relabeling)")
    up = now("sum(up)")
    yield f"targets up           {up:.0f} of {2 * fleet.nodes + 1}"
    yield f"series               {own['prometheus_tsdb_head_series']:,.0f}"
    yield f"samples a round      {samples:,.0f}: {samples / interval_s:,.0f}/s"
    yield f"memory               {memory_mib(daemon.pid, 'VmRSS'):,.0f} MiB"
    per_series = memory_mib(daemon.pid, "VmRSS") * 2**20 / own["prometheus_tsdb_head_series"]
    yield f"                     {per_series:,.0f} bytes a series"
    taken = own["prometheus_tsdb_head_samples_appended_total"]
    yield f"disk                 {disk_mib(data):,.0f} MiB after {taken:,.0f} samples"
    yield f"CPU                  {own['process_cpu_seconds_total']:,.0f} s in all"
    slowest = now("quantile(0.99, scrape_duration_seconds)")
    yield f"99 % of scrapes      below {slowest:.2f} s"
    yield f"\n{'group of rules':<24}{'rules':>7}{'last, s':>10}   slowest"
    for group in json.loads(ask("/api/v1/rules"))["data"]["groups"]:
        worst = max(group["rules"], key=lambda rule: float(rule["evaluationTime"]))
        bad = [rule["name"] for rule in group["rules"] if rule["health"] == "err"]
        yield (
            f"{group['name']:<24}{len(group['rules']):>7}{group['evaluationTime']:>10.2f}   "
            f"{worst['name']} {worst['evaluationTime']:.2f} s"
            + (f"; FAILED: {', '.join(bad)}" if bad else "")
        )
    yield f"\n{'board':<24}{'queries':>8}{'all, s':>9}{'most series':>13}   slowest"
    rows = list(queries(interval_s, range_s))
    for title in dict.fromkeys(row[0] for row in rows):
        of_board = [row for row in rows if row[0] == title]
        worst_row = max(of_board, key=lambda row: row[2])
        yield (
            f"{title:<24}{len(of_board):>8}{sum(row[2] for row in of_board):>9.2f}"
            f"{max(row[3] for row in of_board):>13,}   {worst_row[1]} {worst_row[2]:.2f} s"
        )
    for title, panel, _, _, wrong in rows:
        if wrong:
            yield f"FAILED: {title}: {panel}: {wrong}"


def _serve(fleet: Fleet) -> None:
    asyncio.run(serve(fleet, EXPORTERS))


def prometheus() -> str:
    for folder in ("/usr/bin", ".cache/checkers/usr/bin"):
        path = config_root() / folder if not folder.startswith("/") else Path(folder)
        if (path / "prometheus").exists():
            return str(path / "prometheus")
    sys.exit("bench: prometheus is missing; run scripts/test unit once, or install it")


def config_root() -> Path:
    return Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/bench fleet",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--nodes", type=int, default=960, metavar="N")
    parser.add_argument("--gpus", type=int, default=8, metavar="N", help="of each node")
    parser.add_argument("--threads", type=int, default=224, metavar="N", help="of each node")
    parser.add_argument("--interval", type=int, default=60, metavar="S", help="of scrapes")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="of scrapes")
    parser.add_argument("--all-series", action="store_true", help="those for each thread as well")
    parser.add_argument("--folder", type=Path, help="for samples and the log; kept")
    version.add_option(parser)
    options = parser.parse_args(arguments)
    fewer = not options.all_series
    off = FEWER if fewer else frozenset()
    fleet = Fleet(options.nodes, options.gpus, options.threads, off)
    print(f"{date.today()}  {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"$ {shlex.join(['scripts/bench', 'fleet', *arguments])}")
    with tempfile.TemporaryDirectory(prefix="plumbline-fleet-") as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        write_config(folder, fleet, options.interval, fewer)
        exporters = multiprocessing.Process(target=_serve, args=(fleet,), daemon=True)
        exporters.start()
        command = [
            prometheus(),
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{PORT}",
        ]
        with (folder / "prometheus.log").open("wb") as log:
            daemon = subprocess.Popen(command, stdout=log, stderr=log)
            try:
                begin = time.monotonic()
                while time.monotonic() < begin + options.rounds * options.interval:
                    time.sleep(1)
                    if daemon.poll() is not None:
                        sys.exit(f"bench: Prometheus ended; see {folder}/prometheus.log")
                range_s = int(time.monotonic() - begin)
                print(subprocess.check_output([command[0], "--version"], text=True).split("(")[0])
                for line in report(fleet, daemon, folder / "data", options.interval, range_s):
                    print(line, flush=True)
            finally:
                daemon.terminate()
                daemon.wait(300)
                exporters.terminate()
    return 0
