"""The browser, people, and the cluster's nodes. Pictures stay in `.cache/portal`."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.live_cluster import REPOSITORY, on, under_test, virtual_cluster

CLUSTER = under_test()
PICTURES = REPOSITORY / ".cache/portal"
TOOLS = REPOSITORY / ".cache/portal-tools"
REQUIREMENTS = REPOSITORY / "molecule/portal/requirements.txt"
BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
PORTAL = "https://login1"


def _tools() -> None:
    """Playwright for this interpreter; no other test needs it, so setup does not have it."""
    done = TOOLS / "complete"
    if not done.exists() or done.read_text() != REQUIREMENTS.read_text():
        shutil.rmtree(TOOLS, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(TOOLS)]
        subprocess.run([*pip, "--requirement", str(REQUIREMENTS)], check=True)
        done.write_text(REQUIREMENTS.read_text())
    sys.path.append(str(TOOLS))


def pytest_configure() -> None:
    _tools()
    PICTURES.mkdir(parents=True, exist_ok=True)


@pytest.fixture(scope="session")
def node() -> Callable[[str, str], str]:
    """A function that runs words on a node, as its operator or as USER@NODE."""
    return lambda name, words: on(CLUSTER, name, words)


@pytest.fixture(scope="session")
def cluster() -> Callable[..., subprocess.CompletedProcess[str]]:
    """A function that starts and stops nodes."""
    return lambda verb, *arguments: virtual_cluster(CLUSTER, verb, *arguments)


@pytest.fixture(scope="session")
def passwords(node) -> dict[str, str]:
    """Of ada and bea, who have none by the inventory."""
    known = {name: secrets.token_hex(8) for name in ("ada", "bea")}
    for name, password in known.items():
        node("login1", f"echo {name}:{password} | sudo chpasswd")
    return known


@pytest.fixture(scope="session")
def chromium(node) -> Iterator:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - found by _tools

    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    fallback = Path("/usr/lib/chromium/chromium-headless-shell")
    assert program or fallback.exists(), "no browser: apt-get install chromium-headless-shell"
    address = node("login1", "getent ahostsv4 login1 | awk '{print $1; exit}'")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program or str(fallback),
            args=[
                "--no-sandbox",
                "--no-proxy-server",
                f"--host-resolver-rules=MAP login1 {address}",
            ],
        )
        yield browser
        browser.close()


@pytest.fixture
def person(chromium, passwords, request) -> Iterator[Callable]:
    """A function that opens a browser of somebody; with a name, logged in. Pictures are kept."""
    contexts = []

    def open_(name: str = ""):
        # The certificate is the cluster's own, which test_jupyterhub holds against its authority.
        context = chromium.new_context(
            ignore_https_errors=True, viewport={"width": 1280, "height": 900}
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda line: print(f"{line.type}: {line.text}"))
        page.on("pageerror", lambda error: print(f"page: {error}"))
        page.on("requestfailed", lambda asked: print(f"failed: {asked.url} {asked.failure}"))
        page.goto(f"{PORTAL}/hub/login")
        if name:
            page.fill("#username_input", name)
            page.fill("#password_input", passwords[name])
            page.click("#login_submit")
            page.wait_for_url("**/hub/home")
        return page

    yield open_
    for number, context in enumerate(contexts):
        for page in context.pages:
            page.screenshot(path=PICTURES / f"{request.node.name}-{number}.png")
        context.close()
