"""The stack of PAM that SSH goes through, with Slurm asked at its end.

What the role adds stands between two lines of its own, twice: behind the accounts, and in place of
the sessions that an interactive login has. So it is found again, changed and taken away, whatever
else a site has in the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

COMPONENT = "job_login"
BEGIN, END = "# BEGIN plumbline job_login", "# END plumbline job_login"
REPLACED = "# in place of: "
INTERACTIVE = "@include common-session"
GROUP = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\$?")

Settings = Mapping[str, Any]


class Unfit(ValueError):
    """A stack that has no place for it; one sentence."""


class Pam(NamedTuple):
    """What a host's PAM asks of SSH: /etc/pam.d by file, and whether sshd asks it at all."""

    files: Mapping[str, str]

    @property
    def sshd(self) -> str:
        return self.files.get("sshd", "")

    def lines(self, name: str) -> list[str]:
        """The lines that count, with single spaces."""
        every = (" ".join(line.split()) for line in self.files.get(name, "").splitlines())
        return [line for line in every if line and not line.startswith("#")]


def pam(look: str) -> Pam:
    """From the role's look at a host: each file after a line `== NAME`."""
    parts = re.split(r"^== (\S+)\n", look + "\n", flags=re.MULTILINE)
    texts = (text.rstrip("\n") + "\n" for text in parts[2::2])
    return Pam(dict(zip(parts[1::2], texts, strict=True)))


# --- the stack -----------------------------------------------------------------------------------


def bare(text: str) -> str:
    """The stack without what the role added."""
    kept, inside = [], False
    for line in text.splitlines():
        if line.startswith(BEGIN):
            inside = True
        elif line.startswith(END):
            inside = False
        elif not inside:
            kept.append(line)
        elif line.startswith(REPLACED):
            kept.append(line.removeprefix(REPLACED))
    return "\n".join(kept) + "\n"


def accounts(settings: Settings) -> list[str]:
    """Slurm is asked last, and about nobody who is an administrator."""
    groups = ":".join(settings["admin_groups"])
    unknown = settings["of_several_jobs"]
    return [
        f"account [success=1 default=ignore] pam_succeed_if.so quiet user ingroup {groups}",
        "account required pam_slurm_adopt.so action_no_jobs=deny action_adopt_failure=deny "
        f"action_generic_failure=deny action_unknown={unknown} disable_x11=1",
    ]


def sessions(config: Pam, replaced: str, settings: Settings) -> list[str]:
    """logind would take a login out of its job again; administrators keep their sessions."""
    groups = ":".join(settings["admin_groups"])
    without = set(config.lines("common-session-noninteractive"))
    others = [
        line
        for line in config.lines("common-session")
        if line not in without and "pam_systemd" not in line
    ]
    return [
        REPLACED + replaced,
        "@include common-session-noninteractive",
        *others,
        f"session [success=ignore default=1] pam_succeed_if.so quiet user ingroup {groups}",
        "-session optional pam_systemd.so",
    ]


def sshd_stack(config: Pam, settings: Settings) -> str:
    """/etc/pam.d/sshd as it should be."""
    text = bare(config.sshd)
    if not settings["enabled"]:
        return text
    lines = text.splitlines()
    last = max((number for number, line in enumerate(lines) if _is_account(line)), default=None)
    if last is None:
        raise Unfit("/etc/pam.d/sshd has no line for accounts")
    result: list[str] = []
    for number, line in enumerate(lines):
        words = line.split()
        if words[:2] == INTERACTIVE.split() and "common-session-noninteractive" in config.files:
            result += [BEGIN, *sessions(config, line, settings), END]
        else:
            result.append(line)
        if number == last:
            result += [BEGIN, *accounts(settings), END]
    return "\n".join(result) + "\n"


def _is_account(line: str) -> bool:
    words = line.split()
    return bool(words) and (
        words[0].lstrip("-") == "account" or words[:2] == ["@include", "common-account"]
    )


