"""The items of the security of a cluster: what is demanded, of which hosts, and what to do.

The numbers are those of the list in docs/understand/security.md#what-is-verified; `+` marks items
that the list does not have. Each item is a pure function over the answers of a host.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from cluster import fixed_versions
from playbooks.module_utils.loaded_driver import loaded
from playbooks.plugin_utils.security import (
    STATED,
    TESTED,
    Elsewhere,
    Host,
    Item,
    never_off,
)

PAGE = "docs/understand/security.md"
RUN = "ansible-playbook -i INVENTORY playbooks/slurm-cluster.yml"

# --- which hosts ---------------------------------------------------------------------------------


def _group(*names: str) -> Callable[[Host], bool]:
    return lambda host: host.is_in(*names)


controllers = _group("slurm_controller")
computes = _group("slurm_compute")
databases = _group("slurm_database")
of_slurm = _group("slurm_controller", "slurm_database", "slurm_login", "slurm_compute")


def has(question: str) -> Callable[[Host], bool]:
    """Whether a host has a table of answers that is not empty."""
    return lambda host: isinstance(found := host.facts.get(question), Mapping) and bool(found)


def without(variable: str) -> Callable[[Host], str]:
    """Off where the inventory sets the variable to something false."""

    def reason(host: Host) -> str:
        value = host.declared.get(variable)
        off = not value or str(value).lower() in {"false", "no", "off", "0"}
        return f"{variable} is {_word(value)} in the inventory" if off else ""

    return reason


def _word(value: Any) -> str:
    if value is None:
        return "not set"
    return str(value).lower() if value or value is False else "empty"


def first_of(*reasons: Callable[[Host], str]) -> Callable[[Host], str]:
    return lambda host: next((reason for each in reasons if (reason := each(host))), "")


# --- files ---------------------------------------------------------------------------------------

# Secrets on hosts: pattern -> owner, and the mode that it has at most.
SECRETS: Mapping[str, tuple[str, int]] = {
    "/etc/munge/munge.key": ("munge", 0o400),
    "/etc/slurm/slurmdbd.conf": ("slurm", 0o600),
    "/etc/slurm/jwt_hs256.key": ("slurm", 0o400),
    "/etc/plumbline/tls/host.key": ("root", 0o640),
    "/etc/plumbline/tls/authority.pem": ("root", 0o600),
    "/etc/plumbline/*/web.yml": ("root", 0o640),
    "/etc/prometheus/web.yml": ("root", 0o640),
    "/etc/prometheus/secrets/*": ("root", 0o640),
    "/etc/dcgm-exporter/web-config.yml": ("root", 0o600),
    "/etc/plumbline/alertmanager/*_password": ("root", 0o640),
    "/etc/plumbline/alertmanager/*_url": ("root", 0o640),
    "/etc/plumbline/alertmanager/secrets/*": ("root", 0o640),
    "/etc/plumbline/job_report.password": ("root", 0o600),
    "/etc/plumbline/slurm_exporter.password": ("root", 0o600),
    "/etc/plumbline/portal/token": ("root", 0o600),
    "/etc/plumbline/portal/oidc": ("root", 0o600),
    "/etc/sssd/sssd.conf": ("root", 0o640),
    "/etc/grafana/grafana.ini": ("root", 0o640),
    "/var/lib/plumbline-portal": ("plumbline-portal", 0o700),
}
# What root runs, also for a job: nobody else may write it.
PROGRAMS = (
    "/etc/slurm/slurm.conf",
    "/etc/slurm/*.d",
    "/etc/slurm/*.d/*",
    "/etc/slurm/bin",
    "/etc/slurm/bin/*",
    "/etc/plumbline/tls/ca.crt",
    "/etc/ssh/authorized_keys.d",
    "/etc/ssh/authorized_keys.d/*",
    "/opt/plumbline",
    "/usr/local/libexec/plumbline",
    "/usr/local/libexec/plumbline/*",
    "/usr/local/sbin/plumbline*",
    "/var/lib/slurm/slurmd",
)
KEY = "/etc/munge/munge.key"
DBD = "/etc/slurm/slurmdbd.conf"
JWT = "/etc/slurm/jwt_hs256.key"


def paths(declared: Mapping[str, Any]) -> list[str]:
    """The patterns that a host is asked for."""
    own = [declared.get("slurm_state_save_location"), "/etc/munge"]
    return [*SECRETS, *PROGRAMS, *(str(path) for path in own if path)]


def _files(host: Host, *patterns: str) -> list[Mapping[str, Any]]:
    wanted = [re.compile(re.escape(pattern).replace(r"\*", "[^/]*")) for pattern in patterns]
    return [
        file
        for file in host.facts.get("files", [])
        if any(pattern.fullmatch(file["path"]) for pattern in wanted)
    ]


def _is_there(*patterns: str) -> Callable[[Host], bool]:
    return lambda host: bool(_files(host, *patterns))


def _closed(host: Host, pattern: str, owner: str, most: int) -> Iterator[str]:
    """What is wrong with owner, mode or place of files that only their owner may write."""
    for file in _files(host, pattern):
        mode = int(file["mode"], 8)
        if file["owner"] != owner or mode & ~most:
            yield (
                f"{file['path']} is {file['owner']}'s with mode {file['mode']}, "
                f"not {owner}'s with {most:04o}"
            )
        elif others := set(file["writers"]) - {owner}:
            yield f"{_names(others)} can replace {file['path']}: a folder above it is theirs"


def _names(names: Iterable[str]) -> str:
    return " and ".join("others" if name == "*" else name for name in sorted(names))


def closed_secrets(*patterns: str) -> Callable[[Host], list[str]]:
    return lambda host: [
        problem for each in patterns for problem in _closed(host, each, *SECRETS[each])
    ]


def roots_programs(host: Host) -> Iterator[str]:
    for file in _files(host, *PROGRAMS):
        if file["owner"] != "root" or int(file["mode"], 8) & 0o022:
            yield f"{file['path']} is {file['owner']}'s with mode {file['mode']}"
        elif file["writers"]:
            yield f"{_names(file['writers'])} can replace {file['path']}: a folder above is theirs"


def state_folder(host: Host) -> Iterator[str]:
    """Slurm's state is slurm's alone, in a folder that slurm cannot turn into a link elsewhere."""
    for file in _files(host, str(host.declared["slurm_state_save_location"])):
        if file["owner"] != "slurm" or int(file["mode"], 8) & 0o077:
            yield f"{file['path']} is {file['owner']}'s with mode {file['mode']}, not slurm's, 0700"
        if file["kind"] == "link":
            yield f"{file['path']} is a link"
        if file["writers"]:
            yield f"{_names(file['writers'])} can replace {file['path']}: a folder above is theirs"


# --- MUNGE ---------------------------------------------------------------------------------------

KEY_LEAST_BYTES = 128
# munged gave its key to whoever asked for it so. Distributions mend the release that they have.
MUNGE_HOLE, MUNGE_RELEASE = "CVE-2026-25506", (0, 5, 18)


def munge_key(host: Host) -> Iterator[str]:
    yield from closed_secrets(KEY)(host)
    key = host.facts["munge"]
    if key["bytes"] < KEY_LEAST_BYTES:
        yield f"{KEY} has {key['bytes']} bytes, fewer than {KEY_LEAST_BYTES}"
    if key["text"]:
        yield f"{KEY} is text, and so not random: somebody could derive it"


def one_key(hosts: Sequence[Host]) -> dict[str, str]:
    """Hosts whose key is not that of most of them."""
    having = [host for host in hosts if host.facts["munge"]]
    digests = {host.name: host.facts["munge"]["digest"] for host in having}
    if len(set(digests.values())) <= 1:
        return {}
    most = Counter(digests.values()).most_common(1)[0][0]
    others = sum(digest == most for digest in digests.values())
    return {
        name: f"{KEY} is another than that of {others} hosts"
        for name, digest in digests.items()
        if digest != most
    }


def munge_version(host: Host) -> Iterator[str]:
    found = host.facts["munge_version"]
    numbers = tuple(map(int, re.findall(r"\d+", found["version"].partition("-")[0])))[:3]
    if numbers >= MUNGE_RELEASE or found["changelog"] is True:
        return
    if found["changelog"] == "":
        yield f"munge {found['version']} has no changelog there that would name {MUNGE_HOLE}"
    else:
        yield f"munge {found['version']} is open to {MUNGE_HOLE}"


def replay(host: Host) -> Iterator[str]:
    said = host.facts["replay"]
    if said["first"] != "Success":
        yield f"munged does not accept a credential of its own: {said['first']}"
        return
    if said["second"] != "Replayed credential":
        yield f"munged accepts a credential twice: {said['second']}"
    if said["late"] != "Expired credential":
        yield f"munged accepts a credential after its end: {said['late']}"


# --- Slurm's configuration -----------------------------------------------------------------------

SLURM_CURE = f"take what slurm_settings says otherwise out of the inventory, and run {RUN}"


def setting(name: str, *wanted: str, among: bool = False) -> Callable[[Host], list[str]]:
    """A setting of slurmctld that is one of these words, or with `among` has all of them."""

    def problems(host: Host) -> list[str]:
        found = str(host.facts["slurm"].get(name.lower(), ""))
        words = {word.strip().lower() for word in found.split(",")}
        fine = (
            words >= {w.lower() for w in wanted}
            if among
            else found.lower() in {word.lower() for word in wanted}
        )
        shown = found or "not set"
        return [] if fine else [f"{name} is {shown}, not {(',' if among else ' or ').join(wanted)}"]

    return problems


def both(*judges: Callable[[Host], Iterable[str]]) -> Callable[[Host], list[str]]:
    return lambda host: [problem for judge in judges for problem in judge(host)]


CONSTRAINTS = ("ConstrainCores", "ConstrainRAMSpace", "ConstrainSwapSpace", "ConstrainDevices")


def cgroups(host: Host) -> Iterator[str]:
    for name in CONSTRAINTS:
        if (found := host.facts["cgroup"].get(name.lower(), "no")).lower() != "yes":
            yield f"{name} is {found} for slurmd"


def flags_without_x11(host: Host) -> list[str]:
    flags = str(host.facts["slurm"].get("prologflags", ""))
    return [f"PrologFlags is {flags}"] if "x11" in flags.lower() else []


def private_data(host: Host) -> list[str]:
    return setting("PrivateData", "jobs", "usage", among=True)(host)


def private_data_off(host: Host) -> str:
    wanted = host.declared.get("slurm_private_data") or []
    missing = [word for word in ("jobs", "usage") if word not in wanted]
    return f"slurm_private_data lacks {' and '.join(missing)} in the inventory" if missing else ""


def private_data_of_accounting(host: Host) -> list[str]:
    found = str(host.facts["slurmdbd"].get("privatedata", ""))
    words = {word.strip().lower() for word in found.split(",")}
    missing = sorted({"jobs", "usage"} - words)
    return [f"PrivateData of slurmdbd lacks {' and '.join(missing)}"] if missing else []


def no_users(host: Host) -> str:
    return "" if host.declared.get("slurm_users") else "slurm_users is empty in the inventory"


def own_tmp(host: Host) -> Iterator[str]:
    config = host.facts["slurm"]
    plugins = {config.get("jobcontainertype", ""), config.get("namespacetype", "")}
    if not plugins & {"job_container/tmpfs", "namespace/tmpfs", "namespace/linux"}:
        yield "slurmctld has neither JobContainerType nor NamespaceType"


def metrics_of_slurmctld(host: Host) -> Iterator[str]:
    """From 25.11 on slurmctld answers HTTP on its port, to everybody who can reach it."""
    config = host.facts["slurm"]
    if config.get("metricstype", "").lower() not in {"", "(null)", "none"}:
        yield f"MetricsType is {config['metricstype']}"
    version = tuple(map(int, re.findall(r"\d+", config.get("slurm_version", ""))[:2]))
    if not version:
        yield "slurmctld does not say its version"
    elif version >= (25, 11) and "disable_http" not in config.get("communicationparameters", ""):
        yield "CommunicationParameters lacks disable_http"


def token_key(host: Host) -> Iterator[str]:
    """The key that signs tokens of anybody: where slurmctld and slurmdbd run, and nowhere else."""
    yield from closed_secrets(JWT)(host)
    if _files(host, JWT) and not host.is_in("slurm_controller", "slurm_database"):
        yield f"{JWT} is on a host that is neither a controller nor a database host"


def token_lifespan(host: Host) -> Iterator[str]:
    config = host.facts["slurm"]
    if "jwt" in config.get("authalttypes", "").lower():
        parameters = config.get("authaltparameters", "")
        if "max_token_lifespan=" not in parameters:
            yield "AuthAltParameters has no max_token_lifespan: a user's token may last for ever"


def rest_daemon(host: Host) -> Iterator[str]:
    users = set(host.facts["daemons"].get("slurmrestd", []))
    if bad := users & {"root", "slurm"}:
        yield f"slurmrestd runs as {_names(bad)}"
    for address, port, programs in host.facts["listening"]:
        if "slurmrestd" in programs and not _is_loopback(address):
            yield f"slurmrestd listens on {address}:{port} without TLS"
    if users and not host.declared.get("slurmrestd_enabled"):
        yield "slurmrestd runs, and slurmrestd_enabled is false"


def sandboxed(*names: str) -> Callable[[Host], list[str]]:
    wanted = {"nonewprivileges": "yes", "protectsystem": "strict", "privatetmp": "yes"}

    def problems(host: Host) -> list[str]:
        found = []
        for name in names:
            unit = host.facts["units"].get(name)
            if unit is None:
                continue
            found += [
                f"{name} has {key} {unit.get(key) or 'not set'}, not {value}"
                for key, value in wanted.items()
                if unit.get(key) != value
            ]
        return found

    return problems


# --- the database --------------------------------------------------------------------------------


def database_accounts(host: Host) -> Iterator[str]:
    found = host.facts["database"]
    for account in found["accounts"]:
        name, _, place = account.rpartition("@")
        if not name and place != "":
            yield f"MariaDB has an account without a name at {place}"
        elif place not in {"localhost", "127.0.0.1", "::1", ""}:
            yield f"MariaDB lets {name} in from {place}"
    if "test" in found["databases"]:
        yield "MariaDB has the database test, which is everybody's"


def database_socket(host: Host) -> Iterator[str]:
    for address, port, programs in host.facts["listening"]:
        if re.search(r"mariadbd|mysqld", programs) and not _is_loopback(address):
            yield f"MariaDB listens on {address}:{port}"


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.removeprefix("::ffff:")).is_loopback
    except ValueError:  # `*`
        return False


# --- SSH -----------------------------------------------------------------------------------------


def sshd(name: str, *wanted: str) -> Callable[[Host], list[str]]:
    def problems(host: Host) -> list[str]:
        found = host.facts["sshd"].get(name, "not set")
        return [] if found in wanted else [f"sshd has {name} {found}, not {' or '.join(wanted)}"]

    return problems


def root_login(host: Host) -> list[str]:
    return sshd("permitrootlogin", "no")(host)


def roots_keys_alone(host: Host) -> str:
    return (
        "node_base_root_login is true in the inventory: root comes in with a key"
        if host.declared.get("node_base_root_login")
        else ""
    )


def forwarding_allowed(variable: str) -> Callable[[Host], str]:
    return lambda host: (
        f"{variable} is true in the inventory" if host.declared.get(variable) else ""
    )


def takes_passwords(host: Host) -> str:
    found = host.facts.get("sshd") or {}
    answers = [
        n
        for n in ("passwordauthentication", "kbdinteractiveauthentication")
        if found.get(n) == "yes"
    ]
    return f"sshd takes passwords, which the site decides ({', '.join(answers)})" if answers else ""


ADOPTING = ("action_no_jobs=deny", "action_adopt_failure=deny", "action_generic_failure=deny")


def adopts(host: Host) -> Iterator[str]:
    """pam_slurm_adopt is required, refuses whom it cannot take in, and nothing goes past it."""
    lines = host.facts["pam_sshd"]
    accounts = [line for line in lines if re.match(r"-?account\b", line)]
    asked = [line for line in accounts if "pam_slurm_adopt" in line]
    if not asked:
        yield "PAM does not ask pam_slurm_adopt for SSH"
        return
    line = asked[-1]
    if not line.startswith("account required "):
        yield f'pam_slurm_adopt is not required: "{line}"'
    for option in (
        "action_no_jobs=deny",
        "action_adopt_failure=deny",
        "action_generic_failure=deny",
    ):
        if option not in line.split():
            yield f"pam_slurm_adopt lacks {option}"
    before = accounts[: accounts.index(line)]
    if any(re.match(r"-?account\s+sufficient\b", each) for each in before):
        yield "an account that is sufficient stands before pam_slurm_adopt"
    if host.facts["sshd"] and host.facts["sshd"].get("usepam") != "yes":
        yield "sshd does not ask PAM"


def administrators_come_in(host: Host) -> Iterator[str]:
    wanted = ":".join(map(str, host.declared.get("job_login_admin_groups") or []))
    lines = [line for line in host.facts["pam_sshd"] if line.startswith("account [success=1 ")]
    if not any(line.endswith(f"pam_succeed_if.so quiet user ingroup {wanted}") for line in lines):
        yield f"PAM does not let the groups {wanted} past pam_slurm_adopt"


# --- accounts ------------------------------------------------------------------------------------


def known_holes(host: Host) -> Iterator[str]:
    told = host.facts["versions"]
    versions = {**told["packages"]}
    if told["driver"]:
        versions[fixed_versions.DRIVER], _ = loaded(told["driver"])
        if not versions[fixed_versions.DRIVER]:
            yield f"the driver tells no version: {told['driver'].splitlines()[0]}"
    yield from fixed_versions.holes(versions, told["system"])


def has_versions(host: Host) -> bool:
    """Whether there is anything whose version can be judged."""
    told = host.facts.get("versions") or {}
    return bool(told.get("packages") or told.get("driver"))


def no_user_is_root(host: Host) -> Iterator[str]:
    """Whoever is root on one node acts as any user of Slurm on all: none of them may have sudo."""
    names = {str(user["name"]) for user in host.declared.get("slurm_users") or []}
    for group, members in host.facts["privileged"].items():
        if both_ := names & set(members):
            place = "files of sudo" if group == "sudoers" else f"group {group}"
            yield f"{_names(both_)} may submit jobs and is in the {place}"


def nobody_in_docker(host: Host) -> Iterator[str]:
    members = set(host.facts["privileged"].get("docker", [])) - {"root"}
    if members:
        yield f"{_names(members)} is in the group docker, and so root"


# --- servers -------------------------------------------------------------------------------------

REFUSING = {"401", "403", "refused"}


def web_ports(declared: Mapping[str, Any]) -> list[tuple[int, str]]:
    """What each server would tell first, by port."""
    asked = {
        "node_exporter_port": "/metrics",
        "gpu_exporter_port": "/metrics",
        "prometheus_port": "/api/v1/status/config",
        "alertmanager_port": "/api/v2/status",
    }
    own = [(int(declared[name]), path) for name, path in asked.items() if declared.get(name)]
    return [*own, (GRAFANA_PORT, "/api/org")]


GRAFANA_PORT = 3000


def _servers(host: Host) -> Iterator[tuple[str, Mapping[str, str]]]:
    for port, told in host.facts["web"].items():
        if int(port) != GRAFANA_PORT:
            yield port, told


def closed_servers(host: Host) -> Iterator[str]:
    for port, told in _servers(host):
        if told["tls"] not in REFUSING:
            yield f"port {port} answers {told['tls']} to somebody without a password"
        elif told["tls"] == "refused":
            yield f"port {port} speaks no TLS"
        if told["clear"] not in REFUSING | {"400"}:
            yield f"port {port} answers {told['clear']} in the clear"


def closed_grafana(host: Host) -> Iterator[str]:
    yield from closed_secrets("/etc/grafana/grafana.ini")(host)
    found = host.facts["grafana"]
    if found["auth.anonymous.enabled"].lower() == "true":
        yield "Grafana shows itself to anybody (auth.anonymous)"
    if found["users.allow_sign_up"].lower() != "false":
        yield "Grafana lets anybody sign up (allow_sign_up)"
    if found["server.protocol"] not in {"https", "h2"}:
        yield f"Grafana speaks {found['server.protocol'] or 'http'}"
    told = host.facts["web"].get(str(GRAFANA_PORT))
    if told and told["tls"] not in REFUSING:
        yield f"Grafana answers {told['tls']} to somebody without a password"


# --- the system ----------------------------------------------------------------------------------


def firewall(host: Host) -> Iterator[str]:
    chains = host.facts["firewall"]
    if not chains:
        yield "there is no table inet plumbline with a chain at the input hook"
    elif not any(policy == "drop" for policy in chains.values()):
        yield "no chain at the input hook drops what no rule allows"


def _soft_limit(host: Host, name: str) -> str:
    found: Sequence[str] = host.facts["slurmd_limits"].get(name) or ["not known"]
    return str(found[0])


def locked_memory(host: Host) -> list[str]:
    soft = _soft_limit(host, "Max locked memory")
    return [] if soft == "unlimited" else [f"slurmd may lock {soft} bytes, and each of its jobs"]


def in_container(host: Host) -> str:
    """Its kernel is its host's, and it cannot lift its own limits."""
    return (
        "the node is a container: limits and kernel are its host's"
        if (host.facts.get("container"))
        else ""
    )


