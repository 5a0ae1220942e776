"""Who logs in: by the passwords of this host, or by a site's provider of OpenID Connect."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from jupyterhub.auth import Authenticator, PAMAuthenticator
from traitlets import Dict

from roles.jupyterhub.files.portal import account
from roles.jupyterhub.files.portal.throttle import Throttle


class OnlyPeople(Authenticator):
    """Allows accounts of this host that the site's rule allows."""

    rule = Dict(help="The fields of account.Rule.").tag(config=True)

    def check_allowed(self, username: str, authentication: Any = None) -> bool:
        """Whether the account exists here and may use the portal; the log says why not."""
        try:
            person = account.of_name(username)
        except KeyError:
            self.log.warning("No account %r on this host", username[:64])
            return False
        if problem := account.Rule(**self.rule).problem(person):
            self.log.warning("Not allowed: %s", problem)
        return not problem


class SlowedPAMAuthenticator(OnlyPeople, PAMAuthenticator):
    """PAM, where a wrong password makes the next attempt wait."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._throttle = Throttle()
        self._turns: dict[tuple[str, str], asyncio.Lock] = {}

    async def authenticate(self, handler: Any, data: dict[str, str]) -> str | None:
        """As PAM says; attempts for one name from one address wait for one another."""
        name, address = data["username"][:256], handler.request.remote_ip if handler else ""
        turn = self._turns.setdefault((name, address), asyncio.Lock())
        try:
            async with turn:
                await asyncio.sleep(self._throttle.delay(name, address, time.monotonic()))
                found = await super().authenticate(handler, data)
                if found is None:
                    self._throttle.failed(name, address, time.monotonic())
                else:
                    self._throttle.succeeded(name, address)
        finally:
            if not turn.locked():
                self._turns.pop((name, address), None)
        return found
