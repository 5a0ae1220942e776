#!/usr/bin/python
"""Silences what Alertmanager is told of nodes that are worked on, and lifts that again.

A silence of ours is known by who set it (O(by)); those that people set are never touched. Each node
is in at most one of them: whoever works on a node again extends what there is, and a node that is
back leaves its silence to those that are not. Every silence has an end, so that a run that was
killed hides nothing for longer.

Alertmanager's API is v2, https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml.
It changes a silence in place where only its end or comment is another, and else puts a new one into
its place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import SSLValidationError, open_url

DOCUMENTATION = r"""
module: alert_silence
short_description: Silence the alerts of nodes for a time, or lift that
description:
  - Sets and lifts silences by Alertmanager's API. In check mode it asks, and changes nothing.
  - An Alertmanager that does not answer is no failure, since maintenance does not wait for it; it
    is RV(answered=false), and RV(note) says why in one sentence.
options:
  url:
    description: Address of Alertmanager.
    type: str
    required: true
  user:
    description: As whom it is asked.
    type: str
    default: ""
  password:
    description: The password of O(user).
    type: str
    default: ""
  authority:
    description: File of the authority that signed Alertmanager's certificate.
    type: path
  by:
    description: Who silences, such as C(reboot-nodes); what others silenced is left alone.
    type: str
    required: true
  nodes:
    description: The nodes, values of the label C(node).
    type: list
    elements: str
    required: true
  alerts:
    description: Regular expressions of C(alertname); with none it is all alerts of the nodes.
    type: list
    elements: str
    default: []
  seconds:
    description: After how long the silence ends by itself.
    type: int
    default: 3600
  reason:
    description: Why; it is shown beside the silence.
    type: str
    default: ""
  state:
    description: Whether the nodes are to be silent.
    type: str
    choices: [present, absent]
    default: present
author: The Plumbline authors
"""

RETURN = r"""
answered:
  description: Whether Alertmanager answered.
  type: bool
  returned: always
note:
  description: What keeps the alerts from being silenced; one sentence, or nothing.
  type: str
  returned: always
silences:
  description: The silences of the nodes as they are now, each with C(nodes) and C(ends).
  type: list
  returned: always
