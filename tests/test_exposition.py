"""Every program's metrics with words of people who mean harm: Prometheus reads what was written.

A label that ends early would be another series, and a line too much would take all of a host's
metrics away: node_exporter drops a file that it cannot parse.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cluster.exporter import Family, write
from cluster.text import label
from roles.gpu_exporter.files.gpu_exporter import textfile
from roles.node_exporter.plugin_utils import expiry
from roles.prometheus.plugin_utils import config
from roles.slurm_exporter.files.slurm_exporter import jobs, series
from tests.checkers import checker
from tests.processes import run

HOSTILE = [
    'a"b',
    "a\\",
    '\\"} 1\nevil{x="',
    "a\nslurm_nodes 0",
    "{}=,|",
    "\u202ecod.exe",
    "\x1b[2J\x07",
    "名前 ü 🐍",
    "# HELP x",
    "a" * 5000,
]


def of_gpus(word: str, folder: Path) -> str:
    sample = textfile.Sample({"hpc_job": word}, 1)
    return textfile.text([textfile.Family("m", textfile.GAUGE, "A value.", (sample,))])


def of_slurm(word: str, folder: Path) -> str:
    file = folder / "x.prom"
    write(file, [Family("m", "A value.", ("hpc_job",), {(word,): 1.0})])
    return file.read_text(encoding="utf-8")


def of_certificates(word: str, folder: Path) -> str:
    return expiry.textfile({word: "none"})


def of_the_inventory(word: str, folder: Path) -> str:
    return config.expected_gpus([{"node": "gpu1", "model": word, "count": 1, "names": [word]}], 8)


WRITERS = [of_gpus, of_slurm, of_certificates, of_the_inventory]


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.__name__)
def test_a_label_is_the_word_and_no_series_is_added(
    writer: Callable[[str, Path], str], tmp_path: Path
) -> None:
    for word in HOSTILE:
        families = list(text_string_to_metric_families(writer(word, tmp_path)))
        told = [sample for family in families for sample in family.samples]
        # The inventory's also tell of the cluster, without a label.
        samples = [sample for sample in told if sample.labels]
        assert len(told) - len(samples) == (writer is of_the_inventory), word
        assert len(samples) == (2 if writer is of_the_inventory else 1), word
        for sample in samples:
            assert word in sample.labels.values(), word


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.__name__)
def test_prometheus_own_parser_takes_it(writer: Callable[[str, Path], str], tmp_path: Path) -> None:
    """promtool warns of a name without a unit, with exit status 3, and fails with 1."""
    for word in (HOSTILE[2], HOSTILE[6]):
        done = run(*checker("promtool"), "check", "metrics", input=writer(word, tmp_path))
        assert done.returncode in (0, 3), done.stdout + done.stderr
        assert "error while linting" not in done.stderr


def test_a_parser_would_have_noticed() -> None:
    """What it looks like without the backslashes: another series comes of it."""
    text = f'm{{x="{HOSTILE[0]}"}} 1\nm{{x="{HOSTILE[2]}"}} 1\n'
    assert label(HOSTILE[2]) != HOSTILE[2]
    with pytest.raises(ValueError, match=r"."):
        list(text_string_to_metric_families(text))


@pytest.mark.parametrize("word", [*HOSTILE[:2], *HOSTILE[5:8]])
def test_a_user_and_an_account_of_any_name_are_told(word: str, tmp_path: Path) -> None:
    cells = ["4711", "RUNNING", "gpu", word, word, "4", "gpu1", "gres/gpu=1", "None"]
    (job,) = jobs.parse("|".join(cells))
    file = tmp_path / "x.prom"
    write(file, list(series.jobs([job], series.Native(False, False), per_job=True)))
    families = text_string_to_metric_families(file.read_text(encoding="utf-8"))
    told = [
        sample.labels
        for family in families
        for sample in family.samples
        if sample.name == "slurm_job_gpu_info"
    ]
    assert [(labels["user"], labels["account"]) for labels in told] == [(word, word)]
