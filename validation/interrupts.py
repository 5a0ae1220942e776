"""Ctrl-C, SIGTERM and SIGHUP: the first ends the run, and none of them ends it untidily."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _State:
    holding = 0
    pending = False
    raised = False

    def reset(self) -> None:
        self.holding, self.pending, self.raised = 0, False, False


_state = _State()


def _handle(*_: object) -> None:
    if _state.raised:
        return  # the run ends already; a second one must not leave its jobs behind
    if _state.holding:
        _state.pending = True
        return
    _raise()


def _raise() -> None:
    _state.pending, _state.raised = False, True
    raise KeyboardInterrupt


@contextmanager
def caught() -> Iterator[None]:
    """Within, the first signal raises KeyboardInterrupt and further ones are ignored."""
    _state.reset()
    before = {number: signal.signal(number, _handle) for number in SIGNALS if not _nohup(number)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _nohup(number: signal.Signals) -> bool:
    """Under nohup a closed terminal is no reason to end.

    That a shell ignores SIGINT for what it started in the background is no wish of anybody's: who
    sends it there means it.
    """
    return number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN


def ignored_from_now_on() -> None:
    """What is left takes a moment and must come to its end: the reports."""
    _state.raised = True


@contextmanager
def held() -> Iterator[None]:
    """Within, a signal waits until the end: what tidies up is not to be cut short."""
    _state.holding += 1
    try:
        yield
    finally:
        _state.holding -= 1
    if _state.pending and not _state.holding:
        _raise()
