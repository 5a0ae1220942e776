"""Tells the cluster how far the ranks of a job are, so that a hang is found and its rank named.

    import plumbline_watch

    torch.distributed.init_process_group(...)
    plumbline_watch.start()

For jobs whose collectives are not NCCL's, such as Gloo's; NCCL tells it itself. Each rank puts the
number of the last collective of each of its process groups into the job's store. Rank 0 writes
those of all ranks into PLUMBLINE_WATCH, in the shape of the answer of NCCL's RAS. Without that
variable nothing is done. No error of this stops the job: where it never worked, stderr says why.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import socket
import sys
import threading
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

INTERVAL_S = 10.0
LATE = 3  # intervals without a sign of a rank
_LIMIT = timedelta(seconds=5)
_PREFIX = "plumbline_watch"


def start(interval_s: float | None = None) -> bool:
    """Watches the default process group, from a thread of its own. Whether it does."""
    path = os.environ.get("PLUMBLINE_WATCH")
    if not path:
        return False
    # torch is the job's own, and takes seconds: only a job that is watched waits for it.
    dist: Any = importlib.import_module("torch.distributed")
    if not dist.is_initialized():
        return False
    told = os.environ.get("PLUMBLINE_WATCH_INTERVAL", INTERVAL_S)
    watch = _Watch(Path(path), dist.get_rank(), dist.get_world_size(), float(interval_s or told))
    watch.start()
    atexit.register(watch.leave)
    return True


class _Watch:
    def __init__(self, path: Path, rank: int, size: int, interval_s: float) -> None:
        self.path, self.rank, self.size = path, rank, size
        self.interval_s = interval_s
        self.heard: dict[int, tuple[str, float]] = {}  # what a rank said last, and since when
        self.store: Any = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self.run, name="plumbline_watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def run(self) -> None:
        beat = failures = 0
        worked = False
        while not self._over.is_set():
            beat += 1
            try:
                self.store = self.store or _connected()
                self.say(beat)
                if self.rank == 0:
                    self.write(self.gathered(self.store))
                worked = True
            except Exception as error:
                self.store = None
                failures += 1
                # A job that ends loses its store, and that is no news.
                if failures == LATE and not worked:
                    sentence = f"rank {self.rank} is not watched: {error}"
                    print(f"plumbline_watch: {sentence}", file=sys.stderr, flush=True)
            self._over.wait(self.interval_s)

    def leave(self) -> None:
        """One that has ended is silent, and nobody waits for it.

        Python ends a thread that is in torch's C++ by ending the process with SIGABRT, so the
        thread ends before Python does.
        """
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(2 * _LIMIT.total_seconds())
        with suppress(Exception):
            self.say(0, left=True)

    def say(self, beat: int, left: bool = False) -> None:
        said = {"beat": beat, "host": socket.gethostname(), "counts": counts(), "left": left}
        self.store.set(f"{_PREFIX}/{self.rank}", json.dumps(said))

    def gathered(self, store: Any) -> dict[int, dict[str, Any]]:
        """What each rank said last, and whether it was silent for too long."""
        now, found = time.monotonic(), {}
        for rank in range(self.size):
            key = f"{_PREFIX}/{rank}"
            text = store.get(key).decode() if store.check([key]) else ""
            if self.heard.get(rank, ("", 0.0))[0] != text or rank not in self.heard:
                self.heard[rank] = text, now
            said = json.loads(text) if text else {"host": "", "counts": {}}
            late = not said.get("left") and now - self.heard[rank][1] > LATE * self.interval_s
            found[rank] = {**said, "late": late}
        return found

    def write(self, ranks: dict[int, dict[str, Any]]) -> None:
        new = self.path.with_name(f".{self.path.name}.new")
        new.write_text(json.dumps(document(ranks)), encoding="utf-8")
        new.replace(self.path)


def _connected() -> Any:
    """A connection of our own: torch's would wait for a collective's."""
    dist: Any = importlib.import_module("torch.distributed")
    store: Any = dist.distributed_c10d._get_default_store()
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    if isinstance(store, dist.TCPStore):
        # libuv is of the server alone, and Debian's torch has none.
        options = {"is_master": False, "timeout": _LIMIT, "use_libuv": False}
        return dist.TCPStore(store.host, store.port, **options)
    with suppress(AttributeError, RuntimeError):
        store = store.clone()
    return store


def counts() -> dict[str, dict[str, int]]:
    """Of each process group of this rank the number of its last collective."""
    dist: Any = importlib.import_module("torch.distributed")
    found = {}
    for group in list(dist.distributed_c10d._world.pg_map):
        with suppress(AttributeError, RuntimeError):  # a group whose backend counts nothing
            found[str(group.group_name)] = {"collectives": group._get_sequence_number_for_group()}
    return found


def document(ranks: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """As NCCL's RAS tells it: those that are late are missing, in every group that they are in."""
    groups = sorted({group for said in ranks.values() for group in said["counts"]}) or ["default"]
    communicators = []
    for number, group in enumerate(groups):
        members = {r: s for r, s in ranks.items() if group in s["counts"] or not number}
        communicators.append(
            {
                "hash": group,
                "size": len(members),
                "ranks": [
                    {"rank": r, "host": s["host"], "collective_counts": s["counts"].get(group, {})}
                    for r, s in members.items()
                    if not s["late"]
                ],
                "missing_ranks": [
                    {"rank": r, "host": s["host"], "status": {"unresponsive": True}}
                    for r, s in members.items()
                    if s["late"]
                ],
            }
        )
    return {"keeper": 0, "communicators": communicators}
