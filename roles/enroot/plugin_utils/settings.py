"""enroot.conf: the role's settings and a site's, as lines that enroot reads.

enroot takes `NAME VALUE` from lines whose name it knows and leaves out all others without a word
(config::load in https://github.com/NVIDIA/enroot/blob/main/enroot.in); a shell expands the value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

NAME = re.compile(
    r"ENROOT_[A-Z_]+|MELLANOX_[A-Z_]+|NVIDIA_[A-Z_]+|SSL_CERT_(DIR|FILE)|(all|no|http|https)_proxy"
)


def text(value: Any) -> str:
    """A value as enroot reads it; it takes anything but no and false for yes."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value).strip()


def composed(own: Mapping[str, Any], site: Mapping[str, Any]) -> dict[str, str]:
    """The settings by name, sorted; what the site makes empty is upstream's default again."""
    merged = {name: text(value) for name, value in {**own, **site}.items() if value is not None}
    return {name: merged[name] for name in sorted(merged) if merged[name]}


def problems(site: Mapping[str, Any]) -> list[str]:
    """A sentence for each setting of a site that enroot would not read, or read otherwise."""
    sentences = []
    for name, value in site.items():
        if not NAME.fullmatch(str(name)):
            sentences.append(
                f"enroot_settings has {name}, which enroot does not read; its names begin with "
                "ENROOT_, MELLANOX_ or NVIDIA_ and are those of enroot.conf."
            )
        elif isinstance(value, (dict, list)) or "\n" in text(value):
            sentences.append(f"enroot_settings has no plain text for {name}; write it on one line.")
    return sentences
