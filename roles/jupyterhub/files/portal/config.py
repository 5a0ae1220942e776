"""The settings of JupyterHub, out of the document that the role writes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from jupyterhub.apihandlers import default_handlers

from roles.jupyterhub.files.portal import api
from roles.jupyterhub.files.portal.authenticators import SlowedPAMAuthenticator
from roles.jupyterhub.files.portal.oidc import AccountOAuthenticator
from roles.jupyterhub.files.portal.spawner import SlurmJobSpawner, alternative_name

COOKIE_DAYS = 1.0


def configure(c: Any, known: Mapping[str, Any]) -> None:
    """Sets everything. `c` is what get_config() gives a configuration file of Jupyter."""
    default_handlers.append((api.PATH, api.NotebookHandler))
    data = known["data"]

    # The proxy is a service of its own: notebooks stay reachable while the hub restarts.
    c.JupyterHub.bind_url = f"https://:{known['port']}"
    c.JupyterHub.cleanup_servers = False
    c.JupyterHub.cleanup_proxy = False
    c.ConfigurableHTTPProxy.should_start = False
    c.ConfigurableHTTPProxy.api_url = f"https://localhost:{known['proxy_api_port']}"
    c.ConfigurableHTTPProxy.auth_token = os.environ["CONFIGPROXY_AUTH_TOKEN"]

    # Hub, proxy and notebooks know each other by certificates: whoever else connects to one of
    # their ports gets nothing.
    c.JupyterHub.internal_ssl = True
    c.JupyterHub.internal_certs_location = f"{data}/certificates"
    c.JupyterHub.trusted_alt_names = [alternative_name(name) for name in known["names"]]
    c.JupyterHub.hub_bind_url = f"https://0.0.0.0:{known['hub_port']}"
    c.JupyterHub.hub_connect_url = f"https://{known['name']}:{known['hub_port']}"

    c.JupyterHub.db_url = f"sqlite:///{data}/hub.sqlite"
    c.JupyterHub.cookie_secret_file = f"{data}/cookie_secret"
    c.JupyterHub.cookie_max_age_days = COOKIE_DAYS
    c.JupyterHub.allow_named_servers = True
    c.JupyterHub.named_server_limit_per_user = max(known["servers_per_user"] - 1, 0)
    c.JupyterHub.admin_access = False
    c.JupyterHub.redirect_to_server = False  # the page with one's notebooks comes first
    c.JupyterHub.tornado_settings = {
        "headers": {"Content-Security-Policy": "frame-ancestors 'self'"},
        "slow_spawn_timeout": 1,
    }

    c.JupyterHub.spawner_class = SlurmJobSpawner
    sudo = ["/usr/bin/sudo", "--non-interactive", "--user={username}", "--", known["job"]]
    c.SlurmJobSpawner.as_user = sudo
    c.SlurmJobSpawner.site = known["site"]
    c.SlurmJobSpawner.notebook = known["notebook"]
    c.SlurmJobSpawner.portal_names = known["names"]
    c.SlurmJobSpawner.queue_seconds = known["queue_seconds"]
    c.SlurmJobSpawner.idle_minutes = known["idle_minutes"]
    c.SlurmJobSpawner.start_timeout = known["queue_seconds"] + 120
    c.SlurmJobSpawner.http_timeout = 90
    c.SlurmJobSpawner.poll_interval = 30
    c.SlurmJobSpawner.ip = "0.0.0.0"
    c.SlurmJobSpawner.default_url = "/lab"
    c.JupyterHub.concurrent_spawn_limit = 50

    authenticate(c, known)


def authenticate(c: Any, known: Mapping[str, Any]) -> None:
    """How users log in, and who of them may."""
    if known["authentication"] == "oidc":
        provider = known["oidc"]
        c.JupyterHub.authenticator_class = AccountOAuthenticator
        mine = c.AccountOAuthenticator
        mine.login_service = provider.get("name") or "the site's account"
        mine.client_id = provider["client_id"]
        mine.client_secret = os.environ["PLUMBLINE_OIDC_SECRET"]
        mine.oauth_callback_url = f"{known['url']}/hub/oauth_callback"
        mine.authorize_url = provider["authorize_url"]
        mine.token_url = provider["token_url"]
        mine.userdata_url = provider["userdata_url"]
        mine.username_claim = provider.get("username_claim") or "preferred_username"
        mine.scope = provider.get("scope") or ["openid", "profile"]
        if provider.get("ca_file"):
            mine.http_request_kwargs = {"ca_certs": provider["ca_file"]}
    else:
        c.JupyterHub.authenticator_class = SlowedPAMAuthenticator
        mine = c.SlowedPAMAuthenticator
        mine.service = "plumbline-portal"
        mine.open_sessions = False  # the job is the session
        mine.executor_threads = 8
    mine.any_allow_config = True  # the rule
    mine.rule = known["rule"]
    mine.admin_users = set(known["admins"])
