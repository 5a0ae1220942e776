"""A notebook as a Slurm job of its user.

JupyterHub's own spawner class, and nothing else of its ecosystem: batchspawner, whose children most
Slurm sites use, lets a user's notebook set any attribute of its spawner in the hub, also those that
name commands, which the hub runs (batchspawner 1.3.0, api.py). Here the job may tell its port, or
why it cannot start, and no more.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Any

from jupyterhub.spawner import Spawner
from tornado import web
from traitlets import Dict, Integer, List, Unicode

from roles.jupyterhub.files.portal import cluster_now, form, states
from roles.jupyterhub.files.portal.request import Refused, Request, Site, check, of_form
from roles.jupyterhub.files.portal.starting import Starting, refusal

SECONDS_BETWEEN = 1.0
AS_USER_SECONDS = 60


class NotStarted(web.HTTPError):
    """A notebook did not start; its page shows the sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__(409, "%s", sentence)
        self.jupyterhub_message = sentence


class SlurmJobSpawner(Spawner):
    """Submits, asks and cancels as the user, with the program `as_user`."""

    as_user = List(Unicode(), help="The command that does it; {username} is the user's name.").tag(
        config=True
    )
    site = Dict(help="What the site allows notebooks: the fields of request.Site.").tag(config=True)
    notebook = Unicode(help="The program on compute nodes that starts a notebook.").tag(config=True)
    portal_names = List(Unicode(), help="Names by which browsers reach the portal.").tag(
        config=True
    )
    queue_seconds = Integer(600, help="How long a notebook may wait in the queue.").tag(config=True)
    idle_minutes = Integer(0, help="An idle notebook ends after so long; 0: never.").tag(
        config=True
    )

    job_id = Unicode()
    last_end = Unicode()  # how the job before ended, for the form

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.env_keep: list[str] = []  # a job gets nothing of the hub's environment
        self.options_form = self._form
        # start() checks them; without a function here the hub warns of each notebook.
        self.apply_user_options = lambda spawner, options: None
        self._starting = Starting()
        self._certificates: dict[str, str] = {}

    # --- the program that works as the user ------------------------------------------------------

    async def _ask(self, action: str, **what: Any) -> dict[str, Any]:
        """The answer of `as_user`. Raises NotStarted where there is none."""
        argv = [part.format(username=self.user.name) for part in self.as_user]
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        document = json.dumps({"action": action, **what}).encode()
        try:
            out, err = await asyncio.wait_for(process.communicate(document), AS_USER_SECONDS)
            answer = json.loads(out)
        except TimeoutError:
            process.kill()
            raise NotStarted(
                "The portal could not act as you within a minute. Try again."
            ) from None
        except ValueError:
            self.log.error("%s as %s: %s", action, self.user.name, err.decode(errors="replace"))
            raise NotStarted(
                "The portal cannot act as you on this host. Ask your operator."
            ) from None
        if not isinstance(answer, dict):
            raise NotStarted("The portal cannot act as you on this host. Ask your operator.")
        return answer

    async def _job(self) -> states.Job:
        answer = await self._ask("query", job=self.job_id)
        return states.read(answer["code"], answer["out"])

    async def _cluster(self) -> cluster_now.Cluster:
        answer = await self._ask("look")
        if "nodes" not in answer:
            raise NotStarted(str(answer.get("err") or "The portal cannot ask Slurm."))
        return cluster_now.read(answer)

    @property
    def _site(self) -> Site:
        return Site.read(self.site)

    # --- the form --------------------------------------------------------------------------------

    async def _form(self, spawner: Spawner) -> str:
        try:
            cluster = await self._cluster()
        except NotStarted as problem:
            cluster = cluster_now.Cluster(problems=(problem.jupyterhub_message,))
        return form.render(cluster, self._site, self.last_end)

    async def options_from_form(self, form_data: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """What the user chose. Raises NotStarted with a sentence that the form shows."""
        try:
            return of_form(form_data, await self._cluster(), self._site).options
        except Refused as problem:
            raise NotStarted(str(problem)) from None

    def options_from_query(self, query_data: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """No link starts a notebook: another page could lead the user to it."""
        raise NotStarted("A notebook is started with the form, not by a link.")

    # --- its life --------------------------------------------------------------------------------

    async def create_certs(self) -> dict[str, str]:
        """A certificate for whichever node of the partition the job will get."""
        cluster = await self._cluster()
        partition = cluster.partition(str(self.user_options.get("partition", "")))
        nodes = partition.nodes if partition else ()
        # The hub checks a node's name; the proxy that of the browser's request, as Node.js does.
        self.ssl_alt_names = [alternative_name(name) for name in (*self.portal_names, *nodes)]
        self.ssl_alt_names_include_local = False
        return await super().create_certs()

    async def move_certs(self, paths: dict[str, str]) -> dict[str, str]:
        """Reads them: they come to the job in its environment."""
        self._certificates = {}
        for name, path in paths.items():
            with open(path, encoding="utf-8") as file:
                self._certificates[name] = file.read()
        return paths

    def _request(self, cluster: cluster_now.Cluster) -> Request:
        """What to submit; a token of the user's own may have brought others than the form."""
        known = Request.__dataclass_fields__
        try:
            options = {name: value for name, value in self.user_options.items() if name in known}
            kinds = {"gpus": int, "cpus": int, "memory_mib": int, "minutes": int}
            options = {name: kinds.get(name, str)(value) for name, value in options.items()}
            return check(Request(**options), cluster, self._site)
        except (TypeError, ValueError):
            raise NotStarted(
                "These options are not complete. Start the notebook with the form."
            ) from None
        except Refused as problem:
            raise NotStarted(str(problem)) from None

    def _variables(self, request: Request) -> dict[str, str]:
        images = {each.name: each.image for each in self._site.containers}
        variables = {name: str(value) for name, value in self.get_env().items()}
        variables |= {
            f"PLUMBLINE_NOTEBOOK_{name.upper()}": text for name, text in self._certificates.items()
        }
        variables["PLUMBLINE_NOTEBOOK_IDLE"] = str(self.idle_minutes)
        if request.container:
            variables["PLUMBLINE_NOTEBOOK_CONTAINER"] = images[request.container]
        return variables

    async def start(self) -> str:
        """Submits the job and waits until its notebook is there. Raises NotStarted."""
        self._starting, self.last_end, self.job_id = Starting(), "", ""
        request = self._request(await self._cluster())
        answer = await self._ask(
            "submit",
            script=f"#!/bin/sh\nexec {self.notebook}\n",
            arguments=[
                *request.arguments,
                "--job-name=notebook",
                "--no-requeue",
                "--open-mode=truncate",
                "--output=.plumbline-notebook.log",
            ],
            environment=self._variables(request),
        )
        self.job_id = answer["out"].strip().split(";")[0]
        if answer["code"] or not self.job_id.isdigit():
            self.job_id = ""
            raise NotStarted(refusal(answer["err"]))
        self._starting.job_id = self.job_id
        self.log.info("Job %s of %s: submitted", self.job_id, self._log_name)
        try:
            return await self._wait()
        except BaseException:
            await self._cancel()
            raise

    async def _wait(self) -> str:
        begin = time.monotonic()
        try:
            while True:
                job = await self._job()
                seconds = time.monotonic() - begin
                if place := self._starting.place(job, seconds, self.queue_seconds):
                    return f"{'https' if self.internal_ssl else 'http'}://{place}"
                await asyncio.sleep(SECONDS_BETWEEN)
        except Refused as problem:
            raise NotStarted(str(problem)) from None

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """What the page of a starting notebook shows."""
        shown = 0
        while True:
            for text in self._starting.said[shown:]:
                yield {"message": text}
                shown += 1
            await asyncio.sleep(SECONDS_BETWEEN)

    def told(self, document: Mapping[str, Any]) -> bool:
        """Takes what the job says: its port, or why it cannot start. False if it is neither."""
        return self._starting.told(document)

    async def poll(self) -> int | None:
        """None while the job waits or runs, and while Slurm does not answer."""
        if not self.job_id:
            return 0
        try:
            job = await self._job()
        except NotStarted:
            return None
        if job.unknown or job.waits or job.runs:
            return None
        if job.state.split(" ")[0] not in ("COMPLETED", "CANCELLED", "NOT_FOUND"):
            self.last_end = job.ended
        self.log.info("Job %s of %s: %s", self.job_id, self._log_name, job.state)
        return 1

    async def stop(self, now: bool = False) -> None:
        """Cancels the job and waits until it is gone from its node."""
        await self._cancel()
        for _ in range(0 if now else 30):
            if await self.poll() is not None:
                return
            await asyncio.sleep(SECONDS_BETWEEN)

    async def _cancel(self) -> None:
        if self.job_id:
            answer = await self._ask("cancel", job=self.job_id)
            if answer["code"]:
                self.log.warning("scancel %s: %s", self.job_id, answer["err"])

    # --- what a hub that starts again knows -------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """The job, and how the one before ended."""
        return super().get_state() | {"job_id": self.job_id, "last_end": self.last_end}

    def load_state(self, state: dict[str, Any]) -> None:
        """Of get_state."""
        super().load_state(state)
        self.job_id = state.get("job_id", "")
        self.last_end = state.get("last_end", "")

    def clear_state(self) -> None:
        """There is no job any more."""
        super().clear_state()
        self.job_id = ""


def alternative_name(name: str) -> str:
    """A name or an address, as certipy writes it into a certificate."""
    try:
        return f"IP:{ip_address(name)}"
    except ValueError:
        return f"DNS:{name}"
