"""An error of torch in one line, and what NCCL says is its cause.

torch's first line says where in torch's own source NCCL returned an error, and which kind it is.
The cause is NCCL's last error, which stands after it (getNcclErrorDetailStr in
torch/csrc/distributed/c10d/NCCLUtils.cpp of pytorch/pytorch):

    NCCL error in: …/NCCLUtils.hpp:268, remote process exited or there was a network error, …
    ncclRemoteError: A call failed possibly due to a network error or a remote process exiting …
    Last error:
    socketProgressOpt: Call to recv from 192.0.2.7<33759> failed : Connection reset by peer
"""

from __future__ import annotations

import re

_LAST = re.compile(r"^Last error:[ \t]*\n(?P<text>(?:.*\n?)*)", re.MULTILINE)
# What torch appends to an error is no word of NCCL: its C++ stack, and that NCCL told nothing.
_STACK = re.compile(r"^(?:Exception raised from |C\+\+ CapturedTraceback|frame #)")
MOST = 300


def cause(text: str) -> str:
    """NCCL's last error within an error of torch, empty if there is none."""
    match = _LAST.search(text)
    if match is None:
        return ""
    lines: list[str] = []
    for line in match["text"].splitlines():
        if _STACK.match(line):
            break
        lines.append(line.strip())
    return " ".join(filter(None, lines))[:MOST]


def together(said: str | None, last: str) -> str:
    """NCCL's last warning and its last error, which are mostly the same, without a repetition."""
    if not said or said in last:
        return last
    return said if not last or last in said else f"{said}; last error: {last}"
