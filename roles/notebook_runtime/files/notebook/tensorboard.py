"""TensorBoard at a Unix socket of its user's own: other users of a node cannot reach it.

`tensorboard.py SOCKET PREFIX FOLDER`. TensorBoard's own server listens at ports alone.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from tensorboard import default, program
from werkzeug.serving import make_server


class SocketServer(program.TensorBoardServer):
    """Serves one application at a socket."""

    socket = ""

    def __init__(self, wsgi_app: Any, flags: Any) -> None:
        os.umask(0o077)
        self._server = make_server(f"unix://{self.socket}", 0, wsgi_app, threaded=True)

    def serve_forever(self) -> None:
        """Of TensorBoard."""
        self._server.serve_forever()

    def get_url(self) -> str:
        """What TensorBoard writes down; it expects a port."""
        return "http://localhost:0/"


def main() -> int:
    """Serves until its notebook ends it."""
    SocketServer.socket, prefix, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    board = program.TensorBoard(default.get_plugins(), server_class=SocketServer)
    board.configure(argv=["", f"--logdir={folder}", f"--path_prefix={prefix.rstrip('/')}"])
    return int(board.main() or 0)


if __name__ == "__main__":
    sys.exit(main())