def dumps_allowed(host: Host) -> str:
    limits = host.declared.get("node_base_limits") or []
    wanted = any(limit.get("item") == "core" and str(limit.get("value")) == "0" for limit in limits)
    return "" if wanted else "node_base_limits has no core of 0 in the inventory"


def no_dumps(host: Host) -> list[str]:
    soft = host.facts["user_limits"].get("core", "no limited number of")
    return [] if soft == "0" else [f"programs of users dump cores of {soft} KiB"]


def sysctls(host: Host) -> Iterator[str]:
    wanted = dict(host.declared.get("node_base_sysctls") or {})
    if host.declared.get("node_base_perf"):
        wanted.pop("kernel.kptr_restrict", None)
    for name, value in wanted.items():
        found = host.facts["sysctls"].get(name)
        if found is not None and found != str(value):
            yield f"{name} is {found}, not {value}"


def hidden_processes(host: Host) -> str:
    if host.facts.get("hidepid") in {"0", "off"}:
        return f"/proc is mounted without hidepid; {PAGE}#what-is-left-to-the-site says why"
    return ""


def upgrades(host: Host) -> Iterator[str]:
    wanted = host.declared.get("node_base_upgraded_by_hand") or []
    missing = [name for name in wanted if name not in host.facts["apt"]["by_hand"]]
    if missing:
        yield f"unattended upgrades may replace {', '.join(map(str, missing))}"


