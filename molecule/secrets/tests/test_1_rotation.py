"""Each secret is replaced while jobs run: none is lost, and the old value opens nothing any more.

What it took is in .cache/test/secrets.md.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

from tests import live_cluster
from tests.job_load import Load
from tests.live_cluster import PLAIN, REPOSITORY, sources, under_test, words
from tests.patience import until

CLUSTER = under_test()
INVENTORY = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"
SECRETS = INVENTORY / ".secrets"
SITE = ("-e", "@molecule/secrets/vars/site.yml")
HOSTS = ("ctl1", "login1", "gpu1", "gpu2")
TABLE = REPOSITORY / ".cache/test/secrets.md"
SECONDS = 900
PORTS = {"prometheus": 9090, "alertmanager": 9093, "node": 9100}

on = partial(live_cluster.on, CLUSTER)


def note(*cells: object) -> None:
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    with TABLE.open("a") as table:
        table.write(f"| {' | '.join(map(str, cells))} |\n")


def rotate(operator, kinds: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return operator.playbook(
        "rotate-secrets.yml", "-e", f"rotate={kinds}", *SITE, *arguments, timeout=SECONDS
    )


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def key_of(host: str) -> str:
    return on(host, "sudo sha256sum /etc/munge/munge.key").split()[0]


def timeouts() -> dict[str, int]:
    shown = on("ctl1", "scontrol show config")
    return {
        name: int(re.search(rf"^{name}\s*= (\d+)", shown, re.MULTILINE)[1])
        for name in ("SlurmdTimeout", "MessageTimeout")
    }


def states() -> list[str]:
    return sorted(set(on("ctl1", "sinfo --noheader --Node --format=%T").split()))


def values() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in SECRETS.iterdir() if path.name[0] != "."}


def check_kept(operator, before: dict[str, bytes], replaced: set[str]) -> None:
    """The values that were meant are others now, and nothing is left of the replacement."""
    now = values()
    assert now.keys() == before.keys()
    assert {name for name in now if now[name] != before[name]} == replaced
    for name in replaced:
        assert (SECRETS / name).stat().st_mode & 0o777 == 0o600
    listed = operator("scripts/secrets", "list", *operator.inventories)
    assert listed.returncode == 0, listed.stdout + listed.stderr


def test_munge_key_is_replaced_while_jobs_run(operator):
    before, waits = values(), timeouts()
    started = time.monotonic()
    with Load(CLUSTER) as load:
        run = rotate(operator, "munge")
        assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-1000:]
        seconds = time.monotonic() - started
        assert "steps" in load.running()
        submitted = len(load.submitted)
        until(lambda: len(load.submitted) > submitted)  # and it goes on
    assert load.refused == ""
    assert load.lost() == []
    check_kept(operator, before, {"munge.key"})
    assert {key_of(host) for host in HOSTS} == {digest(SECRETS / "munge.key")}
    assert timeouts() == waits
    assert states() == ["idle"]
    note("munge", f"{seconds:.0f} s", f"{len(load.submitted)} jobs", f"{load.steps()} steps")


# A munged of its own signs with a key, as somebody who has kept it would.
SIGN_WITH = """\
sudo sh -c 'd=/run/kept; rm -rf $d; mkdir $d
echo {key} | base64 --decode >$d/key; chmod 0400 $d/key
munged --force --key-file=$d/key --socket=$d/socket --pid-file=$d/pid --seed-file=$d/seed \
  --log-file=$d/log >/dev/null 2>&1
