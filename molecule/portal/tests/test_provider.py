"""Logging in by a provider of OpenID Connect, a small real one on the login node."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live_cluster import operate, sources
from tests.patience import until

PORTAL = "https://login1"
PICTURES = ".cache/portal"
PROVIDER = "https://login1:8443"
SERVER = """
import ssl, sys
from werkzeug.serving import run_simple
from oidc_provider_mock import app
run_simple("0.0.0.0", 8443, app(), ssl_context=tuple(sys.argv[1:3]), threaded=True)
"""
UNIT = "test-provider"


@pytest.fixture(scope="module")
def secret(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("oidc") / "secret"
    path.write_text("of-the-client")
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def provider(node, secret) -> Iterator[None]:
    """The provider runs, and the portal takes its word; afterwards passwords count again."""
    pinned = (Path(__file__).parents[1] / "requirements.txt").read_text().split()
    package = next(word for word in pinned if word.startswith("oidc-provider-mock"))
    node(
        "login1",
        f"sudo python3 -m venv /opt/provider && sudo /opt/provider/bin/pip -q install {package}",
    )
    node("login1", f"sudo tee /opt/provider/server.py >/dev/null <<'END'\n{SERVER}END")
    tls = "/etc/plumbline/tls/host.crt /etc/plumbline/tls/host.key"
    node(
        "login1",
        f"sudo systemd-run --quiet --unit={UNIT} "
        f"/opt/provider/bin/python /opt/provider/server.py {tls}",
    )
    settings = {
        "jupyterhub_authentication": "oidc",
        "jupyterhub_oidc": {
            "name": "Example University",
            "client_id": "cluster-portal",
            "authorize_url": f"{PROVIDER}/oauth2/authorize",
            "token_url": f"{PROVIDER}/oauth2/token",
            "userdata_url": f"{PROVIDER}/userinfo",
            "username_claim": "sub",
            "ca_file": "/etc/plumbline/tls/ca.crt",
        },
        "jupyterhub_oidc_client_secret_file": str(secret),
    }
    configure("-e", json.dumps(settings))
    yield
    configure()
    node("login1", f"sudo systemctl stop {UNIT}; sudo rm -rf /opt/provider")


def configure(*more: str) -> None:
    ephemeral = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"
    own = "molecule/portal/inventory/hosts.yml"
    command = ("ansible-playbook", *sources(ephemeral), "-i", own, "playbooks/portal.yml")
    done = operate(*command, "--limit", "login1", "--tags", "jupyterhub", *more)
    assert done.returncode == 0, done.stdout + done.stderr


def ask(page, name):
    """To the provider and back, as whom the name says."""
    page.goto(f"{PORTAL}/hub/login")
    page.click("text=Sign in with Example University")
    page.wait_for_url(f"{PROVIDER}/**")
    page.fill("input[name=sub]", name)
    page.locator("button[type=submit], input[type=submit]").first.click()
    page.wait_for_url(f"{PORTAL}/**")


def test_the_providers_word_counts(provider, person, node):
    node("ada@login1", "scancel --me")  # another test's notebook
    page = person()
    ask(page, "ada")
    page.wait_for_url("**/hub/home")
    until(lambda: page.goto(f"{PORTAL}/hub/home") and not page.is_visible("#stop"))
    page.screenshot(path=f"{PICTURES}/20-provider.png")
    page.goto(f"{PORTAL}/hub/spawn")
    page.fill("#gpus", "0")
    page.click("#spawn_form [type=submit]")
    page.wait_for_url("**/user/ada/lab**", timeout=60_000)
    page.goto(f"{PORTAL}/hub/home")
    page.click("#stop")
    until(lambda: not node("ada@login1", "squeue --me --noheader"))


@pytest.mark.parametrize("name", ["mallory", "root", "ops", """"'><script>alert(1)</script>"""])
def test_who_has_no_account_of_a_user_is_refused(provider, person, name):
    page = person()
    seen = []
    page.on("dialog", lambda dialog: (seen.append(dialog.message), dialog.dismiss()))
    ask(page, name)
    assert "/hub/home" not in page.url
    assert seen == []
    assert page.goto(f"{PORTAL}/hub/api/user").status == 403


def test_its_secret_is_roots_alone(provider, node):
    assert node("login1", "sudo stat -c '%U %a' /etc/plumbline/portal/oidc") == "root 600"
    units = node(
        "login1", "systemctl cat plumbline-portal; sudo cat /etc/plumbline/portal/portal.json"
    )
    assert "of-the-client" not in units
