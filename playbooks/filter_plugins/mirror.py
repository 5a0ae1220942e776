"""Filters about a mirror from which nodes take everything (scripts/mirror)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from playbooks.plugin_utils.systems import sources_of


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "mirror_index": mirror_index,
            "mirror_repositories": mirror_repositories,
            "mirror_sources": mirror_sources,
        }


def mirror_sources(facts: Mapping[str, Any]) -> str:
    """APT's sources of a host's distribution, as a mirror has them.

    A mirror is as old as it is: the date after which a suite counts as outdated does not hold.
    """
    paragraphs = []
    for source in sources_of(facts):
        lines = {
            "Types": "deb",
            "URIs": source.uri,
            "Suites": " ".join(source.suites),
            "Components": " ".join(source.components),
            "Signed-By": source.keyring,
            "Languages": "none",
            "PDiffs": "no",
            "By-Hash": "no",
            "Check-Valid-Until": "no",
        }
        paragraphs.append("".join(f"{name}: {value}\n" for name, value in lines.items()))
    return "# Managed by Ansible; changes made here are lost.\n" + "\n".join(paragraphs)


def mirror_repositories(repositories: Iterable[Mapping[str, Any]], mirror: str) -> list[Any]:
    """Package repositories as nodes reach them: APT asks the mirror, as its proxy, without TLS.

    >>> mirror_repositories([{"uris": ["https://apt.example.org/deb"],
    ...                       "key_url": "https://apt.example.org/key.asc"}], "http://ctl:8480")
    [{'uris': ['http://apt.example.org/deb'], 'key_url': 'http://ctl:8480/apt.example.org/key.asc'}]
    """
    if not mirror:
        return list(repositories)
    return [
        {
            **entry,
            "uris": [str(uri).replace("https:", "http:", 1) for uri in entry["uris"]],
            "key_url": mirrored(str(entry["key_url"]), mirror),
        }
        for entry in repositories
    ]


def mirrored(url: str, mirror: str) -> str:
    """Where a mirror has a file; addresses that are no web server's stay.

    >>> mirrored("https://example.org/a/b.tar", "http://ctl:8480")
    'http://ctl:8480/example.org/a/b.tar'
    >>> mirrored("file:///srv/b.tar", "http://ctl:8480")
    'file:///srv/b.tar'
    """
    parts = urlsplit(url)
    if not mirror or parts.scheme not in {"http", "https"}:
        return url
    if url.startswith(f"{mirror}/"):
        return url
    return f"{mirror}/{parts.netloc}{parts.path}"


def mirror_index(mirror: str, name: str = "simple") -> str:
    """The index of wheels of a mirror; of torch's builds each build has its own.

    >>> mirror_index("http://ctl:8480"), mirror_index("http://ctl:8480", "{build}")
    ('http://ctl:8480/wheels/simple/', 'http://ctl:8480/wheels/{build}/')
    """
    return f"{mirror}/wheels/{name}/" if mirror else ""
