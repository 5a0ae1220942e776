from roles.login_limits.molecule.parts import session
from tests.role_play import play

__all__ = ["play", "session"]
