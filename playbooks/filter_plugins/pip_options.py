"""`address | pip_index`: pip's options for an index of packages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit


class FilterModule:
    """Registers the filter with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"pip_index": pip_index}


def pip_index(address: str, option: str = "--index-url") -> list[str]:
    """None for an empty address: pip then asks the index of its own settings.

    pip takes nothing from an address without TLS unless it is told to.

    >>> pip_index("https://pypi.example.org/simple")
    ['--index-url', 'https://pypi.example.org/simple']
    >>> pip_index("http://mirror:8480/wheels/simple/")
    ['--index-url', 'http://mirror:8480/wheels/simple/', '--trusted-host', 'mirror:8480']
    """
    if not address:
        return []
    trusted = ["--trusted-host", urlsplit(address).netloc] if address.startswith("http:") else []
    return [option, address, *trusted]
