from tests.role_login import login
from tests.role_play import play

__all__ = ["login", "play"]
