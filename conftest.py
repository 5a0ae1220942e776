"""For tests of modules, wherever they lie: what Ansible sends along with them.

And golden files: `pytest FOLDER --renew-golden` writes what is rendered instead of comparing it.

And the tests that `scripts/test` leaves for `scripts/test --full`: they say so of themselves, and
the summary counts them. Whoever runs pytest or molecule otherwise runs them.
"""

import os
from collections.abc import Callable
from pathlib import Path

import ansible.module_utils
import pytest
from hypothesis import settings

ROOT = Path(__file__).parent
ansible.module_utils.__path__ += [
    str(ROOT / "playbooks/module_utils"),
    *map(str, sorted(ROOT.glob("roles/*/module_utils"))),
]

RENEW = "--renew-golden"

SHORT = os.environ.get("PLUMBLINE_LONG_TESTS") == "no"
# The same examples each time, so that a change is red for what it changed; --full looks for others.
# None has a deadline: a busy machine breaks it.
settings.register_profile("other", deadline=None)
settings.register_profile("same", derandomize=True, deadline=None)
settings.load_profile("same" if SHORT else "other")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(RENEW, action="store_true", help="write golden files instead of comparing")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if SHORT:
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="left for scripts/test --full"))


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
