"""Pages for users: a site's names in them, and nothing of a site's texts but text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

import pytest

from playbooks.filter_plugins import user_pages as filters
from playbooks.plugin_utils import user_pages

NODE = {
    "name": "gpu1",
    "gpus": {"model": "h100_sxm", "count": 8},
    "cpus": {"sockets": 2, "cores_per_socket": 32, "threads_per_core": 2},
    "memory_mb": 1024000,
}
PARTS = {**NODE, "name": "gpu2", "gpus": {"model": "a100_sxm", "count": 4, "mig": {"3g.20gb": 2}}}
PLAIN = {**NODE, "name": "cpu1", "gpus": {"model": "none", "count": 0}}
SITE: dict[str, Any] = {
    "cluster": "physics",
    "nodes": [NODE, PARTS, PLAIN],
    "groups": {"gpus": ["gpu1", "gpu2"]},
    "partitions": [
        {"name": "gpu", "nodes": ["gpus"], "default": True, "max_time": "2-00:00:00"},
        {
            "name": "cpu",
            "nodes": ["cpu1"],
            "settings": {"DefaultTime": "01:00:00", "AllowQos": "x"},
        },
    ],
    "qos": [
        {"name": "normal", "limits": {"MaxTRESPerUser": {"gres/gpu": 4}}},
        {"name": "gone", "state": "absent"},
    ],
    "logins": ["login.example.org"],
    "folders": [{"path": "/home", "tier": "home"}, {"path": "/state", "tier": "state"}],
    "quota": {"blocks_hard": "100G"},
    "scratch": {"root": "/scratch", "keep_days": 30},
    "datasets": [{"name": "imagenet", "path": "/data/imagenet", "description": "pictures"}],
    "modules": [{"name": "pytorch", "version": "2.13", "description": "with CUDA"}],
    "examples": "/opt/ours",
    "containers": True,
    "libraries": True,
    "contact": "hpc@example.org",
    "documentation": "https://docs.example.org/x?a=1&b=2",
    "portal": "",
}


class Page(HTMLParser):
    """Tags that are closed in their order, and what links name."""

    EMPTY = frozenset({"meta", "br", "hr", "img"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.words = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        of = dict(attrs)
        self.links += [of["href"] or ""] if "href" in of else []
        self.ids |= {of["id"] or ""} if "id" in of else set()
        assert not {"onclick", "onerror", "onload"} & of.keys()
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def check_pages(files: Mapping[str, str]) -> None:
    """Each is whole HTML, its links lead to pages that there are, and no placeholder is left."""
    read = {name: Page(text) for name, text in files.items() if name.endswith(".html")}
    assert {"index.html", "jobs.html"} <= read.keys()
    for name, page in read.items():
        assert {"h1", "main", "nav", "title"} <= page.tags
        assert not page.tags & {"script", "iframe", "object", "form"}
        for link in page.links:
            file, _, anchor = link.partition("#")
            if not link.startswith(("https://", "http://")):
                assert (file or name) in read, link
                assert not anchor or anchor in read[file or name].ids, link
    for name, text in files.items():
        assert not re.search(r"\bLOGIN\b", text), name


def site(**changes: Any) -> dict[str, str]:
    return user_pages.files({**SITE, **changes})


def test_the_page_of_a_cluster() -> None:
    files = site()
    check_pages(files)
    page = files["index.md"]
    for line in (
        "Log in with your key: `ssh NAME@login.example.org`; NAME is your name on the cluster.",
        "Documentation: [https://docs.example.org/x?a=1&amp;b=2](https://docs.example.org/x?a=1&b=2)",
        "Questions: hpc@example.org",
        "| `normal` | `MaxTRESPerUser=gres/gpu=4` |",
        "| `/home` | home | `blocks_hard=100G` |",
        "| `/scratch` | scratch | files without use for 30 days are deleted |",
        "| `imagenet` | `/data/imagenet` | pictures |",
        "| `module load pytorch/2.13` | with CUDA |",
        "| `h100_sxm` | GPU | 8 | `gpu` | `--partition=gpu --gpus=h100_sxm:1` |",
        "| `3g.20gb` | part of a GPU (MIG) | 8 | `gpu` | `--partition=gpu --gpus=3g.20gb:1` |",
    ):
        assert line in page.splitlines() or line.replace("-", r"\-") in page.splitlines(), line
    assert (
        "| `gpu` (if you name none) | 2: `gpu[1-2]` | `gpu:h100_sxm:8` or `gpu:3g.20gb:8` | 128"
        in page
    )
    assert "QOS `x`" in page
    assert "Portal" not in page
    assert "gone" not in page
    assert "/state" not in page


def test_the_pages_of_use_have_the_sites_names() -> None:
    files = site()
    jobs = files["jobs.md"]
    assert "ssh -J login.example.org NODE" in jobs
    assert "cp -r /opt/ours ~/examples" in jobs
    assert "sbatch --partition=cpu --time" in jobs
    assert "](containers.md)" in jobs
    assert 'href="containers.html"' in files["jobs.html"]
    assert "](../" not in "".join(files.values())


def test_pages_of_what_a_site_has() -> None:
    everything = site(portal="https://portal.example.org/")
    assert {"notebooks.html", "data.html", "containers.html"} <= set(everything)
    assert "notebooks.html" not in site()
    assert "data.html" not in site(datasets=[], scratch={})
    check_pages(everything)


def test_published_data_sets_are_told_once_by_name() -> None:
    published = [
        {"name": "iris", "version": "1", "description": "flowers"},
        {"name": "iris", "version": "2", "description": "more flowers"},
        {"name": "gone", "version": "1", "state": "absent"},
    ]
    told = [{"name": "iris", "path": "/data/iris", "description": "more flowers"}]
    assert filters.datasets_for_users(published, "/data") == told
    assert filters.datasets_for_users(published, "") == []


def test_what_a_site_does_not_have_is_left_out() -> None:
    nothing: dict[str, Any] = {"scratch": {}, "quota": {}}
    files = site(
        containers=False, libraries=False, qos=[], folders=[], datasets=[], modules=[],
        contact="", documentation="",
        nodes=[PLAIN], partitions=[{"name": "cpu", "nodes": ["ALL"], "default": True}], **nothing,
    )  # fmt: skip
    check_pages(files)
    assert "containers.html" not in files
    assert "](containers.md)" not in files["jobs.md"]
    for heading in ("## GPUs", "## Quality", "## Files", "## Data sets", "Questions"):
        assert heading not in files["index.md"]
    assert "sbatch --partition=cpu --time" in files["jobs.md"]


HOSTILE = (
    "<script>alert(1)</script> **x** [y](javascript:z) `a` | <img src=x onerror=b>\n# no heading"
)


@pytest.mark.parametrize("place", ["cluster", "contact", "documentation", "portal"])
def test_a_sites_text_is_text(place: str) -> None:
    files = site(**{place: HOSTILE})
    check_pages(files)
    page = Page(files["index.html"])
    assert "<script>alert(1)</script> **x** [y](javascript:z)" in page.words
    assert page.tags & {"em", "strong", "img", "script"} == set()
    assert not any("javascript" in link for link in page.links)


def test_a_sites_text_is_text_in_tables_and_code() -> None:
    module = {"name": HOSTILE, "version": "`|`", "description": HOSTILE}
    data = {"name": HOSTILE, "path": "/<b>", "description": HOSTILE}
    files = site(modules=[module], datasets=[data], logins=[HOSTILE], examples="/<b>`x`")
    check_pages(files)
    page = Page(files["index.html"])
    assert page.words.count("<script>alert(1)</script>") >= 4
    assert page.tags & {"b", "img", "script"} == set()
    assert Page(files["jobs.html"]).tags & {"b", "img", "script"} == set()
    assert "examples to copy are in /<b>'x'." in page.words  # one word of code, whatever is in it


def test_raw_html_in_a_page_is_no_html() -> None:
    page = Page(user_pages._html("a", "# x\n\n<b>y</b>\n\n<div>z</div>", {"a": "x"}))
    assert page.tags.isdisjoint({"b", "div"})
    assert "<b>y</b>" in page.words


def test_the_filter_makes_them() -> None:
    assert filters.FilterModule().filters()["user_pages"](SITE) == site()
