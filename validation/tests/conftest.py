"""A small declared cluster, and the golden files."""

import json
import os
import signal
from pathlib import Path

import pytest

from cluster import declaration
from validation import plan, suites

GOLDEN = Path(__file__).parent / "golden"


def declare(*nodes, **changes):
    """A declaration as JSON has it. nodes: (name, model, count) or (name, model, count, fabric)."""
    entries = [
        {
            "name": name,
            "cpus": 2,
            "memory_mb": 2000,
            "gpus": {"model": model, "count": count},
            "fabric": rest[0] if rest else "ethernet",
        }
        for name, model, count, *rest in nodes
    ]
    document = {
        "schema": 1,
        "cluster": "plumbline",
        "login": ["login1"],
        "controller": ["ctl1"],
        "python": "/opt/plumbline/bin/python",
        "partitions": [{"name": "gpu", "nodes": [n["name"] for n in entries], "default": True}],
        "nodes": entries,
    }
    return {**document, **changes}


VIRTUAL = (("gpu1", "virtual", 2), ("gpu2", "virtual", 2))


def make_plan(*nodes, selection=None, suite="quick", thresholds=None, environments=None, shared=()):
    """`environments`: by a node's name, what the inventory declares for its payloads; `shared`: the
    shared filesystems of each."""
    document = declare(*(nodes or VIRTUAL))
    for node in document["nodes"]:
        if shared:
            node["shared_filesystems"] = list(shared)
        if node["name"] in (environments or {}):
            node["environment"] = environments[node["name"]]
    return plan_of(document, selection, suite, thresholds)


def plan_of(document, selection=None, suite="quick", thresholds=None):
    """The plan for a declaration as JSON has it; the suite by its name, or as it is."""
    declared = declaration.parse(document, "test")
    chosen = selection or plan.Selection()
    run_id, secret = "20260102T030405Z-ab12", "0123456789abcdef"
    loaded = suites.load(suite) if isinstance(suite, str) else suite
    return plan.make(declared, loaded, chosen, run_id, thresholds, secret)


def compact(value, indent=""):
    """JSON with as much on a line as fits, so that a golden file is short."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(indent + line) <= 140:
        return line
    inner = f"{indent}  "
    if isinstance(value, dict):
        items = [f"{json.dumps(key)}: {compact(item, inner)}" for key, item in value.items()]
    else:
        items = [compact(item, inner) for item in value]
    first, *others = items
    lines = [first]
    for item in others:
        lines[-1] += ","
        if len(f"{inner}{lines[-1]} {item}") > 140:
            lines.append(item)
        else:
            lines[-1] += f" {item}"
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return "\n".join([begin, *(f"{inner}{line}" for line in lines), f"{indent}{end}"])


@pytest.fixture(scope="session", autouse=True)
def signals_arrive():
    """Also where nohup, or a shell that started the tests in the background, has them ignored."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def cluster(tmp_path, monkeypatch, capsys):
    """A simulated Slurm, and whole runs of the program on it."""
    # Not above: it needs this module, and few tests need it.
    from validation.tests.simulated_cluster import Cluster  # noqa: PLC0415

    return Cluster(tmp_path, monkeypatch, capsys)


@pytest.fixture
def golden():
    """Compares a text with a file; PLUMBLINE_GOLDEN=write writes the files anew."""

    def compare(name, text):
        path = GOLDEN / name
        if os.environ.get("PLUMBLINE_GOLDEN") == "write":
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return compare