def checked_sources(host: Host) -> Iterator[str]:
    for place in host.facts["apt"]["unchecked"]:
        yield f"APT installs without a signature: {place}"


def journal(host: Host) -> list[str]:
    return [] if host.facts["journal"] else ["the journal does not have the line of this run"]


def logs_leave(host: Host) -> str:
    return (
        ""
        if host.declared.get("log_collection_host")
        else ("log_collection_host is empty in the inventory: logs stay on their hosts")
    )


def sends_logs(host: Host) -> list[str]:
    state = (host.facts["units"].get("rsyslog") or {}).get("activestate")
    return [] if state == "active" else ["rsyslog does not run, and logs do not leave the host"]


# --- the list ------------------------------------------------------------------------------------

# The variables that are read, with the role whose default counts where a site sets none.
DECLARED: Mapping[str, str] = {
    "ansible_user": "",
    "alertmanager_port": "alertmanager",
    "firewall_enabled": "firewall",
    "gpu_exporter_port": "gpu_exporter",
    "job_login_admin_groups": "job_login",
    "job_login_enabled": "job_login",
    "log_collection_host": "log_collection",
    "node_base_agent_forwarding": "node_base",
    "node_base_baseline": "node_base",
    "node_base_limits": "node_base",
    "node_base_perf": "node_base",
    "node_base_root_login": "node_base",
    "node_base_sysctls": "node_base",
    "node_base_upgraded_by_hand": "node_base",
    "node_base_x11_forwarding": "node_base",
    "node_exporter_port": "node_exporter",
    "prometheus_port": "prometheus",
    "slurm_constrain": "slurm",
    "slurm_database_sandbox": "slurm_database",
    "slurm_private_data": "slurm",
    "slurm_private_tmp": "slurm",
    "slurm_sandbox": "slurm",
    "slurm_state_save_location": "slurm",
    "slurm_users": "slurm_associations",
    "slurm_exporter_openmetrics": "slurm_exporter",
    "slurmrestd_enabled": "slurmrestd",
}
UNITS = ("slurmctld", "slurmdbd", "rsyslog")