def differs(look: str, settings: Settings) -> bool:
    current = pam(look)
    return bool(current.sshd.strip()) and sshd_stack(current, settings) != current.sshd


def stack(look: str, settings: Settings) -> str:
    return sshd_stack(pam(look), settings)


# --- what is wrong, as sentences -----------------------------------------------------------------


def group_problems(settings: Settings) -> list[str]:
    groups: Sequence[Any] = settings["admin_groups"]
    if not groups:
        return [
            f"{COMPONENT}: job_login_admin_groups is empty; give the group of the administrators, "
            "among them the user as whom Ansible logs in."
        ]
    return [
        f'{COMPONENT}: job_login_admin_groups has "{group}"; give names of groups.'
        for group in groups
        if not GROUP.fullmatch(str(group))
    ]


def host_problems(look: str, operator: str, settings: Settings, host: str) -> list[str]:
    """What would lock Ansible out of a host, or let users in beside Slurm.

    operator: names of the groups of the user as whom Ansible logs in
    """
    return list(_host_problems(pam(look), operator.split(), settings, host))


def _host_problems(
    config: Pam, operator: Sequence[str], settings: Settings, host: str
) -> Iterator[str]:
    groups = settings["admin_groups"]
    if operator[:1] != ["root"] and not set(operator) & set(groups):
        yield (
            f"{COMPONENT}: Ansible logs in to {host} as a user of the groups "
            f"{', '.join(operator) or 'none'}, and only {', '.join(groups)} would come in without "
            "a job; add one of them to job_login_admin_groups, or the user to one of these."
        )
    if not config.sshd.strip():
        yield (
            f"{COMPONENT}: {host} has no /etc/pam.d/sshd; install sshd, or set job_login_enabled "
            "to false."
        )
        return
    if "usepam no" in config.lines("usepam"):
        yield (
            f"{COMPONENT}: sshd of {host} does not ask PAM, and lets in who has no job; set "
            "UsePAM yes in /etc/ssh/sshd_config."
        )
    before = Pam({**config.files, "sshd": bare(config.sshd)})
    for name in ("sshd", "common-account"):
        for line in before.lines(name):
            if _ends_early(line):
                yield (
                    f'{COMPONENT}: /etc/pam.d/{name} of {host} has "{line}", which lets in who has '
                    "no job before Slurm is asked; make it required, or take it out."
                )
    if not any(map(_is_account, before.lines("sshd"))):
        yield (
            f"{COMPONENT}: /etc/pam.d/sshd of {host} has no line for accounts; put the "
            "distribution's file back."
        )


def _ends_early(line: str) -> bool:
    words = line.split(None, 1)
    control = words[1] if len(words) > 1 else ""
    return words[0].lstrip("-") == "account" and (
        control.startswith("sufficient ") or bool(re.match(r"\[[^]]*\bsuccess=done\b", control))
    )


def slurm_problems(config: str, host: str) -> list[str]:
    """What Slurm must do with jobs for a login to be taken into one; `scontrol show config`."""
    shown = dict(re.findall(r"^(\w+)\s*= (.*?)\s*$", config, re.MULTILINE))
    if not shown:
        return [
            f"{COMPONENT}: Slurm does not answer on {host}; run the role slurm for it first, and "
            "see `scontrol ping` there."
        ]
    problems = []
    if "contain" not in shown.get("PrologFlags", "").lower().split(","):
        problems.append(
            f"{COMPONENT}: Slurm has PrologFlags={shown.get('PrologFlags', '')}; add Contain, or "
            "set job_login_enabled to false."
        )
    if shown.get("ProctrackType") != "proctrack/cgroup":
        problems.append(
            f"{COMPONENT}: Slurm has ProctrackType={shown.get('ProctrackType', '')}, and a login "
            "is taken into a cgroup; set slurm_constrain to true, or job_login_enabled to false."
        )
    return problems


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "job_login_differs": differs,
            "job_login_stack": stack,
            "job_login_group_problems": group_problems,
            "job_login_host_problems": host_problems,
            "job_login_slurm_problems": slurm_problems,
        }
