from tests.role_play import play

__all__ = ["play"]
