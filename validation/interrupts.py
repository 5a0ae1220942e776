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
    # Under nohup a closed terminal is no reason to end.
    wanted = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, _handle) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
