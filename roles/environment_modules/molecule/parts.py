"""The tree of the scenarios, and what users see of it."""

import shlex

TREE = "/srv/shared/modules/modulefiles"
CACHE = "/srv/shared/modules/cache"
ALL = {
    "away/1",
    "mpi-a/1",
    "mpi-b/1",
    "nasty/1",
    "python-env/1",
    "rival/1",
    "tool/1.10",
    "tool/2.0",
}
TOOL = {"name": "tool", "version": "3", "description": "x", "kind": "folder", "folder": "/srv/x"}


def login(host, command, user="alice"):
    with host.sudo():
        return host.run(f"su - {user} -c {shlex.quote(command)}")


def loaded(host, command, user="alice"):
    done = login(host, command, user)
    assert done.rc == 0, done.stderr
    return done.stdout.strip()


def avail(host, user="alice"):
    lines = loaded(host, "module --terse avail 2>&1", user).splitlines()
    return {line for line in lines if "/" in line and line[-1] not in ":/"}
