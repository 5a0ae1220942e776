"""The one error that a payload raises on purpose, and how the others are told."""


class CannotRun(Exception):
    """The payload cannot measure anything here; the message is one sentence for the operator."""


def first_line(error: BaseException) -> str:
    """An error without the C++ stack that torch appends to it."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), repr(error))
