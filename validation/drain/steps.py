"""The steps of --drain and --undrain around a run: shown first, asked for, then done and noted."""

import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cluster.declaration import Declaration
from cluster.errors import PlumblineError, UsageError
from cluster.text import printable
from validation import terminal
from validation.drain import decision
from validation.drain.decision import Return
from validation.model import RunReport
from validation.slurm.admin import Drain, Operator, Refused, reserve_words, resume_command

# How long slurmctld may take to hear of a node that it has resumed (its pings: SlurmdTimeout / 3).
SETTLE_S = 120.0


@dataclass(frozen=True, slots=True)
class Consent:
    """Whether a change is wanted. `yes` says so beforehand; else a person at a terminal does."""

    yes: bool = False

    @property
    def possible(self) -> bool:
        return self.yes or (sys.stdin.isatty() and sys.stderr.isatty())

    def given(self, question: str) -> bool:
        if self.yes:
            return True
        terminal.say(f"{question} [y/N] ", sys.stderr)
        return sys.stdin.readline().strip().lower() in ("y", "yes")


def after(
    report: RunReport, operator: Operator, declared: Declaration, percent: float, consent: Consent
) -> RunReport:
    """Drain what the run found failing, if that is wanted. The report says what was done."""
    wanted = decision.proposed(report)
    if not wanted:
        return report
    try:
        everybody = [name for partition in declared.partitions for name in partition.nodes]
        shown = operator.look(list(dict.fromkeys(everybody)))
        plan = decision.plan(wanted, shown, declared.partitions, percent)
        notes = [*plan.notes, *_drained(plan.drains, operator, consent)]
    except PlumblineError as error:
        notes = [f"nothing is drained: {error}"]
    for note in notes:
        terminal.say(f"  {printable(note)}\n")
    return replace(report, notes=(*report.notes, *notes))


def _drained(drains: Sequence[Drain], operator: Operator, consent: Consent) -> list[str]:
    if not drains:
        return []
    terminal.say("\nto be drained:\n")
    for drain in drains:
        terminal.say(f"  {drain.node}  {printable(drain.reason)}\n")
    what = "this node" if len(drains) == 1 else f"these {len(drains)} nodes"
    if not consent.possible:
        terminal.say("".join(f"  {drain.command}\n" for drain in drains))
        return [f"nothing is drained: no terminal to ask, and no --yes: {decision.named(drains)}"]
    if not consent.given(f"Drain {what}?"):
        return [f"nothing is drained: declined for {decision.named(drains)}"]
    done, notes = [], []
    try:
        for drain in drains:
            if kept := operator.drain(drain):
                notes.append(f"{drain.node} is not drained: {kept}")
            else:
                done.append(drain)
    except PlumblineError as error:
        notes.append(str(error))
    return [f"drained: {decision.named(done)}", *notes] if done else notes


# --- returning -------------------------------------------------------------------------------


@dataclass(slots=True)
class Returning:
    """Nodes that are to be proven again, kept in a reservation meanwhile.

    A drained node gets no job. So the nodes are resumed inside a reservation that lets nobody else
    in, and what does not pass is drained again before it ends. A program that is killed half-way
    leaves the reservation: then nobody uses what nobody has proven.
    """

    operator: Operator
    name: str
    returns: tuple[Return, ...]
    notes: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    @property
    def commands(self) -> list[str]:
        nodes = [item.node for item in self.returns]
        return [shlex.join((*reserve_words(self.name, nodes), "Users=$USER"))] + [
            resume_command(name) for name in nodes
        ]

    def begin(self) -> None:
        """Raises PlumblineError, with everything as it was."""
        self.operator.reserve(self.name, [item.node for item in self.returns])
        resumed: list[Return] = []
        kept = []
        try:
            for item in self.returns:
                if why := self.operator.resume(item.node, item.reason):
                    kept.append(f"{item.node} is not returned: {why}")
                else:
                    resumed.append(item)
            if not resumed:
                raise Refused("; ".join(kept))
            self.returns, self.kept = tuple(resumed), tuple(kept)
            self._settle()
        except BaseException:
            self._again(resumed)
            raise

    def _settle(self) -> None:
        """slurmctld takes a node that it has just resumed for silent until its next word with it.

        One that stays so is judged as it is.
        """
        until = time.monotonic() + SETTLE_S
        names = [item.node for item in self.returns]
        while any("NOT_RESPONDING" in node.words for node in self.operator.look(names).values()):
            if time.monotonic() >= until:
                return
            time.sleep(1)

    def around(self, walked: Callable[[], RunReport]) -> RunReport:
        """The run's report, with what became of the nodes; they are drained again if it raises."""
        try:
            report = walked()
        except BaseException:
            for note in self.end(None):
                terminal.say(f"validation: {printable(note)}\n", sys.stderr)
            raise
        return replace(report, notes=(*report.notes, *self.end(report)))

    def end(self, report: RunReport | None) -> list[str]:
        """Keep in service what passes now, drain the rest again; what was done, in sentences."""
        passing = [item for item in self.returns if report and decision.proven(item, report)]
        rest = [item for item in self.returns if item not in passing]
        notes = [*self.notes, *self.kept]
        if problem := self._again(rest):
            return [*notes, problem]
        if passing:
            notes.insert(0, f"returned to service: {decision.named(passing)}")
        if rest:
            notes.append(f"drained again, with the former reason: {decision.named(rest)}")
        return notes

    def _again(self, items: Sequence[Return]) -> str:
        """Drain these as they were, then let others in. Else a sentence, and they stay reserved."""
        try:
            for item in items:
                self.operator.drain_again(Drain(item.node, item.reason))  # or somebody else has
            self.operator.release(self.name)
        except PlumblineError as error:
            return f"the reservation {self.name} is still there, remove it by hand: {error}"
        return ""


def before(
    operator: Operator,
    names: Sequence[str],
    suite: Sequence[str],
    run_id: str,
) -> Returning:
    """What --undrain would return. Raises UsageError where there is nothing of that kind."""
    returns, notes = decision.returnable(names, operator.look(names), suite)
    if not returns:
        told = f": {'; '.join(notes)}" if notes else ""
        raise UsageError(f"--undrain: no selected node has been drained by a validation{told}")
    return Returning(operator, f"plumbline-{run_id}", returns, notes)


def confirmed(returning: Returning, consent: Consent) -> None:
    """Show what is about to be done. Raises UsageError where it is not wanted."""
    terminal.say("to be proven, and returned where all passes:\n", sys.stderr)
    for item in returning.returns:
        terminal.say(f"  {item.node}  {printable(item.reason)}\n", sys.stderr)
    if not consent.possible:
        commands = "".join(f"  {command}\n" for command in returning.commands)
        terminal.say(commands, sys.stderr)
        raise UsageError("--undrain: nothing was changed: there is no terminal to ask; give --yes")
    if not consent.given("Resume them in a reservation of their own?"):
        raise UsageError("--undrain: nothing was changed")
