"""What roles refuse once hosts were asked: their refuse.yml, for all hosts in one process.

A refuse.yml is walked as Ansible would walk it, but a condition is judged once for all hosts that
share what it reads, and a host is asked all that it can be asked at the time at once. The walk is
begun anew with the answers until there is nothing more to ask.

What cannot be decided so is left to Ansible: the role's refuse.yml is then included on the host.
"""

from __future__ import annotations

from collections import ChainMap, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.loader import add_all_plugin_dirs

from playbooks.filter_plugins.preflight_hosts import role_refusal, told
from playbooks.plugin_utils import roles
from playbooks.plugin_utils.judge import ours
from playbooks.plugin_utils.progress import Progress, silent
from playbooks.plugin_utils.site import Site
from playbooks.plugin_utils.values import Reads, Values, expression_reads, value_reads

ASSERT = {"assert", "ansible.builtin.assert"}
SET_FACT = {"set_fact", "ansible.builtin.set_fact"}
HERE = "localhost"

# Names that a task of a play has, and no inventory; and all that begin with `ansible_`.
SAID = {"vars", "environment", "play_hosts", "role_names"}

Answer = dict[str, Any]
Question = Mapping[str, Any]
Run = Callable[[Question, str], Answer]  # a question, for a host, on the control node


@dataclass(frozen=True, slots=True)
class Refusals:
    """What is refused, what is to be asked first, and which roles Ansible has to ask; by host."""

    sentences: Mapping[str, Sequence[str]]
    questions: Mapping[str, Sequence[Question]]
    left: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Here:
    """What is known on the control node."""

    answers: Mapping[str, Mapping[str, Answer]]  # by host and question
    answering: Collection[str]  # hosts that can be asked
    needs_no_host: Callable[[str], bool]  # whether an action runs on the control node
    run: Run


def refusing(
    site: Site,
    roles_of: Mapping[str, Sequence[str]],
    folder: Path,
    here: Here,
    progress: Progress | None = None,
) -> Refusals:
    """Walks the refuse.yml of the roles given to hosts whose facts are known."""
    sentences: dict[str, list[str]] = {host: [] for host in roles_of}
    questions: dict[str, dict[str, Question]] = defaultdict(dict)
    left: dict[str, list[str]] = {host: [] for host in roles_of}
    hosts_of: dict[str, list[str]] = defaultdict(list)
    for host, of in roles_of.items():
        for role in of:
            hosts_of[role].append(host)
    for role in (progress or silent()).over(hosts_of, "roles judged"):
        hosts = hosts_of[role]
        add_all_plugin_dirs(str(folder / role))
        try:
            steps = roles.steps(role, folder / role / roles.REFUSE, site.read)
        except roles.NotPlainError:
            for host in hosts:
                left[host].append(role)
            continue
        walk = Walk(site, folder / role, hosts, here)
        walk.all(steps)
        for host in hosts:
            sentences[host] += walk.sentences.get(host, [])
            if host in walk.undecided:
                left[host].append(role)
        for host, by_number in walk.questions.items():
            questions[host] |= by_number
    return Refusals(
        sentences, {host: list(by_number.values()) for host, by_number in questions.items()}, left
    )


class Wait(Enum):
    """Stands for what the hosts have still to be asked for."""

    WAIT = "wait"


WAIT = Wait.WAIT
# True or False, what one of our filters says instead, or nothing where Ansible has to decide.
Verdict = bool | str | Wait | None


