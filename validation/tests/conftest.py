"""A small declared cluster, and the golden files."""

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


def make_plan(*nodes, selection=None, suite="quick", thresholds=None, environments=None):
    """`environments`: by a node's name, what the inventory declares for its payloads."""
    document = declare(*(nodes or VIRTUAL))
    for node in document["nodes"]:
        if node["name"] in (environments or {}):
            node["environment"] = environments[node["name"]]
    declared = declaration.parse(document, "test")
    chosen = selection or plan.Selection()
    run_id, secret = "20260102T030405Z-ab12", "0123456789abcdef"
    return plan.make(declared, suites.load(suite), chosen, run_id, thresholds, secret)


@pytest.fixture(scope="session", autouse=True)
def signals_arrive():
    """Also where nohup, or a shell that started the tests in the background, has them ignored."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def golden():
    """Compares a text with a file; PLUMBLINE_GOLDEN=write writes the files anew."""

    def compare(name, text):
        path = GOLDEN / name
        if os.environ.get("PLUMBLINE_GOLDEN") == "write":
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return compare
