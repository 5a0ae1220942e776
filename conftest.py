"""For tests of modules, wherever they lie: what Ansible sends along with them.

And golden files: `pytest FOLDER --renew-golden` writes what is rendered instead of comparing it.

And the tests that `scripts/test` leaves for `scripts/test --full`, see tests/long_tests.py. Whoever
runs pytest or molecule otherwise runs them.

And the CPU time that a test may take, see tests/cpu_limit.py.

And the fixtures of roles' scenarios: runs of the role, a mirror on its node, users who log in.

And that runs of Ansible say what Ansible says, for tests read it: the lines of
playbooks/callback_plugins/watch.py are for people.
"""

import os
from collections.abc import Callable, Generator
from pathlib import Path

import ansible.module_utils
import pytest
from hypothesis import settings

from tests import cpu_limit, long_tests

pytest_plugins = ("tests.role_login", "tests.role_mirror", "tests.role_play")

# Molecule, which starts Ansible without pytest, has the same in .config/molecule/config.yml.
os.environ.setdefault("ANSIBLE_STDOUT_CALLBACK", "default")

ROOT = Path(__file__).parent
ansible.module_utils.__path__ += [
    str(ROOT / "playbooks/module_utils"),
    *map(str, sorted(ROOT.glob("roles/*/module_utils"))),
]

RENEW = "--renew-golden"

# The same examples each time, so that a change is red for what it changed; --full looks for others.
# None has a deadline: a busy machine breaks it.
settings.register_profile("other", deadline=None)
settings.register_profile("same", derandomize=True, deadline=None)
settings.load_profile("same" if long_tests.SHORT else "other")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(RENEW, action="store_true", help="write golden files instead of comparing")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if long_tests.SHORT:
        for item in long_tests.left(items):
            item.add_marker(pytest.mark.skip(reason="left for scripts/test --full"))


# --- CPU time ------------------------------------------------------------------------------------

BEGAN = pytest.StashKey[float]()
TOOK = "took much CPU time"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Fixtures that a test is the first to ask for count as its own."""
    item.stash[BEGAN] = cpu_limit.used()
    yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    yield
    # What asks nodes is held to its time by those who run it.
    if (
        any(item.get_closest_marker(name) for name in ("heavy", "long"))
        or "molecule" in item.nodeid
    ):
        return
    seconds = cpu_limit.used() - item.stash[BEGAN]
    if seconds > cpu_limit.LIMIT_S:
        slowness = cpu_limit.yardstick()
        if complaint := cpu_limit.complaint(seconds, slowness):
            item.user_properties.append((TOOK, complaint))
        if cpu_limit.is_failure(seconds, slowness):
            pytest.fail(complaint, pytrace=False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.getreports("passed"):
        for name, complaint in report.user_properties:
            if name == TOOK and report.when == "call":
                terminalreporter.write_line(f"{report.nodeid}: {complaint}")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Holds a text against a file of the repository."""
    renew = request.config.getoption(RENEW)

    def hold(path: Path, text: str) -> None:
        if renew:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing; pytest {RENEW} writes it"
        assert text == path.read_text(), f"pytest {RENEW} takes over what changed in {path}"

    return hold