"""

TIMEOUT_S = 10
# An end that is later by less than this is the same one: a second run at once changes nothing.
SAME_END = timedelta(minutes=1)
NAME = re.compile(r"[A-Za-z0-9._-]+")


class Unanswered(Exception):
    """Part of a sentence: what Alertmanager did instead of answering."""


@dataclass(frozen=True, slots=True)
class Silence:
    """One of ours. `id` is empty for one that is not there yet."""

    id: str
    nodes: tuple[str, ...]
    alerts: str
    starts: datetime
    ends: datetime
    reason: str

    def document(self, by: str) -> dict[str, Any]:
        matchers = [matcher("node", "|".join(map(literal, sorted(self.nodes))))]
        if self.alerts:
            matchers.append(matcher("alertname", self.alerts))
        return {
            **({"id": self.id} if self.id else {}),
            "matchers": matchers,
            "startsAt": self.starts.isoformat(),
            "endsAt": self.ends.isoformat(),
            "createdBy": by,
            "comment": self.reason,
        }


def matcher(name: str, pattern: str) -> dict[str, Any]:
    return {"name": name, "value": pattern, "isRegex": True, "isEqual": True}


def literal(name: str) -> str:
    """A name of a node in a regular expression; Alertmanager anchors it."""
    return name.replace(".", r"\.")


def time(text: str) -> datetime:
    """One of the API's. `Z` is no offset for Python before 3.11."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def ours(documents: Sequence[Mapping[str, Any]], by: str) -> Iterator[Silence]:
    """Those that hold now and that we can read; a person may have changed one on the page."""
    for document in documents:
        if document["createdBy"] != by or document["status"]["state"] == "expired":
            continue
        values = {entry["name"]: entry["value"] for entry in document["matchers"]}
        nodes = tuple(values.pop("node", "").replace(r"\.", ".").split("|"))
        alerts = values.pop("alertname", "")
        if all(NAME.fullmatch(node) for node in nodes) and not values:
            yield Silence(
                document["id"],
                nodes,
                alerts,
                time(document["startsAt"]),
                time(document["endsAt"]),
                document["comment"],
            )


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, in this order: `write` first, so that no node is told of in between."""

    write: tuple[Silence, ...]
    lift: tuple[Silence, ...]
    now: tuple[Silence, ...]


def plan(there: Sequence[Silence], wanted: Silence, *, present: bool) -> Plan:
    """How what is there becomes what is wanted: `wanted.nodes` leave all others of ours."""
    mine = [silence for silence in there if silence.alerts == wanted.alerts]
    same = next((s for s in mine if present and {*s.nodes} == {*wanted.nodes}), None)
    leaving = {*wanted.nodes}
    write: list[Silence] = []
    lift: list[Silence] = []
    now: list[Silence] = []
    for silence in mine:
        rest = tuple(node for node in silence.nodes if node not in leaving)
        if silence is same or rest == silence.nodes:
            continue
        if rest:
            write.append(replace(silence, nodes=rest))
        else:
            lift.append(silence)
    if present:
        if same is None:
            now = [wanted]
            write.insert(0, wanted)
        elif wanted.ends - same.ends >= SAME_END:
            now = [replace(same, ends=wanted.ends, reason=wanted.reason)]
            write.insert(0, now[0])
        else:
            now = [same]
    return Plan(tuple(write), tuple(lift), tuple(now))


@dataclass(frozen=True, slots=True)
class Alertmanager:
    url: str
    user: str
    password: str
    authority: str | None

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """What it answers. Raises Unanswered."""
        try:
            with open_url(
                f"{self.url.rstrip('/')}/api/v2/{path}",
                method=method,
                data=None if body is None else json.dumps(body),
                headers={"Content-Type": "application/json"},
                url_username=self.user or None,
                url_password=self.password or None,
                force_basic_auth=bool(self.user),
                ca_path=self.authority,
                use_proxy=False,
                timeout=TIMEOUT_S,
            ) as answer:
                return json.loads(answer.read() or "null")
        except HTTPError as error:
            if error.code == 401:
                raise Unanswered(f"refuses the password of {self.user or 'nobody'}") from None
            said = error.read(200).decode(errors="replace").strip()
            raise Unanswered(f"answers {error.code} {said}".rstrip()) from None
        except (OSError, HTTPException, SSLValidationError, ValueError) as error:
            why = getattr(error, "reason", None) or error
            raise Unanswered(f"does not answer ({why})") from None

    def silences(self) -> Any:
        return self.ask("GET", "silences")

    def write(self, silence: Silence, by: str) -> None:
        self.ask("POST", "silences", silence.document(by))

    def lift(self, silence: Silence) -> None:
        self.ask("DELETE", f"silence/{silence.id}")


def carry_out(
    alertmanager: Alertmanager, by: str, wanted: Silence, *, present: bool, check: bool
) -> Plan:
    """Raises Unanswered."""
    decided = plan([*ours(alertmanager.silences(), by)], wanted, present=present)
    if not check:
        for silence in decided.write:
            alertmanager.write(silence, by)
        for silence in decided.lift:
            alertmanager.lift(silence)
    return decided


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "user": {"type": "str", "default": ""},
            "password": {"type": "str", "default": "", "no_log": True},
            "authority": {"type": "path"},
            "by": {"type": "str", "required": True},
            "nodes": {"type": "list", "elements": "str", "required": True},
            "alerts": {"type": "list", "elements": "str", "default": []},
            "seconds": {"type": "int", "default": 3600},
            "reason": {"type": "str", "default": ""},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        supports_check_mode=True,
    )
    options: dict[str, Any] = module.params
    nodes = tuple(dict.fromkeys(options["nodes"]))
    if not nodes:
        module.exit_json(changed=False, answered=True, note="", silences=[])
    if strange := [node for node in nodes if not NAME.fullmatch(node)]:
        module.fail_json(msg=f"{strange[0]!r} is no name of a node")
    if options["seconds"] <= 0:
        module.fail_json(msg=f"seconds is {options['seconds']}; a silence lasts one or more")
    start = datetime.now(timezone.utc)  # noqa: UP017 - nodes may have Python 3.10
    wanted = Silence(
        id="",
        nodes=nodes,
        alerts="|".join(options["alerts"]),
        starts=start,
        ends=start + timedelta(seconds=options["seconds"]),
        reason=options["reason"] or options["by"],
    )
    keys = ("url", "user", "password", "authority")
    try:
        done = carry_out(
            Alertmanager(**{key: options[key] for key in keys}),
            options["by"],
            wanted,
            present=options["state"] == "present",
            check=module.check_mode,
        )
    except Unanswered as problem:
        module.exit_json(changed=False, answered=False, note=str(problem), silences=[])
    module.exit_json(
        changed=bool(done.write or done.lift),
        answered=True,
        note="",
        silences=[
            {"nodes": list(silence.nodes), "ends": f"{silence.ends:%Y-%m-%d %H:%M UTC}"}
            for silence in done.now
        ],
    )


if __name__ == "__main__":
    main()
