"""What ends a report, and what leaves a part of it out."""


class NotKnown(Exception):
    """One sentence: what cannot be known, and why."""
