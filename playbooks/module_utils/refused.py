"""What a module says when it does not do what it was asked, on nodes with nothing but Python.

Modules find it as ansible.module_utils.refused.
"""

from __future__ import annotations


class Refused(Exception):
    """Why it is not done, a sentence each."""

    def __init__(self, *sentences: str) -> None:
        super().__init__(". ".join(sentences))
        self.sentences = list(sentences)
