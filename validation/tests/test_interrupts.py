"""Signals: the first one ends a run, none of them cuts short what tidies up."""

import os
import signal

import pytest

from validation import interrupts


def send(number):
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", interrupts.SIGNALS)
def test_the_first_signal_interrupts_and_further_ones_do_not(number):
    with interrupts.caught():
        with pytest.raises(KeyboardInterrupt):
            send(number)
        send(number)
        send(signal.SIGINT)


def test_a_signal_waits_for_the_end_of_what_tidies_up():
    tidied = []

    def tidy():
        with interrupts.held():
            with interrupts.held():
                send(signal.SIGTERM)
            tidied.append("yes")

    with interrupts.caught():
        with pytest.raises(KeyboardInterrupt):
            tidy()
        assert tidied == ["yes"]


def test_once_there_is_nothing_left_to_interrupt_signals_do_nothing():
    with interrupts.caught():
        interrupts.ignored_from_now_on()
        send(signal.SIGHUP)


def test_afterwards_the_former_handlers_are_back():
    before = [signal.getsignal(number) for number in interrupts.SIGNALS]
    with interrupts.caught():
        pass
    assert [signal.getsignal(number) for number in interrupts.SIGNALS] == before


def test_under_nohup_a_closed_terminal_ends_nothing():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupts.caught():
            send(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_what_a_shell_started_in_the_background_can_be_interrupted():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts.caught(), pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
