from tests.pyxis_nodes import node
from tests.role_play import play

__all__ = ["node", "play"]