ITEMS: tuple[Item | Elsewhere, ...] = (
    Item(
        "1",
        "munge-key",
        "The MUNGE key is random, munge's alone, and the same on all hosts",
        f"write a new key and run {RUN} -e munge_key_rotate=true ({PAGE}#to-replace-one)",
        munge_key,
        needs=("files", "munge"),
        concerns=of_slurm,
        between=one_key,
    ),
    Item(
        "2",
        "munge-version",
        "munged does not give its key away (CVE-2026-25506)",
        "upgrade the package munge on these hosts, then replace the key",
        munge_version,
        needs=("munge_version",),
        concerns=of_slurm,
    ),
    Item(
        "3",
        "munge-replay",
        "munged accepts a credential once, and not for ever",
        "restart munge on these hosts; if that does not help, install its package anew",
        replay,
        needs=("replay",),
        concerns=of_slurm,
    ),
    Elsewhere(
        "3",
        "munge-foreign",
        "Forged credentials, and those of another key, are refused",
        TESTED,
        "roles/munge/molecule/default/tests/test_munge.py, "
        "molecule/default/tests/test_1_cluster.py",
    ),
    Elsewhere(
        "4",
        "auth-slurm",
        "auth/slurm in place of MUNGE",
        STATED,
        f"{PAGE}#what-the-shared-key-means",
    ),
    Item(
        "5",
        "slurmdbd-file",
        "slurmdbd.conf, with the database's password, is slurm's alone",
        f"run {RUN} --tags slurm_database; if users could read it, replace the password",
        closed_secrets(DBD),
        needs=("files",),
        concerns=databases,
        there=_is_there(DBD),
    ),
    Item(
        "6",
        "database-accounts",
        "MariaDB lets nobody in from another host, and nobody without a name",
        "DROP USER these accounts, and DROP DATABASE test, in mariadb on that host",
        database_accounts,
        needs=("database",),
        concerns=databases,
        there=has("database"),
    ),
    Item(
        "6",
        "database-socket",
        "MariaDB listens on loopback alone",
        f"set bind-address to 127.0.0.1: run {RUN} --tags slurm_database",
        database_socket,
        needs=("listening", "database"),
        concerns=databases,
        there=has("database"),
    ),
    Elsewhere(
        "7",
        "default-secrets",
        "Known, short and empty secrets are refused",
        TESTED,
        "tests/hostile_inventories/cases.py, molecule/default/tests/test_2_playbook.py",
    ),
    Item(
        "8",
        "secret-files",
        "Secrets on hosts are closed to everybody else",
        f"run {RUN}; if users could read one, replace it ({PAGE}#to-replace-one)",
        closed_secrets(*SECRETS),
        needs=("files",),
        there=_is_there(*SECRETS),
    ),
    Elsewhere(
        "8",
        "secrets-in-logs",
        "No log has a secret",
        TESTED,
        "molecule/default/tests/test_1_strangers.py",
    ),
    Item(
        "9",
        "cgroups",
        "Jobs are held to their cores, memory and devices: slurmctld",
        SLURM_CURE,
        both(
            setting("ProctrackType", "proctrack/cgroup"),
            setting("TaskPlugin", "task/cgroup", among=True),
        ),
        needs=("slurm",),
        concerns=controllers,
        off=without("slurm_constrain"),
    ),
    Item(
        "9",
        "cgroups-of-nodes",
        "Jobs are held to their cores, memory and devices: each slurmd",
        f"{SLURM_CURE}; then restart slurmd there",
        cgroups,
        needs=("cgroup",),
        concerns=computes,
        off=without("slurm_constrain"),
    ),
    Elsewhere(
        "9",
        "gpus-of-jobs",
        "A job with one GPU opens that one, and no job more memory than it has",
        TESTED,
        "roles/slurm/molecule/default/tests/test_slurm.py, "
        "roles/job_login/molecule/default/tests/test_job_login.py",
    ),
    Elsewhere(
        "10",
        "no-gpu-unasked",
        "A job that asked for no GPU opens none",
        TESTED,
        "roles/slurm/molecule/default/tests/test_slurm.py",
    ),
    Item(
        "11",
        "job-login",
        "Users come into compute nodes with a job there alone, and into it",
        f"run {RUN} --tags job_login",
        adopts,
        needs=("pam_sshd", "sshd"),
        concerns=computes,
        off=without("job_login_enabled"),
    ),
    Item(
        "11",
        "contained-logins",
        "Slurm makes the step that such a login joins",
        SLURM_CURE,
        setting("PrologFlags", "Contain", among=True),
        needs=("slurm",),
        concerns=controllers,
    ),
    Item(
        "12",
        "administrators",
        "Administrators come into compute nodes without a job",
        f"run {RUN} --tags job_login",
        administrators_come_in,
        needs=("pam_sshd",),
        concerns=computes,
        off=without("job_login_enabled"),
    ),
    Item(
        "13",
        "root-login",
        "Root does not log in with SSH",
        f"remove what a site's own file in /etc/ssh/sshd_config.d says, and run {RUN} "
        "--tags node_base",
        root_login,
        needs=("sshd",),
        off=first_of(without("node_base_baseline"), roots_keys_alone),
        there=has("sshd"),
    ),
    Item(
        "13",
        "ssh-passwords",
        "SSH takes keys alone",
        "set PasswordAuthentication no in a file of the site's in /etc/ssh/sshd_config.d",
        sshd("permitemptypasswords", "no"),
        needs=("sshd",),
        off=takes_passwords,
        there=has("sshd"),
    ),
    Item(
        "13",
        "x11-forwarding",
        "SSH forwards no X11",
        f"run {RUN} --tags node_base",
        sshd("x11forwarding", "no"),
        needs=("sshd",),
        off=first_of(without("node_base_baseline"), forwarding_allowed("node_base_x11_forwarding")),
        there=has("sshd"),
    ),
    Item(
        "13",
        "agent-forwarding",
        "No agent of a user is within reach of root on a compute node",
        f"run {RUN} --tags node_base",
        sshd("allowagentforwarding", "no"),
        needs=("sshd",),
        concerns=computes,
        off=first_of(
            without("node_base_baseline"), forwarding_allowed("node_base_agent_forwarding")
        ),
        there=has("sshd"),
    ),
    Elsewhere(
        "13",
        "tcp-forwarding",
        "SSH forwards no TCP into compute nodes",
        STATED,
        f"{PAGE}#what-is-left-to-the-site",
    ),
    Item(
        "14",
        "root-jobs",
        "Root submits no jobs",
        SLURM_CURE,
        setting("DisableRootJobs", "yes"),
        needs=("slurm",),
        concerns=controllers,
    ),
    Item(
        "15",
        "private-data",
        "Users see their own jobs and usage alone in the queue",
        SLURM_CURE,
        private_data,
        needs=("slurm",),
        concerns=controllers,
        off=private_data_off,
    ),
    Item(
        "15",
        "private-accounting",
        "Users see their own jobs and usage alone in accounting",
        f"run {RUN} --tags slurm_database",
        private_data_of_accounting,
        needs=("slurmdbd",),
        concerns=databases,
        off=first_of(private_data_off, no_users),
    ),
    Item(
        "16",
        "accounts-enforced",
        "Nobody computes without an account, or beyond its limits",
        SLURM_CURE,
        setting("AccountingStorageEnforce", "associations", "limits", "qos", "safe", among=True),
        needs=("slurm",),
        concerns=controllers,
        off=no_users,
    ),
    Item(
        "17",
        "private-tmp",
        "Each job has a /tmp and a /dev/shm of its own",
        SLURM_CURE,
        own_tmp,
        needs=("slurm",),
        concerns=controllers,
        off=without("slurm_private_tmp"),
    ),
    Item(
        "18",
        "hidden-processes",
        "Users see their own processes alone",
        "",
        lambda host: [],
        needs=("hidepid",),
        off=hidden_processes,
    ),
    Item(
        "19",
        "slurm-state",
        "Slurm's state is slurm's alone, in a folder of root's",
        f"give the folder back (chown slurm, chmod 700; root owns those above), and run {RUN}",
        state_folder,
        needs=("files",),
        concerns=controllers,
        there=lambda host: bool(_files(host, str(host.declared["slurm_state_save_location"]))),
    ),
    Item(
        "20",
        "programs",
        "Only root writes what root runs for jobs: prologs, epilogs, health checks, spools",
        f"chown root and chmod go-w what is named, look who changed it, and run {RUN}",
        roots_programs,
        needs=("files",),
        there=_is_there(*PROGRAMS),
    ),
    Item(
        "21",
        "token-key",
        "The key that signs tokens is slurm's alone, on controllers and database hosts alone",
        f"remove it from other hosts, and replace it ({PAGE}#to-replace-one)",
        token_key,
        needs=("files",),
        there=_is_there(JWT),
    ),
    Item(
        "21",
        "token-lifespan",
        "A user's token has an end",
        SLURM_CURE,
        token_lifespan,
        needs=("slurm",),
        concerns=controllers,
        there=lambda host: "jwt" in str(host.facts["slurm"].get("authalttypes", "")).lower(),
    ),
    Item(
        "22",
        "rest-daemon",
        "slurmrestd runs where it is declared, as a user of its own, and not on the network",
        "stop slurmrestd there, or set slurmrestd_enabled and run the playbook",
        rest_daemon,
        needs=("daemons", "listening"),
    ),
    Item(
        "23",
        "slurm-metrics",
        "slurmctld tells metrics to nobody who does not log in",
        SLURM_CURE,
        metrics_of_slurmctld,
        needs=("slurm",),
        concerns=controllers,
        off=lambda host: (
            "slurm_exporter_openmetrics is true in the inventory"
            if host.declared.get("slurm_exporter_openmetrics")
            else ""
        ),
    ),
    Item(
        "24",
        "firewall",
        "A firewall drops what no rule allows",
        f"run {RUN} --tags firewall",
        firewall,
        needs=("firewall",),
        off=without("firewall_enabled"),
    ),
    Item(
        "25",
        "monitoring-servers",
        "Exporters, Prometheus and Alertmanager speak TLS, and to nobody without a password",
        "ansible-playbook -i INVENTORY playbooks/monitoring.yml",
        closed_servers,
        needs=("web",),
        there=lambda host: any(_servers(host)),
    ),
    Item(
        "26",
        "grafana",
        "Grafana speaks TLS, shows nothing to strangers and takes no new accounts",
        "ansible-playbook -i INVENTORY playbooks/monitoring.yml",
        closed_grafana,
        needs=("grafana", "files", "web"),
        there=has("grafana"),
    ),
    Item(
        "27",
        "package-signatures",
        "APT installs nothing without a signature",
        "remove `trusted=yes` and the like from the named files, and give the source its key",
        checked_sources,
        needs=("apt",),
    ),
    Elsewhere(
        "27",
        "pinned-downloads",
        "Downloads of another checksum are not installed",
        TESTED,
        "tests/test_download.py, tests/test_release_file.py",
    ),
    Elsewhere(
        "27",
        "pip-hashes",
        "What pip installs on nodes has a checksum too",
        STATED,
        f"{PAGE}#what-is-left-to-the-site",
    ),
    Item(
        "28",
        "docker-group",
        "Nobody is in the group docker",
        "take them out: gpasswd -d NAME docker",
        nobody_in_docker,
        needs=("privileged",),
    ),
    Elsewhere(
        "28",
        "users-in-containers",
        "Whoever is root in a container of a job is the job's user outside",
        STATED,
        f"{PAGE}#what-is-left-to-the-site",
    ),
    Item(
        "29",
        "locked-memory",
        "Jobs may lock all memory that they have",
        f"run {RUN} --tags slurm, and restart slurmd there",
        locked_memory,
        needs=("slurmd_limits", "container"),
        concerns=computes,
        off=in_container,
    ),
    Item(
        "29",
        "core-dumps",
        "Nothing dumps its memory unless its user asks for it",
        f"run {RUN} --tags node_base",
        no_dumps,
        needs=("user_limits",),
        off=dumps_allowed,
    ),
    Item(
        "29",
        "limits-of-nodes",
        "The limit of locked memory is the node's, not that of the shell that submits",
        SLURM_CURE,
        setting("PropagateResourceLimitsExcept", "MEMLOCK", among=True),
        needs=("slurm",),
        concerns=controllers,
    ),
    Item(
        "30",
        "x11-in-jobs",
        "Jobs have no X11",
        SLURM_CURE,
        flags_without_x11,
        needs=("slurm",),
        concerns=controllers,
    ),
    Item(
        "30",
        "unattended-upgrades",
        "Unattended upgrades leave Slurm, the driver and the kernel alone",
        f"run {RUN} --tags node_base",
        upgrades,
        needs=("apt",),
        off=without("node_base_upgraded_by_hand"),
    ),
    Item(
        "30",
        "sent-logs",
        "Logs, those of sudo and of Ansible among them, leave their host",
        f"run {RUN} --tags log_collection",
        sends_logs,
        needs=("units",),
        off=logs_leave,
    ),
    Item(
        "+",
        "audit",
        "The journal says who ran which playbook when",
        "see whether journald runs and takes lines of the facility user",
        journal,
        needs=("journal",),
    ),
    Item(
        "+",
        "kernel-settings",
        "The baseline's settings of the kernel are in force",
        "sudo sysctl --load=/etc/sysctl.d/50-plumbline-baseline.conf, or remove the file that says "
        "otherwise",
        sysctls,
        needs=("sysctls", "container"),
        off=first_of(without("node_base_baseline"), in_container),
    ),
    Item(
        "+",
        "sandbox",
        "slurmctld and slurmdbd run in a sandbox",
        f"run {RUN} --tags slurm,slurm_database",
        sandboxed("slurmctld", "slurmdbd"),
        needs=("units",),
        concerns=_group("slurm_controller", "slurm_database"),
        off=first_of(without("slurm_sandbox"), without("slurm_database_sandbox")),
        there=lambda host: bool({"slurmctld", "slurmdbd"} & host.facts["units"].keys()),
    ),
    Item(
        "+",
        "known-holes",
        "Driver, container software, DCGM and kernel have no known hole",
        "set a newer version of what is named, as cluster/fixed_versions.yml has them, and run "
        "playbooks/gpu-software.yml; update the kernel, runc and Docker with the system",
        known_holes,
        needs=("versions",),
        there=has_versions,
    ),
    Item(
        "+",
        "users-without-sudo",
        "Nobody who submits jobs can become root",
        f"take them out of slurm_users, or out of the group ({PAGE}#what-the-shared-key-means)",
        no_user_is_root,
        needs=("privileged",),
        off=never_off,
    ),
)
