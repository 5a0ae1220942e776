"""What ends a report, and what leaves a part of it out."""


class NotKnown(Exception):
    """One sentence: what cannot be known, and why."""


class NoJob(NotKnown):
    """There is no such job for whoever asks."""
