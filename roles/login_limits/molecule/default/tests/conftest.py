from roles.login_limits.molecule.parts import session

__all__ = ["session"]
