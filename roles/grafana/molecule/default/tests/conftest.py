from tests.role_mirror import mirror
from tests.role_play import play

__all__ = ["mirror", "play"]
