"""What ends a backup or a restore."""


class Refused(Exception):
    """One sentence without its end: what is wrong, where, and what to do instead."""
