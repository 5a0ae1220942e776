"""For tests of modules, wherever they lie: what ansible.cfg has Ansible send along with them.

And golden files: `pytest FOLDER --renew-golden` writes what is rendered instead of comparing it.
"""

from collections.abc import Callable
from pathlib import Path

import ansible.module_utils
import pytest

ansible.module_utils.__path__.append(str(Path(__file__).parent / "playbooks/module_utils"))

RENEW = "--renew-golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(RENEW, action="store_true", help="write golden files instead of comparing")


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
