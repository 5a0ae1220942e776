"""A pipeline stage that keeps its sends alive, for Gloo with torch before 2.8.

There the schedule posts a send and a receive together and keeps only the last handle (`_batch_p2p`
ends in `.pop()`). That is enough for NCCL, which answers with one handle for all. With Gloo the
handle of the send is thrown away, and a send that no one holds may never be made: the peer waits
until the timeout (pytorch#132644, mended in 2.8 by pytorch#152938).

Imports torch at the top, so import it only where torch is known to be there.
"""

# mypy: allow-subclassing-any
# (where torch is not installed, mypy knows nothing of the base class)

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage

MENDED = (2, 8, 0)


class HeldSendsStage(PipelineStage):
    """Posts its sends itself and holds them, so that only receives are left to the schedule.

    The order of the messages between two ranks stays the schedule's own.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._held: list[dist.Work] = []

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        return self._post(super().get_fwd_send_ops(fwd_chunk_id))

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        return self._post(super().get_bwd_send_ops(bwd_chunk_id))

    def wait_for_sends(self) -> None:
        """To be called after each step, when every receive has been posted."""
        for work in self._held:
            work.wait()
        self._held.clear()

    def _post(self, sends: list[dist.P2POp]) -> list[dist.P2POp]:
        if sends:
            self._held += dist.batch_isend_irecv(sends)
        return []