@dataclass(slots=True)
class Walk:
    """One role's steps, for all hosts that take it."""

    site: Site
    folder: Path
    hosts: Sequence[str]
    here: Here
    sentences: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    questions: dict[str, dict[str, Question]] = field(default_factory=lambda: defaultdict(dict))
    undecided: set[str] = field(default_factory=set)  # left to Ansible
    stopped: set[str] = field(default_factory=set)  # as a refusal ends the role on the host
    answers: dict[str, dict[str, Any]] = field(default_factory=lambda: defaultdict(dict))
    awaited: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def all(self, steps: Sequence[roles.Step]) -> None:
        low = self.site.read(self.folder / "defaults" / "main.yml") or {}
        high = self.site.read(self.folder / "vars" / "main.yml") or {}
        high |= {
            "role_path": str(self.folder),
            "role_name": self.folder.name,
            "ansible_search_path": [str(self.folder), str(self.folder / "tasks")],
        }
        names = {name for step in steps for name in _names(step)}
        for step in steps:
            left = [host for host in self.hosts if host not in self.undecided | self.stopped]
            if not left:
                return
            # What is done once is done by the first, and what comes of it holds for all.
            doing = left[:1] if step.run_once else left
            results = {host: self.answers[host] for host in doing}
            inner = {**high, **step.variables}
            values = self.site.values.within(
                doing, low, inner, facts=True, answers=results, own=names
            )
            Turn(self, step, values, left).take(doing)


