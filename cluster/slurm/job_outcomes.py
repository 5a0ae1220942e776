"""What came of a job, in five words, from the state in which Slurm's accounting has it.

completed  it ended as it wanted
running    it has not ended
stopped    cancelled, or at a time limit: whether its work was of use, a checkpoint alone knows
failed     it ended with an error of its own
lost       a node, or others' jobs, ended it
"""

from __future__ import annotations

OUTCOMES = ("completed", "running", "stopped", "failed", "lost")
# sacct(1), JOB STATE CODES.
_OUTCOME = {
    **dict.fromkeys(("COMPLETED", "COMPLETING"), "completed"),
    **dict.fromkeys(("PENDING", "RUNNING", "SUSPENDED", "RESIZING", "STOPPED"), "running"),
    **dict.fromkeys(("CANCELLED", "TIMEOUT", "DEADLINE", "REVOKED"), "stopped"),
    **dict.fromkeys(("FAILED", "OUT_OF_MEMORY"), "failed"),
    **dict.fromkeys(("NODE_FAIL", "BOOT_FAIL", "PREEMPTED", "REQUEUED"), "lost"),
}


def outcome(state: str) -> str:
    """Of sacct's State, behind which may be words ("CANCELLED by 1000"); failed if unknown."""
    words = state.split()
    return _OUTCOME.get(words[0] if words else "", "failed")
