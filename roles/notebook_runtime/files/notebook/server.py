"""JupyterLab's part: says when the notebook ends, and ends it."""

from __future__ import annotations

import atexit
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from jupyter_server.base.handlers import APIHandler
from tornado import web
from tornado.ioloop import PeriodicCallback

from roles.notebook_runtime.files.notebook import activity

SECONDS_BETWEEN = 20
HEARTBEAT = Path("~/.local/share/code-server/heartbeat")


class Watch:
    """Ends the server when nobody has used it for long enough."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.kept = time.time()
        self.idle_minutes = int(os.environ.get("PLUMBLINE_NOTEBOOK_IDLE") or 0)
        self.job_end = os.environ.get("SLURM_JOB_END_TIME", "")

    def ends(self, now: float) -> activity.Ends:
        """When it ends, as things are."""
        kernels = self.server.kernel_manager.list_kernels()
        used = activity.last_use(kernels, [self.kept, *self._others()], now)
        return activity.ends(used, self.idle_minutes, self.job_end)

    def _others(self) -> Iterator[float]:
        """Of terminals, and of VS Code, which touches a file while somebody has it open."""
        if terminal := self.server.web_app.settings.get("terminal_last_activity"):
            yield terminal.timestamp()
        with suppress(OSError):
            yield HEARTBEAT.expanduser().stat().st_mtime

    def look(self) -> None:
        """Called every now and then."""
        now = time.time()
        end = self.ends(now).idle
        if end is not None and end <= now:
            self.server.log.info("Nobody has used this notebook for %d minutes", self.idle_minutes)
            self.server.stop()


class EndsHandler(APIHandler):
    """GET says when the notebook ends, and whether that is near; POST that somebody uses it."""

    _track_activity = False  # asking is no use of the notebook

    def initialize(self, watch: Watch) -> None:
        """Of tornado."""
        self.watch = watch

    @web.authenticated
    def get(self) -> None:
        """The ends, in seconds since the epoch, and which of them to warn of."""
        now = time.time()
        found = self.watch.ends(now)
        self.finish(
            {"now": now, "idle": found.idle, "limit": found.limit, "warn": found.warnings(now)}
        )

    @web.authenticated
    def post(self) -> None:
        """Somebody types, clicks, or wants to go on."""
        self.watch.kept = time.time()
        self.set_status(204)


def load(server: Any) -> None:
    """Of jupyter_server: this extension is on."""
    watch = Watch(server)
    base = server.web_app.settings["base_url"].rstrip("/")
    server.web_app.add_handlers(
        ".*$", [(rf"{base}/api/plumbline/ends", EndsHandler, {"watch": watch})]
    )
    PeriodicCallback(watch.look, SECONDS_BETWEEN * 1000).start()
    if folder := os.environ.get("PLUMBLINE_NOTEBOOK_FOLDER"):
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
