"""How all ranks find each other: through a store that rank 0 serves.

Nothing is exchanged by other means before all are there, so that rank 0 can say who did not come.
"""

from __future__ import annotations

import importlib
import json
import time
from datetime import timedelta
from typing import Any

from cluster.errors import CannotRun
from cluster.text import first_line
from validation.payloads.config import GroupConfig
from validation.payloads.rendezvous import Rendezvous

TICK_S = 0.05
# torch's own retries double their pauses: the last may end half a minute after the time-out.
ATTEMPT_S = 5.0
LINGER_S = 20.0  # ranks do not start at the same moment, so they do not give up at the same moment


def connect(rendezvous: Rendezvous, timeout_s: float, *, serve: bool = False) -> Any:
    """A connection to the store that rank 0 serves. Raises RuntimeError without one in time."""
    end = time.monotonic() + timeout_s
    attempt = timeout_s if serve else min(ATTEMPT_S, timeout_s)
    while True:
        try:
            store = _store(rendezvous, attempt, serve)
            store.set_timeout(timedelta(seconds=timeout_s))
        except RuntimeError:
            if serve or time.monotonic() > end:
                raise
        else:
            return store


def _store(rendezvous: Rendezvous, timeout_s: float, serve: bool) -> Any:
    dist: Any = importlib.import_module("torch.distributed")  # mypy knows no TCPStore there
    return dist.TCPStore(
        host_name=rendezvous.master_addr,
        port=rendezvous.master_port,
        is_master=serve,
        timeout=timedelta(seconds=timeout_s),
        wait_for_workers=False,
        use_libuv=False,  # Debian builds torch without libuv, and torch's default asks for it
    )


def meet(config: GroupConfig, rendezvous: Rendezvous, host: str) -> tuple[Any, list[str]]:
    """The store, and each rank's host, once all ranks are there.

    Raises CannotRun when they are not in time: rank 0 sees who is missing and tells the others. A
    rank that is there but cannot reach rank 0 complains of rank 0. All of them stay long enough for
    both to be heard: a missing rank and a cut link look alike from one side alone.
    """
    place = f"{rendezvous.master_addr}:{rendezvous.master_port}"
    first = rendezvous.rank == 0
    try:
        store = connect(rendezvous, config.join_timeout_s, serve=first)
        store.set(f"host/{rendezvous.rank}", host)
        store.add("arrived", 1)
        if first:
            store.set("met", _wait_for_all(store, config.join_timeout_s, rendezvous))
        # rank 0 may have come later than this one, and then waits longer
        store.wait(["met"], timedelta(seconds=2 * config.join_timeout_s))
        missing = json.loads(store.get("met"))
    except RuntimeError as error:
        who = "rank 0 cannot listen" if first else "rank 0 does not answer"
        sentence = f"{who} at {place}: {first_line(error)}"
        raise CannotRun(sentence, (rendezvous.nodes[0],), LINGER_S) from error
    if missing["sentence"]:
        raise CannotRun(missing["sentence"], missing["hosts"], LINGER_S)
    keys = [f"host/{rank}" for rank in range(rendezvous.world_size)]
    return store, [str(name.decode()) for name in store.multi_get(keys)]


def _wait_for_all(store: Any, timeout_s: float, rendezvous: Rendezvous) -> str:
    """JSON: a sentence about who did not come, empty when all did, and the nodes of those."""
    end = time.monotonic() + timeout_s
    while store.add("arrived", 0) < rendezvous.world_size:
        if time.monotonic() > end:
            ranks = range(rendezvous.world_size)
            came = {rank: f"host/{rank}" for rank in ranks if store.check([f"host/{rank}"])}
            hosts = [name.decode() for name in store.multi_get(list(came.values()))]
            return json.dumps(_missing(rendezvous, timeout_s, set(came), hosts))
        time.sleep(TICK_S)
    return json.dumps({"sentence": "", "hosts": []})


def _missing(
    rendezvous: Rendezvous, timeout_s: float, came: set[int], hosts: list[str]
) -> dict[str, Any]:
    """Who did not come: which ranks, and from which nodes fewer came than started there."""
    ranks = [rank for rank in range(rendezvous.world_size) if rank not in came]
    each = rendezvous.world_size // len(rendezvous.nodes)
    nodes = [node for node in rendezvous.nodes if hosts.count(node) < each]
    named = ", ".join(map(str, ranks[:8])) + (" …" if len(ranks) > 8 else "")
    return {
        "sentence": (
            f"{len(ranks)} of {rendezvous.world_size} ranks did not come within {timeout_s:g} s: "
            f"rank {named}, of {', '.join(nodes[:8])}"
        ),
        "hosts": nodes if len(nodes) < len(rendezvous.nodes) else [],
    }
