"""A simulated Slurm with its declaration, and whole runs of the program on it."""

import json
import os
import sys
from pathlib import Path

import yaml

from validation import run, suites
from validation.model import Standing
from validation.tests import simulated_slurm
from validation.tests.conftest import VIRTUAL, declare

ROOT = Path(run.__file__).parent.parent
# What a run leaves behind.
FILES = {
    "jobs",
    "jobs.jsonl",
    "junit.xml",
    "metrics.prom",
    "plan.json",
    "report.html",
    "results.jsonl",
    "run.json",
    "summary.json",
    *(f"{which.value}_nodes.txt" for which in Standing),
}


class Cluster:
    """A simulated Slurm, its declaration, and runs on it."""

    def __init__(self, tmp_path, monkeypatch, capsys):
        self.path = tmp_path
        self.output = tmp_path / "results"
        self.capsys = capsys
        self._monkeypatch = monkeypatch

    def install(self, *nodes, states=None, limits=None, **faults):
        nodes = nodes or VIRTUAL
        document = {**declare(*nodes), "python": sys.executable}
        (self.path / "cluster.json").write_text(json.dumps(document))
        known = {
            name: ["idle", 2, 2000, f"gpu:{m}:{n}" if n else "", "none"] for name, m, n, *_ in nodes
        }
        programs = simulated_slurm.install(self.path, {**known, **(states or {})}, faults)
        self._monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        if limits:
            self._shorten(limits)
        return self

    def _shorten(self, limits):
        suite = yaml.safe_load((suites.FOLDER / "quick.yml").read_text())
        suite["queue_limit_s"] = limits.get("queue", 30)
        suite["node"]["run_limit_s"] = limits.get("run", 30)
        for payload in ("all_reduce", "ddp", "pipeline"):
            suite[payload]["gloo"] |= {
                "run_limit_s": limits.get("run", 30),
                "timeout_s": 1,
                "join_timeout_s": 1,
            }
        folder = self.path / "suites"
        folder.mkdir()
        (folder / "quick.yml").write_text(yaml.safe_dump(suite))
        self._monkeypatch.setattr(suites, "FOLDER", folder)

    def arguments(self, *more):
        declaration = str(self.path / "cluster.json")
        return ["--here", "--declaration", declaration, "--output", str(self.output), *more]

    def run(self, *more):
        """Exit code, stdout and stderr."""
        status = run.main(self.arguments(*more))
        return status, *self.capsys.readouterr()

    def lines(self, name):
        return (self.output / name).read_text().splitlines()

    def summary(self):
        return json.loads((self.output / "summary.json").read_text())

    def verdict_of(self, check, subject):
        for result in self.summary()["results"]:
            if (result["check"], result["subject"]["name"]) == (check, subject):
                return result["verdict"], result["message"]
        raise AssertionError(f"no result of {check} about {subject}")
