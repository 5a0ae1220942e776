from tests.pyxis_nodes import node

__all__ = ["node"]