@dataclass(frozen=True, slots=True)
class Turn:
    """One step of a walk."""

    walk: Walk
    step: roles.Step
    values: Values
    left: Sequence[str]

    def take(self, doing: Sequence[str]) -> None:
        going = list(doing)
        for condition in self.step.when:
            going = self._holding(condition, going, self._skip)
        if self.step.loop is not None:
            going = self._looping(going)
        if self.step.action in ASSERT:
            self._assert(going)
        elif self.step.action in SET_FACT:
            for facts, hosts in self._rendered(self.step.arguments, going):
                for host in hosts:
                    self._tell(host, dict(facts))
        else:
            self._ask(going)

    # --- what comes of it ---

    def _meant(self, host: str) -> Sequence[str]:
        return self.left if self.step.run_once else [host]

    def _tell(self, host: str, facts: Mapping[str, Any]) -> None:
        for name in self._meant(host):
            self.walk.answers[name].update(facts)

    def _skip(self, host: str) -> None:
        if self.step.register:
            self._tell(host, {self.step.register: {"changed": False, "skipped": True}})

    def _wait(self, host: str) -> None:
        for name in self._meant(host):
            self.walk.awaited[name].update(_names(self.step))

    def _leave(self, host: str) -> None:
        self.walk.undecided.update(self._meant(host))

    def _refuse(self, host: str, *sentences: str) -> None:
        self.walk.sentences[host].extend(sentences)
        self.walk.stopped.update(self._meant(host))

    def _other(self, host: str, verdict: Verdict) -> None:
        """What comes of all that is neither true nor false."""
        if verdict is WAIT:
            self._wait(host)
        elif isinstance(verdict, str):
            self._refuse(host, verdict)
        else:
            self._leave(host)

    # --- conditions and values ---

    def _holding(
        self, condition: Any, hosts: Sequence[str], otherwise: Callable[[str], None]
    ) -> list[str]:
        """Those of the hosts for which a condition holds."""
        holding = []
        reads = expression_reads(str(condition))
        key = ("condition", str(condition))
        for token, alike in self.values.alike(hosts, key, reads).items():
            verdict = self._verdict(alike[0], token, reads, condition)
            for host in alike:
                if verdict is True:
                    holding.append(host)
                elif verdict is False:
                    otherwise(host)
                else:
                    self._other(host, verdict)
        return holding

    def _verdict(self, host: str, token: int, reads: Reads, condition: Any) -> Verdict:
        if (open_ := self._open(host, token)) is not False:
            return open_
        try:
            return self.walk.site.engine.holds(self.values.variables(host, reads), condition)
        except AnsibleError as error:
            return ours(error)

    def _open(self, host: str, token: int) -> Verdict:
        """False where all that something reads is known, else what comes of it."""
        reach = self.values.reach(token)
        if reach.missing & self.walk.awaited[host]:
            return WAIT
        # What is missing now will not be there later, but for what Ansible says of a play.
        unsaid = any(name.startswith("ansible_") or name in SAID for name in reach.missing)
        return None if reach.writes or unsaid else False

    def _rendered(self, raw: Any, hosts: Sequence[str]) -> Iterator[tuple[Any, Sequence[str]]]:
        reads = value_reads(raw)
        for token, alike in self.values.alike(hosts, ("value", repr(raw)), reads).items():
            verdict = self._open(alike[0], token)
            if verdict is False:
                try:
                    variables = self.values.variables(alike[0], reads)
                    yield self.walk.site.engine.render(variables, raw), alike
                    continue
                except AnsibleError as error:
                    verdict = ours(error)
            for host in alike:
                self._other(host, verdict)

    # --- kinds of steps ---

    def _looping(self, going: Sequence[str]) -> list[str]:
        """Hosts that loop over nothing are done; what else loops is left to Ansible."""
        for items, hosts in self._rendered(self.step.loop, going):
            for host in hosts:
                if items:
                    self._leave(host)
                elif self.step.register:
                    self._tell(host, {self.step.register: {"changed": False, "results": []}})
        return []

    def _assert(self, going: Sequence[str]) -> None:
        fails: list[str] = []
        that = self.step.arguments.get("that")
        for condition in that if isinstance(that, list) else [that]:
            going = self._holding(condition, going, fails.append)
        message = self.step.arguments.get("fail_msg") or self.step.arguments.get("msg") or ""
        for text, hosts in self._rendered(message, fails):
            sentences = told(text or f"{self.step.name} does not hold.")
            for host in hosts:
                self._refuse(host, *sentences)

    def _ask(self, going: Sequence[str]) -> None:
        step, here = self.step, self.walk.here
        wanted = {
            "arguments": dict(step.arguments),
            "environment": step.environment or {},
            "host": step.delegate_to,
        }
        for call, hosts in self._rendered(wanted, going):
            if call["host"] == HERE:
                answer = here.run(self._question("", call), hosts[0])
                for host in hosts:
                    self._judge(host, answer)
                continue
            for host in hosts:
                target = str(call["host"] or host)
                number = f"{step.role}.{step.number}" + ("" if step.run_once else f".{host}")
                question = self._question(number, call)
                if here.needs_no_host(step.action):  # but it may name the host
                    self._judge(host, here.run(question, host))
                elif number in here.answers.get(target, {}):
                    self._judge(host, here.answers[target][number])
                elif target in here.answering:
                    self.walk.questions[target][number] = question
                    self._wait(host)
                else:
                    self._leave(host)

    def _question(self, number: str, task: Mapping[str, Any]) -> Question:
        return {
            "number": number,
            "action": self.step.action,
            "arguments": task["arguments"],
            "environment": task["environment"],
            "become": self.step.become,
            "check_mode": self.step.check_mode,
            "changed_when": list(self.step.changed_when),
            "no_log": self.step.no_log,
        }

    def _judge(self, host: str, answer: Answer) -> None:
        """What an answer is good for, by what the step says of failing."""
        step = self.step
        result = {key: value for key, value in answer.items() if not key.startswith("_ansible_")}
        if result.get("unreachable"):
            if not step.waits:
                self._leave(host)
                return
            failed = False
        else:
            failed = bool(result.get("failed")) or result.get("rc", 0) != 0
            result["failed"] = failed
            if step.failed_when is not None:
                failed = self._failed_when(host, result)
        result["failed"] = failed
        if failed and not step.forgives:
            self._refuse(host, *role_refusal(result, step.role))
        elif step.register:
            self._tell(host, {step.register: result})

    def _failed_when(self, host: str, answer: Answer) -> bool:
        own = ChainMap({self.step.register: answer}, self.values.hosts[host])
        holds = self.walk.site.engine.holds
        return all(holds(own, condition) for condition in self.step.failed_when or ())


def _names(step: roles.Step) -> set[str]:
    """The variables that a step gives to its hosts."""
    if step.action in SET_FACT:
        return {str(name) for name in step.arguments}
    return {step.register} if step.register else set()


__all__ = ["Here", "Refusals", "refusing"]
