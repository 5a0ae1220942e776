"""Signs of life of all ranks: so that a hang or a loss has a rank and a place.

Every rank has a thread that writes a beat into the store that rank 0 serves, and says how far the
rank is. When an exchange fails or takes too long on one rank, rank 0's thread looks whose beats
stopped and tells all: a process that is frozen or gone is named by the others, which otherwise know
no more than that somebody did not answer. The threads have connections of their own, because the
group's may be what hangs.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

from cluster.errors import CannotRun
from validation.payloads import nccl_error, nccl_witness
from validation.payloads.nccl_witness import Fact, Witness

BEAT_S = 1.0
SILENCE_S = 5.0  # without a beat, when something has already gone wrong
ANSWER_S = 10.0  # in which rank 0 must have said what it sees
# A rank that cannot reach rank 0 says so later than those that miss it: each must be heard.
LINGER_S = ANSWER_S + 5.0


def mark(stage: str, rank: int, host: str) -> None:
    """A line on standard error that says where a rank is: what a hang leaves behind."""
    print(f"plumbline: stage {stage} rank {rank} on {host}", file=sys.stderr, flush=True)


class Watch:
    """One rank's thread.

    connect  opens a connection to the store that is served at `address`
    log      this rank's NCCL log; None without NCCL
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        address: tuple[str, int],
        rank: int,
        hosts: Sequence[str],
        timeout_s: float,
        log: Path | None = None,
    ) -> None:
        self._connect = connect
        self._store = connect()
        self._address = address
        self._rank = rank
        self._hosts = hosts
        self._timeout_s = timeout_s
        self._witness = Witness(log, first=hosts.index(hosts[rank]) == rank)
        self._doing = "joining"
        self._since = time.monotonic()
        self._reported = False
        self._ending = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._beat(0)
        self._thread.start()

    def doing(self, what: str) -> None:
        """The rank came to something new, and may take its time again."""
        self._doing, self._since = what, time.monotonic()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(2 * BEAT_S)

    def explain(self, problem: str, last_error: str = "") -> CannotRun:
        """The error to end with, after asking rank 0 whose beats stopped.

        last_error is NCCL's own. What NCCL says, and over what it ran, goes to standard error
        besides. Of the main thread and this one only the first gets an answer; it ends the process.
        """
        if not self._ending.acquire(blocking=False):
            threading.Event().wait()
        self._since = math.inf
        # before other ranks leave, of which it would speak then
        said = nccl_error.together(self._witness.said(), last_error)
        warned: Sequence[Fact] = (("warned", said),) if said else ()
        self._tell((*warned, *self._witness.seen()))
        silent = self._silent_ranks(problem)
        sentence = f"{f'NCCL: {said}; ' if said else ''}{problem} (while {self._doing})"
        if silent is None:
            return CannotRun(f"{sentence}; rank 0 on {self._hosts[0]} is gone", (), LINGER_S)
        if not silent:
            return CannotRun(f"{sentence}; all ranks still respond", (), LINGER_S)
        names = [f"rank {rank} on {self._hosts[rank]}" for rank in silent[:8]]
        hosts = tuple(dict.fromkeys(self._hosts[rank] for rank in silent))
        more = f" and {len(silent) - 8} more" if len(silent) > 8 else ""
        message = f"no sign of life from {', '.join(names)}{more}: {sentence}"
        return CannotRun(message, hosts, LINGER_S)

    def _tell(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            line = nccl_witness.line(self._rank, self._hosts[self._rank], fact)
            print(line, file=sys.stderr, flush=True)

    def _beat(self, number: int) -> None:
        self._store.set(f"alive/{self._rank}", str(number))

    def _run(self) -> None:
        number = 0
        while not self._over.wait(BEAT_S):
            number += 1
            # without the store nobody hears this rank, but a hang of its own it still notices
            with suppress(RuntimeError):
                self._beat(number)
                if self._rank == 0 and not self._reported and self._store.check(["failed"]):
                    self._tell_silent_ranks()
            if time.monotonic() - self._since > self._timeout_s:
                self._hang()

    def _tell_silent_ranks(self) -> None:
        keys = [f"alive/{rank}" for rank in range(len(self._hosts))]
        before = self._store.multi_get(keys)
        time.sleep(SILENCE_S)
        after = self._store.multi_get(keys)
        # a thread that found its own rank hanging waits for the answer and beats no more
        silent = [
            rank
            for rank, (old, new) in enumerate(zip(before, after, strict=True))
            if old == new and rank != 0 and not self._store.check([f"waits/{rank}"])
        ]
        self._store.set("silent", json.dumps(silent))
        self._reported = True

    def _silent_ranks(self, problem: str) -> list[int] | None:
        """The ranks without a sign of life; None when rank 0 is gone altogether."""
        answers: list[list[int]] = []

        def ask() -> None:
            with suppress(RuntimeError):
                store = self._connect()  # one that waits serves nobody else meanwhile
                store.set(f"waits/{self._rank}", "")
                store.set("failed", problem)
                store.wait(["silent"], timedelta(seconds=ANSWER_S))
                answers.append([int(rank) for rank in json.loads(store.get("silent"))])

        # in a thread, because nothing in a store's client ends by itself when rank 0 is frozen
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(ANSWER_S + BEAT_S)
        if answers:
            return answers[0]
        return None if _refused(self._address) else [0]

    def _hang(self) -> NoReturn:
        """Ends the process: the main thread waits for something that will not come."""
        if self._rank == 0 and not self._reported:
            self._tell_silent_ranks()  # its own thread is this one
        error = self.explain(f"no progress for {self._timeout_s:g} s")
        complain(f"rank {self._rank} on {self._hosts[self._rank]}: {error}", error.blamed)
        stays_until = time.monotonic() + error.linger_s
        self._tell(self._witness.asked())
        time.sleep(max(0.0, stays_until - time.monotonic()))
        own = tempfile.gettempdir()
        if os.path.basename(own).startswith("plumbline-"):  # the task's, which ends here
            shutil.rmtree(own, ignore_errors=True)
        os._exit(1)


def complain(sentence: str, blamed: Sequence[str] = ()) -> None:
    """The line for the operator, after the one that names the nodes at fault, where known."""
    if blamed:
        print(f"plumbline: blamed {','.join(blamed)}", file=sys.stderr, flush=True)
    print(f"plumbline: {' '.join(sentence.split())}", file=sys.stderr, flush=True)


def _refused(address: tuple[str, int]) -> bool:
    """Whether nobody listens there: the process is gone, and not only silent."""
    try:
        socket.create_connection(address, timeout=3).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False
