"""Algorithm and bus bandwidth as nccl-tests defines them (doc/PERFORMANCE.md).

algbw = S / t, with S the bytes and t the seconds of one operation; for all_gather, reduce_scatter
and all_to_all S is the total over all ranks. busbw = algbw times a factor of the number of ranks n,
chosen so that busbw does not depend on n and can be compared with the hardware's links:

    all_reduce                                       2(n-1)/n
    all_gather, reduce_scatter, all_to_all, gather,
    scatter                                           (n-1)/n
    broadcast, reduce, sendrecv                       1

1 GB = 1e9 bytes.
"""

from __future__ import annotations

_TRIPS = {  # how often each byte crosses a link, apart from the share a rank keeps for itself
    "all_reduce": 2,
    "all_gather": 1,
    "reduce_scatter": 1,
    "all_to_all": 1,
    "gather": 1,
    "scatter": 1,
}
_WHOLE = ("broadcast", "reduce", "sendrecv")


def busbw_factor(operation: str, ranks: int) -> float:
    """busbw divided by algbw. Raises ValueError for an unknown operation or no rank."""
    if ranks < 1:
        raise ValueError(f"{ranks} ranks")
    if operation in _WHOLE:
        return 1.0
    if operation not in _TRIPS:
        raise ValueError(f"bus bandwidth is not defined for {operation!r}")
    return _TRIPS[operation] * (ranks - 1) / ranks


def algbw(size_bytes: int, seconds: float) -> float:
    """Algorithm bandwidth in GB/s."""
    return size_bytes / seconds / 1e9


def busbw(operation: str, ranks: int, size_bytes: int, seconds: float) -> float:
    """Bus bandwidth in GB/s; 0 for one rank, of which nothing crosses a link, in whatever time."""
    factor = busbw_factor(operation, ranks)
    return algbw(size_bytes, seconds) * factor if ranks > 1 else 0.0