munge --no-input --socket=$d/socket | unmunge 2>&1 | head -1; kill $(cat $d/pid); rm -rf $d'
"""


def test_key_in_a_vault_is_replaced_there_and_the_old_one_is_refused(operator, tmp_path):
    password = tmp_path / "password"
    password.write_text("of the vault\n")
    vault = ("--vault-password-file", str(password))
    old = (SECRETS / "munge.key").read_bytes()
    signed = SIGN_WITH.format(key=base64.b64encode(old).decode())
    assert "Success" in on("login1", signed)
    done = operator("scripts/secrets", "encrypt", *operator.inventories, *vault)
    assert done.returncode == 0, done.stderr
    assert (SECRETS / "munge.key").read_bytes().startswith(b"$ANSIBLE_VAULT")
    run = rotate(operator, "munge", *vault)
    assert run.returncode == 0, run.stdout[-5000:]
    assert (SECRETS / "munge.key").read_bytes().startswith(b"$ANSIBLE_VAULT")
    done = operator("scripts/secrets", "decrypt", *operator.inventories, *vault)
    assert done.returncode == 0, done.stderr
    assert {key_of(host) for host in HOSTS} == {digest(SECRETS / "munge.key")}
    assert (SECRETS / "munge.key").read_bytes() != old
    assert "Invalid credential" in on("login1", signed)


def test_a_rotation_that_was_killed_is_completed_by_the_same_command(operator):
    """With SIGKILL, when some hosts may have the one key and some the other."""
    before, waits = values(), timeouts()
    command = ("ansible-playbook", *sources(INVENTORY), "playbooks/rotate-secrets.yml")
    with Load(CLUSTER) as load:
        for moment in ("Place the new key", "Wait for the moment to pass", "Start munged"):
            with subprocess.Popen(
                [*command, "-e", "rotate=munge", *SITE],
                cwd=REPOSITORY,
                env={**os.environ, **PLAIN, "ANSIBLE_STDOUT_CALLBACK": "default"},
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            ) as process:
                assert process.stdout
                for line in process.stdout:
                    if moment in line:
                        break
                os.killpg(process.pid, signal.SIGKILL)
            assert (SECRETS / "munge.key.previous").exists()
        new = digest(SECRETS / "munge.key")
        refused = operator.playbook("preflight.yml", "--skip-tags", "hosts", *SITE)
        assert refused.returncode != 0
        assert "rotate-secrets.yml -e rotate=munge" in words(refused)
        listed = operator("scripts/secrets", "list", *operator.inventories)
        assert listed.returncode == 1
        assert "is not complete" in listed.stdout
        run = rotate(operator, "munge")
        assert run.returncode == 0, run.stdout[-5000:]
        assert digest(SECRETS / "munge.key") == new  # no third key was made
    assert load.refused == ""
    assert load.lost() == []
    check_kept(operator, before, {"munge.key"})
    assert {key_of(host) for host in HOSTS} == {new}
    assert timeouts() == waits
    note("munge, killed three times", "", f"{len(load.submitted)} jobs", f"{load.steps()} steps")


def test_a_node_that_is_away_is_named_and_comes_in_later(operator):
    """Without jobs there; with a job the run is refused, for the job would be lost."""
    job = on("login1", "sbatch --parsable --output=/dev/null -w gpu2 --wrap 'sleep 600'")
    until(lambda: on("login1", f"squeue -h -j {job} -o %t") == "R")
    before = values()
    run = rotate(operator, "munge", "--limit", "!gpu2")
    assert run.returncode != 0
    assert "gpu2 cannot be reached or is left out by --limit, and jobs run there" in words(run)
    assert values() == before
    on("login1", f"scancel {job}")
    until(lambda: on("login1", f"squeue -h -j {job} -o %t") == "")
    run = rotate(operator, "munge", "--limit", "!gpu2")
    assert run.returncode == 0, run.stdout[-5000:]
    assert "gpu2 was not there and has the old MUNGE key" in words(run)
    check_kept(operator, before, {"munge.key"})
    assert key_of("gpu2") == hashlib.sha256(before["munge.key"]).hexdigest()
    run = operator.playbook("slurm-cluster.yml", *SITE, timeout=1800)
    assert run.returncode == 0, run.stdout[-3000:]
    assert key_of("gpu2") == digest(SECRETS / "munge.key")
    until(lambda: states() == ["idle"], 120)


def test_a_run_without_a_controller_is_refused(operator):
    before = values()
    run = rotate(operator, "munge", "--limit", "gpu1")
    assert run.returncode != 0
    assert "ctl1 is left out by --limit, and nothing can be replaced" in words(run)
    assert values() == before


def test_database_password_is_replaced_while_jobs_run(operator):
    old = (SECRETS / "slurm_database_password").read_text().strip()
    before = values()
    started = time.monotonic()
    with Load(CLUSTER) as load:
        run = rotate(operator, "database")
        assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-1000:]
        seconds = time.monotonic() - started
    assert load.refused == ""
    assert load.lost() == []
    check_kept(operator, before, {"slurm_database_password"})
    new = (SECRETS / "slurm_database_password").read_text().strip()
    assert "denied" in database(old)
    assert database(new) == "1"
    note("database", f"{seconds:.0f} s", f"{len(load.submitted)} jobs", f"{load.steps()} steps")


def database(password: str) -> str:
    return on(
        "ctl1",
        f"MYSQL_PWD={password} mariadb --user=slurm --host=localhost --skip-column-names "
        "--execute='select 1' 2>&1 || true",
    )


def test_key_of_tokens_is_replaced_while_jobs_run(operator):
    token = on("ctl1", "sudo scontrol token username=slurm lifespan=3600").partition("=")[2]
    assert "UP" in ping(token)
    before = values()
    started = time.monotonic()
    with Load(CLUSTER) as load:
        run = rotate(operator, "jwt")
        assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-1000:]
        seconds = time.monotonic() - started
    assert load.refused == ""
    assert load.lost() == []
    check_kept(operator, before, {"slurm_jwt_key"})
    assert "UP" not in ping(token)
    token = on("ctl1", "sudo scontrol token username=slurm lifespan=3600").partition("=")[2]
    assert "UP" in ping(token)
    note("jwt", f"{seconds:.0f} s", f"{len(load.submitted)} jobs", f"{load.steps()} steps")


def ping(token: str) -> str:
    """What slurmctld says to a token: a question that it answers, and no ping, needs one."""
    return on(
        "login1",
        f"SLURM_JWT={token} scontrol show node gpu1 2>&1 | grep -c NodeName=gpu1 "
        "| sed 's/1/UP/'; true",
    )


def test_passwords_and_authority_of_the_monitoring_are_replaced_while_jobs_run(operator):
    old = {
        name: (SECRETS / f"monitoring_{name}_password").read_text().strip()
        for name in ("admin", "prometheus", "server")
    }
    authority = (SECRETS / "tls_authority.pem").read_text()
    before = values()
    started = time.monotonic()
    with Load(CLUSTER) as load:
        run = rotate(operator, "tls,web")
        assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-1000:]
        seconds = time.monotonic() - started
    assert load.refused == ""
    assert load.lost() == []
    web = {name for name in before if name.startswith("monitoring_")}
    check_kept(operator, before, {*web, "tls_authority.pem"})
    for name, port in (("admin", 9090), ("server", 9093), ("prometheus", 9100)):
        new = (SECRETS / f"monitoring_{name}_password").read_text().strip()
        assert answer(name, old[name], port) == "401"
        assert answer(name, new, port) == "200"
    for host in HOSTS:
        assert (
            on(host, "cat /etc/plumbline/tls/ca.crt") in (SECRETS / "tls_authority.pem").read_text()
        )
        assert on(host, "cat /etc/plumbline/tls/ca.crt") not in authority
    up = on(
        "ctl1",
        "curl --silent --cacert /etc/plumbline/tls/ca.crt --user "
        f"admin:{(SECRETS / 'monitoring_admin_password').read_text().strip()} "
        "'https://ctl1:9090/api/v1/query?query=count(up==0)'",
    )
    until(lambda: '"result":[]' in up)
    note("tls, web", f"{seconds:.0f} s", f"{len(load.submitted)} jobs", f"{load.steps()} steps")


def answer(user: str, password: str, port: int) -> str:
    path = "metrics" if port == 9100 else "-/healthy"
    return on(
        "ctl1",
        "curl --silent --output /dev/null --write-out '%{http_code}' --cacert "
        f"/etc/plumbline/tls/ca.crt --user {user}:{password} https://ctl1:{port}/{path}",
    )


def test_an_ordinary_run_finds_nothing_to_do_afterwards(operator):
    run = operator.playbook("slurm-cluster.yml", *SITE, timeout=1800)
    assert run.returncode == 0, run.stdout[-3000:]
    assert set(live_cluster.changed(run.stdout).values()) == {"0"}
