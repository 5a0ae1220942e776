"""What a job tells the hub, with the token that its notebook has."""

from __future__ import annotations

from jupyterhub.apihandlers.base import APIHandler
from tornado import web

PATH = r"/api/plumbline-notebook"


class NotebookHandler(APIHandler):
    """POST {"port": 43210}, or {"problem": "a sentence"}."""

    @web.authenticated
    def post(self) -> None:
        """Only the notebook whose token this is can be meant. 403 for any other token."""
        token = self.get_auth_token()
        user = self.current_user
        for spawner in user.spawners.values() if hasattr(user, "spawners") else ():
            if token and spawner.api_token == token:
                document = self.get_json_body()
                if not isinstance(document, dict) or not spawner.told(document):
                    raise web.HTTPError(400, "neither a port nor a problem")
                self.set_status(204)
                return
        raise web.HTTPError(403, "not the token of a notebook that starts")
